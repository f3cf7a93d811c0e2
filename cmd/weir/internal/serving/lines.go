package serving

import (
	"bytes"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// Lines writes lines in the background, so that no request waits for a reader or a disk. It keeps a bounded
// number of bytes, and drops and counts the lines that do not fit or cannot be written.
type Lines struct {
	name string // of the file; empty: a stream
	wake chan struct{}
	end  chan struct{}
	done chan struct{}

	mu      sync.Mutex
	to      io.Writer // of the next write; a file if name is set
	waiting []byte
	dropped uint64
	err     error // of the last write
	ended   bool

	current io.Writer // of the last write, like the fields below only for the goroutine
	spare   []byte
	torn    bool // the last line is incomplete
}

const (
	mostWaiting   = 4 << 20         // bytes, beside those that are being written
	flushPatience = 2 * time.Second // how long Close waits
)

// NewLines returns Lines that write to a stream. Close ends its goroutine.
func NewLines(to io.Writer) *Lines {
	l := &Lines{to: to, wake: make(chan struct{}, 1), end: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

// OpenLines returns Lines that append to the file called name.
func OpenLines(name string) (*Lines, error) {
	file, err := openLog(name)
	if err != nil {
		return nil, err
	}
	l := NewLines(file)
	l.name = name
	return l, nil
}

// openLog opens a file. If it is a named pipe that nobody reads, it returns an error instead of waiting.
func openLog(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o640)
}

// Reopen opens the file again, which a log rotation may have renamed.
func (l *Lines) Reopen() error {
	if l.name == "" {
		return nil
	}
	file, err := openLog(l.name)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.to = file
	l.mu.Unlock()
	l.signal()
	return nil
}

// Write takes lines, each of which ends with a newline. It never blocks, and its error is always nil.
func (l *Lines) Write(lines []byte) (int, error) {
	l.mu.Lock()
	if len(l.waiting)+len(lines) <= mostWaiting {
		l.waiting = append(l.waiting, lines...)
	} else {
		l.dropped += countLines(lines)
	}
	l.mu.Unlock()
	l.signal()
	return len(lines), nil
}

func countLines(text []byte) uint64 { return uint64(bytes.Count(text, []byte("\n"))) }

func (l *Lines) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // it is about to look
	}
}

// Dropped returns how many lines were dropped, and the error of the last write, if it failed.
func (l *Lines) Dropped() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped, l.err
}

// Close writes the lines that wait. It gives up after two seconds, if their reader does not read.
func (l *Lines) Close() error {
	l.mu.Lock()
	if !l.ended {
		l.ended = true
		close(l.end)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(flushPatience):
	}
	return nil
}

func (l *Lines) run() {
	defer close(l.done)
	for {
		select {
		case <-l.wake:
			l.writeAll()
		case <-l.end:
			l.writeAll()
			l.closeFile()
			return
		}
	}
}

// writeAll writes what waits, until nothing does.
func (l *Lines) writeAll() {
	for {
		l.mu.Lock()
		to, text := l.to, l.waiting
		l.waiting = l.spare[:0]
		l.mu.Unlock()
		l.spare = text
		if to != l.current {
			l.closeFile()
			l.current, l.torn = to, false
		}
		if len(text) == 0 {
			return
		}
		lost, err := l.write(text)
		l.mu.Lock()
		l.dropped += lost
		l.err = err
		l.mu.Unlock()
	}
}

// write writes lines, and returns how many of them it lost.
func (l *Lines) write(text []byte) (lost uint64, err error) {
	if l.torn {
		if _, err := io.WriteString(l.current, "\n"); err != nil {
			return countLines(text), err
		}
		l.torn = false
	}
	n, err := l.current.Write(text)
	if err != nil {
		l.torn = n > 0 && text[n-1] != '\n'
	}
	return countLines(text[n:]), err
}

// closeFile closes the file that was written last.
func (l *Lines) closeFile() {
	if file, ok := l.current.(*os.File); ok && l.name != "" {
		_ = file.Close()
	}
}
