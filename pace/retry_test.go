package pace_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/pace"
)

func TestWhichRequestsAreSentAgain(t *testing.T) {
	body := func(r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader("abc"))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("abc")), nil }
	}
	stream := func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("abc")) }
	field := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = values }
	}
	type options []func(*http.Request)
	for name, c := range map[string]struct {
		method string
		change options
		status int // 0: no response
		fields []string
		want   int // how often it is sent
	}{
		"GET":                                 {"GET", nil, 503, nil, 4},
		"no method":                           {"", nil, 503, nil, 4},
		"HEAD":                                {"HEAD", nil, 502, nil, 4},
		"OPTIONS":                             {"OPTIONS", nil, 504, nil, 4},
		"DELETE":                              {"DELETE", nil, 500, nil, 4},
		"QUERY":                               {"QUERY", options{body}, 503, nil, 4},
		"QUERY, refused":                      {"QUERY", options{body}, 429, nil, 4},
		"PUT":                                 {"PUT", options{body}, 503, nil, 4},
		"without a response":                  {"GET", nil, 0, nil, 4},
		"refused":                             {"GET", nil, 429, nil, 4},
		"refused for a time":                  {"GET", nil, 429, []string{"Retry-After", "1"}, 4},
		"timed out there":                     {"GET", nil, 408, nil, 4},
		"served":                              {"GET", nil, 200, nil, 1},
		"not found":                           {"GET", nil, 404, nil, 1},
		"forbidden":                           {"GET", nil, 403, nil, 1},
		"not implemented":                     {"GET", nil, 501, nil, 1},
		"the server says no":                  {"GET", nil, 503, []string{"X-Should-Retry", "false"}, 1},
		"the server says yes":                 {"GET", nil, 409, []string{"X-Should-Retry", "true"}, 4},
		"POST":                                {"POST", options{body}, 503, nil, 1},
		"POST, refused":                       {"POST", options{body}, 429, nil, 1},
		"POST, and the server says yes":       {"POST", options{body}, 503, []string{"X-Should-Retry", "true"}, 4},
		"POST with an Idempotency-Key":        {"POST", options{body, field("Idempotency-Key", "1")}, 503, nil, 4},
		"POST with an Idempotency-Key unsent": {"POST", options{body, field("Idempotency-Key")}, 503, nil, 4},
		"POST with an X-Idempotency-Key":      {"POST", options{body, field("X-Idempotency-Key", "1")}, 503, nil, 4},
		"a stream":                            {"PUT", options{stream}, 503, nil, 1},
		"a stream, and the server says yes":   {"POST", options{stream, field("Idempotency-Key", "1")}, 503, []string{"X-Should-Retry", "true"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var bodies []string
				base := round(func(r *http.Request) (*http.Response, error) {
					text := ""
					if r.Body != nil {
						b, err := io.ReadAll(r.Body)
						require.NoError(t, err)
						text = string(b)
						require.NoError(t, r.Body.Close())
					}
					bodies = append(bodies, text)
					if c.status == 0 {
						return nil, io.ErrUnexpectedEOF
					}
					return respond(c.status, c.fields...), nil
				})
				transport := newTransport(t, base, pace.Options{Rules: rules(limiter.PerSecond(10)), Retry: pace.Retry{Attempts: 4}, MaxWait: time.Minute})
				r := request(t, "GET", api)
				r.Method = c.method
				for _, change := range c.change {
					change(r)
				}
				before := r.Clone(context.Background())
				resp, err := transport.RoundTrip(r)
				if c.status == 0 {
					require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				} else {
					require.NoError(t, err)
					require.Equal(t, c.status, resp.StatusCode)
					text, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.Equal(t, "body", string(text), "the last response is as it came")
				}
				require.Len(t, bodies, c.want)
				for _, b := range bodies {
					require.Equal(t, bodies[0], b)
				}
				require.Equal(t, before.Header, r.Header, "the request is not modified")
				require.Equal(t, before.Method, r.Method)
			})
		})
	}
}

