package routertest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
)

// refusedUploads sends bodies as proxies and clients do: all of the body first, and only then they read.
func refusedUploads(s *suite) {
	config := middleware.Config{Rules: []middleware.Rule{{Name: "all", Mode: middleware.Deny}}}
	answers := map[string]http.Handler{"Weir": s.router.Build(app(nil, Route{Path: "/", Handler: say("home"), Limits: []Limit{limits(config)}}))}
	config.Refusal.Answer = func(w http.ResponseWriter, _ *http.Request, _ middleware.Result) { _, _ = io.WriteString(w, "ours") }
	answers["Refusal.Answer"] = s.router.Build(app(nil, Route{Path: "/", Handler: say("home"), Limits: []Limit{limits(config)}}))
	if s.router.Refuses != nil {
		write := func(w http.ResponseWriter, _ *http.Request, _ middleware.Result) error {
			_, err := io.WriteString(w, "ours")
			return err
		}
		answers["OnRefused"] = s.router.Refuses(limits(config).Rules, write, func(int) {})
	}
	for name, handler := range answers {
		server := s.serveHandler(handler)
		method := "POST"
		if name == "OnRefused" {
			method = "GET" // the route that Refuses has
		}
		nginx := fmt.Sprintf("%s / HTTP/1.0\r\nHost: a\r\nConnection: close\r\n", method)
		kept := fmt.Sprintf("%s / HTTP/1.1\r\nHost: a\r\n", method)
		sizes := []int{1, 100 << 10, 1 << 20}
		if name == "Weir" {
			sizes = append(sizes, 20<<20)
		}
		for _, size := range sizes {
			for _, head := range []string{nginx, kept} {
				c := server.dial()
				_, err := fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", head, size, strings.Repeat("x", size))
				require.NoError(s, err, "%s: the server reads %d bytes: %s", name, size, head)
				require.Equal(s, 403, c.answer().StatusCode, "%s: %d bytes: %s", name, size, head)
			}
		}
		c := server.dial()
		_, err := fmt.Fprintf(c, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", kept, 4<<20, strings.Repeat("x", 4<<20))
		require.NoError(s, err, name)
		require.Equal(s, 403, c.answer().StatusCode, "%s: a chunked body", name)

		c = server.dial()
		for range 3 {
			_, err := fmt.Fprintf(c, "%sContent-Length: 100\r\n\r\n%s", kept, strings.Repeat("x", 100))
			require.NoError(s, err)
			answer := c.answer()
			require.Equal(s, 403, answer.StatusCode, "%s: the connection is kept", name)
			require.False(s, answer.Close, "%s: the connection is kept", name)
		}
	}
}

// A rawConn is a client's connection.
type rawConn struct {
	net.Conn
	server *server
	read   *bufio.Reader
}

func (s *server) dial() *rawConn {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	require.NoError(s.t, c.SetDeadline(time.Now().Add(30*time.Second))) // which only ends a broken test
	return &rawConn{c, s, bufio.NewReader(c)}
}

// answer reads the next answer, with its body.
func (c *rawConn) answer() *http.Response {
	c.server.t.Helper()
	answer, err := http.ReadResponse(c.read, nil)
	require.NoError(c.server.t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(c.server.t, err)
	require.NotEmpty(c.server.t, body)
	return answer
}
