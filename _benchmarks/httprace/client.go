package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// A connection is kept alive, and used by one goroutine at a time. It understands what
// net/http's server says to this client and no more, as it shares the cores with the server.
type connection struct {
	net.Conn
	reader *bufio.Reader
}

func dial(address string) (*connection, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{c, bufio.NewReader(c)}, nil
}

// ask sends a request and reads the response.
func (c *connection) ask(request []byte) (status int, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, err
	}
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, fmt.Errorf("a response begins with %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	length := -1
	for {
		if line, err = c.reader.ReadSlice('\n'); err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, errors.New("a response has no Content-Length")
	}
	_, err = c.reader.Discard(length)
	return status, err
}

// patience is how long an answer may take.
const patience = 10 * time.Second

// load has each connection ask for that long, as soon as it has an answer. A response of
// another status is an error.
func load(connections []*connection, status int, d time.Duration) (requests int, elapsed time.Duration, err error) {
	counts, errs := make([]int, len(connections)), make([]error, len(connections))
	start := time.Now()
	var wg sync.WaitGroup
	for i, c := range connections {
		wg.Go(func() { counts[i], errs[i] = c.askFor(status, start, d) })
	}
	wg.Wait()
	elapsed = time.Since(start)
	for _, n := range counts {
		requests += n
	}
	return requests, elapsed, errors.Join(errs...)
}

func (c *connection) askFor(status int, start time.Time, d time.Duration) (n int, err error) {
	if err := c.SetDeadline(start.Add(d + patience)); err != nil {
		return 0, err
	}
	text := []byte(request)
	for {
		got, err := c.ask(text)
		if err != nil {
			return n, err
		}
		if got != status {
			return n, fmt.Errorf("it answers %d where it should answer %d", got, status)
		}
		if n++; time.Since(start) >= d {
			return n, nil
		}
	}
}