type round func(*http.Request) (*http.Response, error)

func (f round) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestARetryIsNeverBeforeRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		fields []string
		least  time.Duration
		most   time.Duration
	}{
		"refused":           {429, []string{"Retry-After", "3"}, 3 * time.Second, 3200 * time.Millisecond},
		"in milliseconds":   {429, []string{"Retry-After-Ms", "350"}, 350 * time.Millisecond, 550 * time.Millisecond},
		"a server's error":  {500, []string{"Retry-After", "7"}, 7 * time.Second, 7200 * time.Millisecond},
		"a slow request":    {408, []string{"Retry-After", "5"}, 5 * time.Second, 5200 * time.Millisecond},
		"a proxy's 503":     {503, nil, 0, 200 * time.Millisecond},
		"nothing is said":   {429, nil, time.Second, 1200 * time.Millisecond},
		"no response at al": {0, nil, 0, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[time.Duration]bool{}
			for range 30 {
				synctest.Test(t, func(t *testing.T) {
					s := newServer(func(_ *http.Request, n int) *http.Response {
						switch {
						case n > 1:
							return respond(200)
						case c.status == 0:
							return nil
						}
						return respond(c.status, c.fields...)
					})
					transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10).WithBurst(2)), Retry: pace.Retry{Attempts: 2}})
					status, err := get(t, transport, api)
					require.NoError(t, err)
					require.Equal(t, 200, status)
					require.GreaterOrEqual(t, s.times()[1], c.least)
					require.LessOrEqual(t, s.times()[1], c.most)
					seen[s.times()[1]] = true
				})
			}
			require.Greater(t, len(seen), 20, "at random times")
		})
	}
}

// A proxy's 503 says nothing of a limit: others go on.
func TestAProxysUnavailabilityIsNoCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(*http.Request, int) *http.Response { return respond(503) })
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10))})
		for range 3 {
			status, err := get(t, transport, api)
			require.NoError(t, err)
			require.Equal(t, 503, status)
		}
		require.Equal(t, []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond}, s.times())
	})
}

func TestADeadServerGetsATenthMore(t *testing.T) {
	for name, status := range map[string]int{"unavailable": 503, "gone": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(func(*http.Request, int) *http.Response {
					if status == 0 {
						return nil
					}
					return respond(status)
				})
				transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(1000)), Retry: pace.Retry{Attempts: 4}, MaxWait: time.Minute})
				const n = 1000
				for range 10 {
					together(t, n/10, transport, api)
				}
				require.LessOrEqual(t, s.count(), n*11/10+3, "and what there is at the start")
				require.GreaterOrEqual(t, s.count(), n*11/10-10, "and the budget is there to be spent")
			})
		})
	}
}

func TestTheFirstRequestsCanBeRetriedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(*http.Request, int) *http.Response { return respond(503) })
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(1000)), Retry: pace.Retry{Attempts: 4}})
		mustGet(t, transport)
		require.Equal(t, 4, s.count())
		for range 29 {
			mustGet(t, transport)
		}
		require.Equal(t, 30+3+3, s.count(), "and from then on a tenth")
	})
}

// Budgets are of a rule: a server that is down does not use up that of another.
func TestEachRuleHasItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(*http.Request, int) *http.Response { return respond(503) })
		transport := newTransport(t, s, pace.Options{Retry: pace.Retry{Attempts: 2}, Rules: []pace.Rule{
			{Host: "a.example.org", Limit: limiter.PerSecond(1000)}, {Host: "b.example.org", Limit: limiter.PerSecond(1000)},
		}})
		for _, host := range []string{"a", "a", "b"} {
			_, err := get(t, transport, "https://"+host+".example.org/")
			require.NoError(t, err)
		}
		require.Equal(t, 2+1+2, s.count())
	})
}

// A retry that would come too late is none: the refusal is returned.
func TestARetryThatDoesNotFitReturnsTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(*http.Request, int) *http.Response { return respond(429, "Retry-After", "60") })
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), Retry: pace.Retry{Attempts: 4}})
		status, err := get(t, transport, api)
		require.NoError(t, err)
		require.Equal(t, 429, status)
		require.Zero(t, time.Since(s.zero))
	})
}

