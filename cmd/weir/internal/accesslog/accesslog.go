// Package accesslog reads the access logs of web servers and proxies, in the order in which
// requests came.
package accesslog

import (
	"net/url"
	"strings"
	"time"
)

// An Entry is one request of a log. Text that the log does not have is empty.
type Entry struct {
	// At is when the request came, in microseconds since 1970. If the server logs the time of its
	// answer and the duration, At is the difference.
	At int64

	Client  string // the TCP peer's address without port, or UnixSocket
	Method  string
	Target  string // path and query, as they were sent
	Host    string
	User    string
	Tier    string
	Status  int           // 0: not in the log
	Took    time.Duration // 0: not in the log
	Headers []string      // the values of Reader.Headers, lines of one header joined by \n; nil: the line has none

	// Chain, if not empty, is a list of addresses that the log has in the client's place, as some
	// servers log X-Forwarded-For there. It is the value of that header too, and Client is its last
	// address: who the client is depends on which of them are proxies.
	Chain string

	line int64
}

// UnixSocket is the Client of a request that came over a unix socket.
const UnixSocket = "@"

// Time returns At as a time.
func (e *Entry) Time() time.Time { return time.UnixMicro(e.At) }

// URL writes the target into u as a server reads it.
func (e *Entry) URL(u *url.URL) {
	path, query, _ := strings.Cut(e.Target, "?")
	if strings.HasPrefix(path, "/") && strings.IndexByte(path, '%') < 0 {
		*u = url.URL{Path: path, RawQuery: query}
	} else if parsed, err := url.ParseRequestURI(e.Target); err == nil {
		*u = *parsed
	} else {
		*u = url.URL{Path: e.Target}
	}
}
