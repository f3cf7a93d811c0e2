package pace_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/pace"
)

// fast is a limit that no test over sockets meets.
var fast = limiter.PerSecond(1_000_000).WithBurst(1000)

func serve(t *testing.T, http2 bool, h http.HandlerFunc) (*httptest.Server, http.RoundTripper) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = http2
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, s.Client().Transport
}

func hostOf(s *httptest.Server) string { return s.Listener.Addr().String() }

// No more requests than there are slots are in flight, until bodies are closed or read to
// their end, whatever else becomes of requests.
func TestNoMoreRequestsAreInFlightThanThereAreSlots(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			t.Parallel()
			var now, most atomic.Int64
			s, base := serve(t, http2, func(w http.ResponseWriter, r *http.Request) {
				n := now.Add(1)
				defer now.Add(-1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				switch r.URL.Path {
				case "/large":
					_, _ = w.Write(make([]byte, 1<<18))
				case "/abort":
					panic(http.ErrAbortHandler)
				case "/empty":
					w.WriteHeader(http.StatusNoContent)
				case "/fail":
					w.WriteHeader(http.StatusServiceUnavailable)
				default:
					_, _ = io.WriteString(w, "hello")
				}
			})
			transport := newTransport(t, base, pace.Options{
				Rules: []pace.Rule{{Host: hostOf(s), Limit: limiter.All(fast, limiter.AtOnce(3))}},
				Retry: pace.Retry{Attempts: 3, Budget: 100},
			})
			client := &http.Client{Transport: transport}
			var group sync.WaitGroup
			for i := range 20 {
				group.Go(func() {
					for j := range 20 {
						method, path := "GET", []string{"/", "/large", "/abort", "/empty", "/fail", "/head", "/cancel"}[(i+j)%7]
						if path == "/head" {
							method = "HEAD"
						}
						ctx, cancel := context.WithCancel(context.Background())
						if path == "/cancel" {
							go cancel()
						}
						r, err := http.NewRequestWithContext(ctx, method, s.URL+path, nil)
						require.NoError(t, err)
						resp, err := client.Do(r)
						if err == nil {
							if j%3 > 0 { // else it is not read, or not wholly
								_, _ = io.CopyN(io.Discard, resp.Body, int64(j)*10_000)
							}
							require.NoError(t, resp.Body.Close())
							_ = resp.Body.Close() // twice is allowed
						}
						cancel()
					}
				})
			}
			group.Wait()
			require.LessOrEqual(t, most.Load(), int64(3)+2, "the server may see the end of one later than the client")
			stats := transport.Stats()
			require.Zero(t, stats[0].InFlight)
			require.Zero(t, stats[0].Waiting)
			for range 3 { // all slots are free
				resp, err := client.Get(s.URL)
				require.NoError(t, err)
				defer func() { require.NoError(t, resp.Body.Close()) }()
			}
		})
	}
}

// A redirect to another host meets that host's rule, and what it says cools that host down.
func TestARedirectMeetsTheRuleOfItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(r *http.Request, _ int) *http.Response {
			switch {
			case r.URL.Host == "there.example.org":
				return respond(429, "Retry-After", "3600")
			case r.URL.Path == "/there":
				return respond(302, "Location", "https://there.example.org/")
			}
			return respond(200)
		})
		var seen observed
		client := &http.Client{Transport: newTransport(t, s, pace.Options{Observer: &seen, Rules: []pace.Rule{
			{Name: "here", Host: "here.example.org", Limit: fast}, {Name: "there", Host: "there.example.org", Limit: fast},
		}})}
		resp, err := client.Get("https://here.example.org/there")
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		_, err = client.Get("https://here.example.org/there")
		var tooLong *pace.WaitError
		require.ErrorAs(t, err, &tooLong)
		require.Equal(t, "there", tooLong.Rule)
		_, err = client.Get("https://here.example.org/")
		require.NoError(t, err)
		var saw []string
		for _, o := range seen.all() {
			saw = append(saw, o.Rule+" "+o.Outcome.String())
		}
		require.Equal(t, []string{"here served", "there refused", "here served", "there too_long", "here served"}, saw)
	})
}

// Upgraded connections are written to by the body.
func TestAnUpgradedConnectionCanBeWrittenTo(t *testing.T) {
	t.Parallel()
	s, base := serve(t, false, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	})
	transport := newTransport(t, base, pace.Options{Rules: []pace.Rule{{Host: "127.0.0.1", Limit: limiter.All(fast, limiter.AtOnce(1))}}})
	r := request(t, "GET", s.URL)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp, err := transport.RoundTrip(r)
	require.NoError(t, err)
	_, err = io.WriteString(resp.Body.(io.Writer), "hello\n")
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(text))
	require.NoError(t, resp.Body.Close())
	require.Zero(t, transport.Stats()[0].InFlight)
}

// A refused upload is sent again on the same connection: the refusal's body has been read.
func TestRetriesReuseTheConnection(t *testing.T) {
	t.Parallel()
	var connections, requests atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		if requests.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(make([]byte, 10_000))
			return
		}
		_, _ = w.Write(text)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	base := http.DefaultTransport.(*http.Transport).Clone() // of the default, httptest closes connections
	client := &http.Client{Transport: newTransport(t, base, pace.Options{
		Rules: []pace.Rule{{Host: "127.0.0.1", Limit: fast}}, Retry: pace.Retry{Attempts: 3},
	})}
	defer client.CloseIdleConnections()
	r, err := http.NewRequest("PUT", s.URL, strings.NewReader("upload"))
	require.NoError(t, err)
	resp, err := client.Do(r)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "upload", string(text))
	require.EqualValues(t, 1, connections.Load())
}

func TestIdleConnectionsOfTheBaseAreClosed(t *testing.T) {
	t.Parallel()
	closed := false
	base := idler{http.DefaultTransport, &closed}
	client := &http.Client{Transport: newTransport(t, base, pace.Options{Rules: rules(fast)})}
	client.CloseIdleConnections()
	require.True(t, closed)
}

type idler struct {
	http.RoundTripper
	closed *bool
}

func (i idler) CloseIdleConnections() { *i.closed = true }

// A receiver of webhooks that redirects and refuses, in whatever way, holds no other back.
func TestNoHostOfManyHoldsOthersBack(t *testing.T) {
	for name, key := range map[string]keyfunc.Func{"no key": nil, "by host": keyfunc.Host, "by token": pace.Token} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(func(r *http.Request, _ int) *http.Response {
					switch {
					case r.URL.Path == "/":
						return respond(302, "Location", "https://"+r.URL.Host+"/there")
					case r.URL.Hostname() == "bad.example.org" || r.URL.Hostname() == "böse.example.org":
						return respond(429, "Retry-After", "86400")
					}
					return respond(200)
				})
				client := &http.Client{Transport: newTransport(t, s, pace.Options{Rules: []pace.Rule{{Host: "*", Key: key, Limit: limiter.PerSecond(10)}}})}
				for host, want := range map[string]int{"bad.example.org": 429, "böse.example.org": 429} {
					resp, err := client.Get("https://" + host + "/")
					require.NoError(t, err)
					require.Equal(t, want, resp.StatusCode)
				}
				for _, host := range []string{"good.example.org", "güt.example.org", "[2001:db8::1]"} {
					resp, err := client.Get("https://" + host + "/")
					require.NoError(t, err, host)
					require.Equal(t, 200, resp.StatusCode)
				}
				var tooLong *pace.WaitError
				_, err := client.Get("https://BAD.example.org:443/")
				require.ErrorAs(t, err, &tooLong, "it is held back itself")
			})
		})
	}
}
