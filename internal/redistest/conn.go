package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A conn sends commands of the test's own, in RESP2.
type conn struct {
	net.Conn
	answers *bufio.Reader
}

func (s *Server) open() (*conn, error) {
	c, err := net.DialTimeout("tcp", s.Addr, Patience)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReader(c)}, nil
}

// do returns the answer as text, an array with a line for each element.
func (c *conn) do(command ...string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(Patience)); err != nil {
		return "", err
	}
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(c, request.String()); err != nil {
		return "", err
	}
	return c.answer()
}

func (c *conn) answer() (string, error) {
	line, err := c.answers.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case '-':
		return "", errors.New(rest)
	case '+', ':':
		return rest, nil
	}
	n, err := strconv.Atoi(rest)
	switch {
	case err != nil:
		return "", fmt.Errorf("redistest: the answer %q is no RESP2", line)
	case n < 0: // null
		return "", nil
	case kind == '$':
		text := make([]byte, n+len("\r\n"))
		_, err := io.ReadFull(c.answers, text)
		return string(text[:n]), err
	}
	lines := make([]string, n)
	var failed error // the whole array is read, as the connection is used again
	for i := range lines {
		if lines[i], err = c.answer(); err != nil {
			failed = err
		}
	}
	return strings.Join(lines, "\n"), failed
}
