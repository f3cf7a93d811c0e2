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
	for _, head := range []string{
		"HTTP/1.0\r\nContent-Length: 1000000000\r\n\r\n",
		"HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n",
		"HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n",
		"HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3E8\r\n",
		"HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
		"HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
	} {
		t.Run(head, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second))) // which only ends a broken test
			_, err = io.WriteString(c, "POST / "+head)
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
			assert.Equal(t, 403, answer.StatusCode, "no 100 is first")
			_, _ = io.Copy(io.Discard, answer.Body)
			_, err = io.Copy(io.Discard, read)
			assert.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the server closes the connection")
		})
	}
}