// The turn after a pause may be too late, when others came meanwhile.
func TestARetryThatFindsALongQueueReturnsTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(r *http.Request, _ int) *http.Response {
			if r.URL.Path == "/fails" {
				return respond(503, "Retry-After", "2", "X-Should-Retry", "true")
			}
			return respond(200)
		})
		var seen observed
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), Retry: pace.Retry{Attempts: 4}, MaxWait: 4 * time.Second, Observer: &seen})
		done := make(chan struct{})
		go func() {
			defer close(done)
			resp, err := transport.RoundTrip(request(t, "GET", "https://api.example.org/fails"))
			require.NoError(t, err)
			require.Equal(t, 503, resp.StatusCode)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, "body", string(text))
		}()
		synctest.Wait()
		for range 60 {
			go func() { _, _ = get(t, transport, api) }()
		}
		<-done
		last := seen.all()[len(seen.all())-1]
		for _, o := range seen.all() {
			if o.Attempt == 2 {
				last = o
			}
		}
		require.Equal(t, pace.OutcomeTooLong, last.Outcome)
		time.Sleep(time.Minute)
	})
}

func TestTheContextEndsThePauseBeforeARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func(*http.Request, int) *http.Response { return respond(503, "Retry-After", "20") })
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), Retry: pace.Retry{Attempts: 4}})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		_, err := do(transport, request(t, "GET", api).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 5*time.Second, time.Since(s.zero))
	})
}

// A response with a body too long to keep is the last, and nothing of it is missing.
func TestALongBodyIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 1 << 20} {
			long := bytes.Repeat([]byte("x"), size)
			n := 0
			base := round(func(*http.Request) (*http.Response, error) {
				n++
				resp := respond(503)
				resp.Body = io.NopCloser(bytes.NewReader(long))
				return resp, nil
			})
			transport := newTransport(t, base, pace.Options{Rules: rules(limiter.PerSecond(10)), Retry: pace.Retry{Attempts: 2}})
			resp, err := transport.RoundTrip(request(t, "GET", api))
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.True(t, bytes.Equal(long, text))
			require.Equal(t, size <= 64<<10, n == 2, "%d bytes, sent %d times", size, n)
		}
	})
}

// A tracked body knows whether it was closed.
type tracked struct {
	io.Reader
	closed *atomic.Int64
}

func (b tracked) Close() error { b.closed.Add(1); return nil }

// RoundTrip closes the request's body whatever happens, and every response's that it does not
// return.
func TestBodiesAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		rule   pace.Rule
		answer func(n int) (*http.Response, error)
		before func(*pace.Transport)
		ctx    func() (context.Context, context.CancelFunc)
	}{
		"it is sent again": {answer: func(int) (*http.Response, error) { return respond(503), nil }},
		"no response":      {answer: func(int) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }},
		"it is too late": {before: func(tr *pace.Transport) {
			_, _ = do(tr, httpGet(api))
		}, rule: pace.Rule{Limit: limiter.PerHour(1)}},
		"it is canceled while it waits": {before: func(tr *pace.Transport) {
			_, _ = do(tr, httpGet(api))
		}, rule: pace.Rule{Limit: limiter.PerMinute(6)}, ctx: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}},
		"it is canceled in a pause": {answer: func(int) (*http.Response, error) { return respond(503, "Retry-After", "9"), nil }, ctx: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}},
		"the key fails": {rule: pace.Rule{Limit: limiter.PerHour(1), Key: func(*http.Request) (string, error) { return "", errors.New("no") }}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opened, closed, responses, dropped atomic.Int64
				base := round(func(r *http.Request) (*http.Response, error) {
					if r.Body != nil {
						_, _ = io.Copy(io.Discard, r.Body)
						_ = r.Body.Close()
					}
					if c.answer == nil {
						return respond(200), nil
					}
					resp, err := c.answer(1)
					if resp != nil {
						responses.Add(1)
						resp.Body = tracked{resp.Body, &dropped}
					}
					return resp, err
				})
				if c.rule.Limit == nil {
					c.rule.Limit = limiter.PerSecond(10)
				}
				c.rule.Host = "api.example.org"
				transport := newTransport(t, base, pace.Options{Rules: []pace.Rule{c.rule}, Retry: pace.Retry{Attempts: 3}})
				if c.before != nil {
					c.before(transport)
				}
				open := func() (io.ReadCloser, error) {
					opened.Add(1)
					return tracked{strings.NewReader("abc"), &closed}, nil
				}
				r := request(t, "PUT", api)
				r.Body, _ = open()
				r.GetBody = open
				body, fields := r.Body, r.Header.Clone()
				if c.ctx != nil {
					ctx, cancel := c.ctx()
					defer cancel()
					r = r.WithContext(ctx)
				}
				resp, err := transport.RoundTrip(r)
				if err == nil {
					require.NoError(t, resp.Body.Close())
				}
				require.Equal(t, opened.Load(), closed.Load())
				require.Equal(t, body, r.Body, "the request is not changed")
				require.Equal(t, fields, r.Header)
				require.Equal(t, responses.Load(), dropped.Load())
			})
		})
	}
}

