package middleware_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
)

// A client that sends a byte of its body now and then gets its refusal, and no connection for as long as it likes.
func TestABodyThatIsHeldBackDelaysNoRefusalAndKeepsNoConnection(t *testing.T) {
	limits := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "all", Mode: middleware.Deny}}})
	server := httptest.NewServer(limits.Handler(noop))
	t.Cleanup(server.Close)
	gateway := httptest.NewServer(limits.Gateway(noop, false))
	t.Cleanup(gateway.Close)
	for _, head := range []string{
		"HTTP/1.0\r\nContent-Length: 1000000000\r\n\r\n",
		"HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n",
		"HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n",
		"HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3E8\r\n",
		"HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
		"HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
	} {
		for path, want := range map[string]int{"/": 403, "/x/../": 400} {
			at := server
			if want == 400 {
				at = gateway
			}
			t.Run(path+" "+head, func(t *testing.T) {
				t.Parallel()
				c, err := net.Dial("tcp", at.Listener.Addr().String())
				require.NoError(t, err)
				defer c.Close()
				require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second))) // which only ends a broken test
				_, err = io.WriteString(c, "POST "+path+" "+head)
				require.NoError(t, err)
				if !strings.Contains(head, "Expect") {
					go func() {
						for err := error(nil); err == nil; time.Sleep(50 * time.Millisecond) {
							_, err = io.WriteString(c, "x")
						}
					}()
				}
				read := bufio.NewReader(c)
				answer, err := http.ReadResponse(read, nil)
				require.NoError(t, err)
				assert.Equal(t, want, answer.StatusCode, "no 100 is first")
				_, _ = io.Copy(io.Discard, answer.Body)
				_, err = io.Copy(io.Discard, read)
				assert.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the server closes the connection")
			})
		}
	}
}

// Some proxies pass Expect on, and send the body at once. A connection that is closed with unread bytes is reset, and
// the proxy answers 502.
func TestAClientThatSendsOnReadsItsRefusal(t *testing.T) {
	deny := []middleware.Rule{{Name: "all", Mode: middleware.Deny}}
	for name, handler := range map[string]http.Handler{
		"Weir's": limited(t, middleware.Config{Rules: deny}).Handler(noop),
		"own": limited(t, middleware.Config{Rules: deny, Refusal: middleware.Refusal{Answer: func(w http.ResponseWriter, _ *http.Request, _ middleware.Result) {
			_, _ = io.WriteString(w, "ours")
		}}}).Handler(noop),
		"Gateway's 400": limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "all", Match: middleware.Route("/a"), Mode: middleware.Deny}}}).Gateway(noop, false),
	} {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		for _, fields := range []string{"Content-Length: 5000000\r\nExpect: 100-continue", "Transfer-Encoding: chunked\r\nExpect: 100-continue", "Transfer-Encoding: chunked"} {
			t.Run(name+" "+fields, func(t *testing.T) {
				t.Parallel()
				c, err := net.Dial("tcp", server.Listener.Addr().String())
				require.NoError(t, err)
				defer c.Close()
				require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second))) // which only ends a broken test
				_, err = io.WriteString(c, "POST /x/../a HTTP/1.1\r\nHost: a\r\n"+fields+"\r\n\r\n1000\r\n"+strings.Repeat("x", 4096))
				require.NoError(t, err)
				read := bufio.NewReader(c)
				answer, err := http.ReadResponse(read, nil)
				require.NoError(t, err)
				assert.GreaterOrEqual(t, answer.StatusCode, 400)
				assert.True(t, answer.Close)
				_, err = io.WriteString(c, strings.Repeat("x", 4096)+"\r\n0\r\n\r\n"+strings.Repeat("GET /next HTTP/1.1\r\nHost: a\r\n\r\n", 1000))
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, answer.Body)
				require.NoError(t, err)
				rest, err := io.ReadAll(read)
				require.NoError(t, err, "the connection is not reset")
				assert.Empty(t, rest)
			})
		}
	}
}
