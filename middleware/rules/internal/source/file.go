package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A File is watched, however it is written: in place, by a file renamed over it, through
// symbolic links that come to lead elsewhere, as in a ConfigMap mounted by Kubernetes. And
// it is looked at from time to time, for file systems that tell nothing.
type File struct {
	path string
	poll time.Duration
	nudges

	watch   *watch // of the goroutine alone, once that runs
	settler *settler
	looks   map[string]look

	also   chan struct{} // others have changed
	ending chan struct{}
	ended  chan struct{}
	end    func()

	mu      sync.Mutex
	others  []string
	warning error
}

// NewFile begins to watch a file, which need not be there yet, and looks at it every poll;
// 0 stands for 10 seconds. That it cannot be watched is no error: see Warning.
func NewFile(path string, poll time.Duration) (*File, error) {
	return newFile(path, poll, fsnotify.NewWatcher)
}

func newFile(path string, poll time.Duration, open func() (*fsnotify.Watcher, error)) (*File, error) {
	if path == "" {
		return nil, errors.New("source: the path of the file is empty")
	}
	if poll < 0 {
		return nil, fmt.Errorf("source: the time between two looks at %s is %v: it must be positive, or 0 for %v", path, poll, defaultPoll)
	}
	absolute, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	f := &File{
		path:    absolute,
		poll:    orDefault(poll),
		nudges:  newNudges(),
		watch:   &watch{open: open},
		settler: newSettler(),
		looks:   make(map[string]look),
		also:    make(chan struct{}, 1),
		ending:  make(chan struct{}),
		ended:   make(chan struct{}),
	}
	f.end = sync.OnceFunc(func() { close(f.ending) })
	f.look() // before the first Read: what changes from now on is noticed
	go f.run()
	return f, nil
}

// Read reads the file, which must be a regular one: another may have no end. A file system
// that hangs is waited for, whatever the context.
func (f *File) Read(ctx context.Context) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("source: read %s: %w", f.path, err)
	}
	text, err := readFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("source: %w: %w", ErrMissing, err)
	case err != nil:
		return nil, fmt.Errorf("source: %w", err)
	case len(text) > maxText:
		return nil, errTooLong(f.path)
	}
	return text, nil
}

// readFile reads a byte more than a source may have, if there is one.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path) // first: to open a named pipe waits for its other end
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file (%s)", path, info.Mode())
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxText+1))
}

// Changed implements Source.
func (f *File) Changed() <-chan struct{} { return f.nudges }

// Also names further files whose changes count as changes, in place of those that it named
// before. Relative paths are taken from the working directory. Unless they are the same
// ones, a nudge follows: they may have changed before they were watched.
func (f *File) Also(paths ...string) {
	others := make([]string, len(paths))
	for i, path := range paths {
		absolute, err := filepath.Abs(path)
		if err != nil { // there is no working directory, so the path leads nowhere
			absolute = filepath.Clean(path)
		}
		others[i] = absolute
	}
	slices.Sort(others)
	others = slices.Compact(others)
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Equal(others, f.others) {
		return
	}
	f.others = others
	nudges(f.also).nudge()
}

// Warning tells which files are not watched at this time, and why. Their changes are
// noticed only by looking, and watching is tried again at each look. With nil all are
// watched.
//
// A file that is mounted by itself, as containers have them, and one that is written on
// another machine look as if they were watched, and nothing is heard of them.
func (f *File) Warning() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.warning
}

// Close implements Source.
func (f *File) Close() error {
	f.end()
	await(f.ended)
	return nil
}

func (f *File) run() {
	defer close(f.ended)
	poll := time.NewTicker(f.poll)
	defer poll.Stop()
	for {
		select {
		case e := <-f.watch.events():
			if f.watch.counts(e) {
				f.settler.event()
			}
		case <-f.watch.errors(): // what happened meanwhile is lost
			f.watch.close()
			f.settler.event()
		case <-f.settler.settled():
			f.settler.rest()
			f.look()
			f.nudge()
		case <-f.also:
			f.look()
			f.nudge()
		case <-poll.C:
			if f.look() {
				f.settler.event() // it may be in the middle of being written
			}
		case <-f.ending:
			f.settler.rest()
			f.watch.close()
			return
		}
	}
}

// look watches what the paths lead to now, and tells whether anything may have changed
// since the last look. It watches first, so that nothing is missed between the two.
func (f *File) look() (changed bool) {
	f.mu.Lock()
	paths := append([]string{f.path}, f.others...)
	f.mu.Unlock()
	err := f.watch.aim(paths)
	if err != nil {
		err = fmt.Errorf("source: changes are noticed only within %v: %w", f.poll, err)
	}
	f.mu.Lock()
	f.warning = err
	f.mu.Unlock()

	before := f.looks
	f.looks = make(map[string]look, len(paths))
	for _, path := range paths {
		next := lookAt(path)
		f.looks[path] = next
		if last, known := before[path]; !known || last.changed(next) {
			changed = true
		}
	}
	return changed
}
