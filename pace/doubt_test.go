package pace_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/pace"
)

// What is doubted here is that pace holds against servers, lists and callers that misbehave.

// A tripper is a RoundTripper of a test.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func getting(t testing.TB, ctx context.Context, url string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	return r
}

const there = "http://api.example.org/"

func TestARequestIsNotChangedAndItsBodyIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := tripper(func(r *http.Request) (*http.Response, error) {
			calls++
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
			response := respond(503)
			response.Request = r
			return response, nil
		})
		transport := pace.Must(pace.NewTransport(s, pace.Options{
			Rules: []pace.Rule{{Host: "api.example.org", Limit: limiter.PerSecond(10)}}, MaxWait: time.Second,
			Retry: pace.Retry{Attempts: 3, Budget: 100},
		}))
		closed := map[int]int{}
		made := 0
		body := func() io.ReadCloser {
			made++
			return &closing{Reader: strings.NewReader("hello"), closed: closed, n: made}
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, there, body())
		require.NoError(t, err)
		r.GetBody = func() (io.ReadCloser, error) { return body(), nil }
		before := r.Header.Clone()
		first := r.Body
		_, err = transport.RoundTrip(r)
		require.NoError(t, err)
		assert.Equal(t, 3, calls)
		assert.Equal(t, before, r.Header)
		assert.Same(t, first, r.Body)
		for n := 1; n <= made; n++ {
			assert.Positive(t, closed[n], "body %d of %d", n, made)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		r = r.Clone(ended)
		r.Body = body()
		_, err = transport.RoundTrip(r)
		require.Error(t, err)
		assert.Positive(t, closed[made], "of a request whose context has ended")
	})
}

type closing struct {
	io.Reader
	closed map[int]int
	n      int
}

func (c *closing) Close() error { c.closed[c.n]++; return nil }

func TestTwoHostsUnderOneQuotaArePacedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		transport := pace.Must(pace.NewTransport(s, pace.Options{
			Rules: []pace.Rule{{Name: "github", Host: "*.github.com", Key: pace.Token, Limit: limiter.PerSecond(1)}},
		}))
		for _, host := range []string{"api.github.com", "uploads.github.com", "API.GITHUB.COM:443"} {
			_, err := transport.RoundTrip(getting(t, t.Context(), "https://"+host+"/"))
			require.NoError(t, err)
		}
		assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, s.times())
	})
}

func TestManyRequestsOfManyKindsLeaveNothingBehind(t *testing.T) {
	var flaky atomic.Int64
	third := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := flaky.Add(1); {
		case n%17 == 0:
			w.WriteHeader(503)
		case n%41 == 0:
			w.Header().Set("Retry-After-Ms", "20")
			w.WriteHeader(429)
		case n%29 == 0:
			panic(http.ErrAbortHandler)
		}
		_, _ = io.Copy(w, io.LimitReader(strings.NewReader(strings.Repeat("x", 1<<16)), rand.Int64N(1<<16)))
	}))
	third.EnableHTTP2 = true
	third.StartTLS()
	defer third.Close()
	transport := pace.Must(pace.NewTransport(third.Client().Transport, pace.Options{
		MaxWait: time.Second, Logger: slog.New(slog.DiscardHandler),
		Rules: []pace.Rule{{Host: "127.0.0.1", Key: pace.Token, Limit: limiter.All(limiter.PerSecond(1000).WithBurst(100), limiter.AtOnce(8))}},
		Retry: pace.Retry{Attempts: 3, Budget: 50},
	}))
	client := &http.Client{Transport: transport}
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for i := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(300))*time.Millisecond)
				r := getting(t, ctx, third.URL)
				if i%3 == 0 {
					r, _ = http.NewRequestWithContext(ctx, http.MethodPut, third.URL, bytes.NewReader(make([]byte, 100)))
				}
				r.Header.Set("Authorization", fmt.Sprint("Bearer ", g%3))
				if response, err := client.Do(r); err == nil {
					if i%2 == 0 {
						_, _ = io.CopyN(io.Discard, response.Body, 100)
					} else {
						_, _ = io.Copy(io.Discard, response.Body)
					}
					if i%5 != 0 {
						_ = response.Body.Close()
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	client.CloseIdleConnections()
	assert.Eventually(t, func() bool {
		s := transport.Stats()[0]
		return s.Waiting == 0 && s.InFlight == 0
	}, 5*time.Second, 10*time.Millisecond, "%+v", transport.Stats())
}