func httpGet(url string) *http.Request {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		panic(err)
	}
	return r
}

// endless is a body that gives nothing, and ends with its request or when it is closed.
type endless struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func (e endless) Read([]byte) (int, error) {
	<-e.ctx.Done()
	return 0, io.ErrClosedPipe
}

func (e endless) Close() error {
	e.cancel()
	return nil
}

// A trickle is a body that takes three seconds to arrive.
type trickle struct{ io.Reader }

func (s trickle) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return s.Reader.Read(p[:min(len(p), 4)])
}

func (trickle) Close() error { return nil }

// A drip is a body of one byte each 100 ms, without end.
type drip struct{}

func (drip) Read(p []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	p[0] = '.'
	return 1, nil
}

func (drip) Close() error { return nil }

// A response with a slow body is returned within two seconds, and its body as it comes.
func TestASlowBodyHoldsNoResponseBack(t *testing.T) {
	for name, c := range map[string]struct {
		body func(*http.Request) io.ReadCloser
		want string // what can be read of it within two seconds more
	}{
		"without end": {func(r *http.Request) io.ReadCloser {
			ctx, cancel := context.WithCancel(r.Context())
			return endless{ctx, cancel}
		}, ""},
		"byte by byte":   {func(*http.Request) io.ReadCloser { return drip{} }, strings.Repeat(".", 30)},
		"four by second": {func(*http.Request) io.ReadCloser { return trickle{strings.NewReader("slow and whole")} }, "slow and whole"},
	} {
		for status, fields := range map[int][]string{503: nil, 429: {"Content-Type", "application/json"}, 403: {"X-GitHub-Request-Id", "1"}} {
			synctest.Test(t, func(t *testing.T) {
				base := round(func(r *http.Request) (*http.Response, error) {
					resp := respond(status, fields...)
					resp.Body = c.body(r)
					return resp, nil
				})
				transport := newTransport(t, base, pace.Options{Rules: rules(limiter.PerSecond(10)), Retry: pace.Retry{Attempts: 2}})
				began := time.Now()
				resp, err := transport.RoundTrip(request(t, "GET", api))
				require.NoError(t, err, name)
				require.Equal(t, status, resp.StatusCode)
				require.LessOrEqual(t, time.Since(began), 2*time.Second, name)
				text := make([]byte, len(c.want))
				_, err = io.ReadFull(resp.Body, text)
				require.NoError(t, err, name)
				require.Equal(t, c.want, string(text))
				require.LessOrEqual(t, time.Since(began), 4*time.Second, "%s: not when 16 KiB have come", name)
				require.NoError(t, resp.Body.Close())
			})
		}
	}
}
