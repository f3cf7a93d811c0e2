package routertest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/weirgo/weir/middleware"
)

// refusedUploads sends bodies as proxies and clients do: they read only when the whole body is sent.
func refusedUploads(s *suite) {
	config := middleware.Config{Rules: []middleware.Rule{{Name: "all", Mode: middleware.Deny}}}
	answers := map[string]Limit{"Weir": limits(config)}
	write := func(w http.ResponseWriter, _ *http.Request, _ middleware.Result) error {
		_, err := io.WriteString(w, "ours")
		return err
	}
	config.Refusal.Answer = func(w http.ResponseWriter, r *http.Request, result middleware.Result) {
		_ = write(w, r, result)
	}
	answers["Refusal.Answer"] = limits(config)
	if s.router.OnRefused {
		answers["OnRefused"] = Limit{Rules: limits(config).Rules, OnRefused: write}
	}
	const nginx, kept = "POST / HTTP/1.0\r\nHost: a\r\nConnection: close\r\n", "POST / HTTP/1.1\r\nHost: a\r\n"
	for name, limit := range answers {
		server := s.serve(app(nil, Route{Path: "/", Handler: say("home"), Limits: []Limit{limit}}))
		sizes := []int{1, 100 << 10, 1 << 20}
		if name == "Weir" {
			sizes = append(sizes, 20<<20)
		}
		for _, size := range sizes {
			for _, head := range []string{nginx, kept} {
				c := server.dial()
				_, err := fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", head, size, strings.Repeat("x", size))
				what := fmt.Sprintf("%s: %d bytes: %s", name, size, head)
				must(s, err, what)
				equal(s, 403, c.answer().StatusCode, what)
			}
		}
		c := server.dial()
		_, err := fmt.Fprintf(c, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
			kept, 4<<20, strings.Repeat("x", 4<<20))
		must(s, err, name+": a chunked body")
		equal(s, 403, c.answer().StatusCode, name+": a chunked body")

		c = server.dial()
		_, err = fmt.Fprintf(c, "%sContent-Length: 5000000\r\nExpect: 100-continue\r\n\r\n%s", kept, strings.Repeat("x", 4096))
		must(s, err, name+": a client that does not wait for the 100")
		answer := c.answer()
		equal(s, 403, answer.StatusCode, name+": a client that does not wait for the 100")
		equal(s, true, answer.Close, name+": a client that does not wait for the 100: closed")
		_, err = io.Copy(io.Discard, c.read)
		must(s, err, name+": a client that does not wait for the 100: the connection is not reset")

		c = server.dial()
		for range 3 {
			_, err := fmt.Fprintf(c, "%sContent-Length: 100\r\n\r\n%s", kept, strings.Repeat("x", 100))
			must(s, err, name+": the connection is kept")
			answer := c.answer()
			equal(s, 403, answer.StatusCode, name+": the connection is kept")
			equal(s, false, answer.Close, name+": the connection is kept: closed")
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
	must(s.t, err, "dial")
	s.t.Cleanup(func() { _ = c.Close() })
	must(s.t, c.SetDeadline(time.Now().Add(30*time.Second)), "deadline") // only ends a broken test
	return &rawConn{c, s, bufio.NewReader(c)}
}

// answer reads the next answer, with its body.
func (c *rawConn) answer() *http.Response {
	c.server.t.Helper()
	answer, err := http.ReadResponse(c.read, nil)
	must(c.server.t, err, "read the answer")
	body, err := io.ReadAll(answer.Body)
	must(c.server.t, err, "read the answer's body")
	if len(body) == 0 {
		c.server.t.Fatal("the answer has no body")
	}
	return answer
}
