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

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/pace"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
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

// An unevenList writes a short ban later than a long one that was asked for after it.
type unevenList struct {
	bans.List
	short time.Duration
	other chan struct{} // closed when the long one is written, or cannot be
}

func (l unevenList) Ban(ctx context.Context, key string, d time.Duration, notes ...bans.Note) error {
	if d > l.short {
		defer close(l.other)
		return l.List.Ban(ctx, key, d, notes...)
	}
	select {
	case <-l.other:
	case <-time.After(100 * time.Millisecond): // as the other waits for this one, which is as well
	}
	return l.List.Ban(ctx, key, d, notes...)
}

func TestOfTwoRefusalsAtOnceTheLongerCooldownHolds(t *testing.T) {
	var n atomic.Int64
	both := make(chan struct{})
	s := tripper(func(r *http.Request) (*http.Response, error) {
		response := respond(429, "Retry-After", "2")
		if n.Add(1) == 2 {
			response = respond(429, "Retry-After", "60")
			close(both)
		}
		<-both
		response.Request = r
		return response, nil
	})
	memory, err := bans.New(bans.Options{})
	require.NoError(t, err)
	transport := pace.Must(pace.NewTransport(s, pace.Options{
		Cooldowns: unevenList{memory, 2 * time.Second, make(chan struct{})}, MaxWait: time.Second,
		Rules: []pace.Rule{{Host: "api.example.org", Limit: limiter.PerSecond(100).WithBurst(10)}},
	}))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _, _ = transport.RoundTrip(getting(t, t.Context(), there)) })
	}
	wg.Wait()
	_, err = transport.RoundTrip(getting(t, t.Context(), there))
	var tooLong *pace.WaitError
	require.ErrorAs(t, err, &tooLong)
	assert.Greater(t, tooLong.Wait, 50*time.Second)
}

// A hangingList is one in a Redis that takes no packet.
type hangingList struct{ bans.List }

func (hangingList) Ban(ctx context.Context, _ string, _ time.Duration, _ ...bans.Note) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestARefusedRequestDoesNotOutliveItsContextForOthersToKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := bans.New(bans.Options{})
		require.NoError(t, err)
		transport := pace.Must(pace.NewTransport(newServer(func(*http.Request, int) *http.Response {
			return respond(429, "Retry-After", "60")
		}), pace.Options{
			Cooldowns: hangingList{memory}, Logger: slog.New(slog.DiscardHandler),
			Rules: []pace.Rule{{Host: "api.example.org", Limit: limiter.PerSecond(100)}},
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		response, err := transport.RoundTrip(getting(t, ctx, there))
		if err == nil {
			_ = response.Body.Close()
		}
		assert.LessOrEqual(t, time.Since(began), 1100*time.Millisecond, "the context has ended after a second")
		time.Sleep(time.Minute)
	})
}

func TestNoFieldOfAServersPanicsOrStopsRequestsForLongerThanADay(t *testing.T) {
	values := []string{"", "0", "-1", "1", "NaN", "Inf", "-Inf", "1e308", "99999999999999999999999999", "-99999999999999999999", "0.0001", "1.5",
		"Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "Sat, 22 Nov 2026 10:00:00 GMT", "6m0s", "1000000h", "-5s",
		`"a";r=0;t=999999999999`, `"a";r=-1;t=-1`, `"a";r=9007199254740993;t=1`, `"a";q=0;w=0`, `"a";q=999999999999999;w=999999999999999`, "a=1, b=2", "\x00", strings.Repeat("9", 5000)}
	names := []string{"Retry-After", "Retry-After-Ms", "RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset",
		"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Reset-After", "X-Should-Retry", "Date", "Age",
		"X-RateLimit-Remaining-Tokens", "X-RateLimit-Reset-Tokens"}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			var sent []string
			s := newServer(func(*http.Request, int) *http.Response {
				fields := []string{}
				for range 1 + random.IntN(6) {
					fields = append(fields, names[random.IntN(len(names))], values[random.IntN(len(values))])
				}
				sent = fields
				return respond([]int{200, 200, 403, 429, 503}[random.IntN(5)], fields...)
			})
			transport := pace.Must(pace.NewTransport(s, pace.Options{
				MaxWait: 24 * time.Hour,
				Rules:   []pace.Rule{{Host: "api.example.org", Limit: limiter.PerMinute(100).WithBurst(10)}},
				Retry:   pace.Retry{Attempts: 2, Budget: 100},
			}))
			for range 6 {
				began := time.Now()
				response, err := transport.RoundTrip(getting(t, t.Context(), there))
				if assert.NoError(t, err, "after %q", sent) {
					_ = response.Body.Close()
				}
				if took := time.Since(began); took > 49*time.Hour {
					t.Fatalf("a request has waited for %v after %q", took, sent)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

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

func TestTokensAreInNoLogKeyOrErrorOfAFleet(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer rdb.Close()
	var written bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&written, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	list, err := redisbans.New(ctx, rdb, redisbans.Options{Logger: logger})
	require.NoError(t, err)
	const secret = "ghp_topsecret"
	third := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "100")
		w.WriteHeader(429)
	}))
	defer third.Close()
	var seen strings.Builder
	transport := pace.Must(pace.NewTransport(nil, pace.Options{
		Store: redisstore.New(rdb, redisstore.Options{}), Cooldowns: list, Logger: logger,
		Rules:    []pace.Rule{{Host: "127.0.0.1", Key: pace.Token, Limit: limiter.PerSecond(100)}},
		Observer: observer(func(o *pace.Observation) { fmt.Fprintf(&seen, "%s %s %v\n", o.Rule, o.Key, o.Err) }),
	}))
	ask := func(url string) {
		r := getting(t, t.Context(), url+"/?access_token="+secret)
		r.Header.Set("Authorization", "Bearer "+secret)
		response, err := transport.RoundTrip(r)
		if err != nil {
			assert.NotContains(t, err.Error(), secret)
			return
		}
		_ = response.Body.Close()
	}
	ask(third.URL)
	ask(third.URL)
	ask(strings.Replace(third.URL, "http://", "http://user:"+secret+"@", 1))
	ask(strings.Replace(third.URL, "127.0.0.1", "localhost", 1))
	assert.NotContains(t, seen.String(), secret)
	assert.NotContains(t, written.String(), secret)
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		assert.NotContains(t, key, secret)
		text, err := rdb.Dump(t.Context(), key).Result()
		require.NoError(t, err)
		assert.NotContains(t, text, secret)
	}
}

type observer func(*pace.Observation)

func (f observer) ObserveAttempt(o *pace.Observation) { f(o) }

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
