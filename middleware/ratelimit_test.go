package middleware_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
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

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// quiet is for tests in which a warning is given and not the point.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// bothHeaders sends all fields: most tests read the fields that list the rules.
var bothHeaders = middleware.Headers{Send: middleware.HeadersBoth}

func newLimit(t *testing.T, rules ...middleware.Rule) *middleware.RateLimit {
	t.Helper()
	l, err := middleware.New(middleware.Config{Headers: bothHeaders, Rules: rules, Results: true, Logger: quiet})
	require.NoError(t, err)
	return l
}

// limited is a limiter for c whose handlers find the Result, and whose warnings are not the point.
func limited(t require.TestingT, c middleware.Config) *middleware.RateLimit {
	c.Results = true
	return plainly(t, c)
}

// plainly is limited, with Config.Results as it is in c.
func plainly(t require.TestingT, c middleware.Config) *middleware.RateLimit {
	if c.Logger == nil {
		c.Logger = quiet
	}
	l, err := middleware.New(c)
	require.NoError(t, err)
	return l
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok") })

// request is a GET of / from the documentation's address, changed by edits.
func request(edits ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, edit := range edits {
		edit(r)
	}
	return r
}

func from(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }

// routedBy is what a router does.
func routedBy(pattern string) func(*http.Request) {
	return func(r *http.Request) { r.Pattern = pattern }
}

func inTier(tier string) func(*http.Request) {
	return func(r *http.Request) { *r = *r.WithContext(middleware.WithTier(r.Context(), tier)) }
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// passes is what an adapter does that is not told how requests end.
func passes(l *middleware.RateLimit, w http.ResponseWriter, r *http.Request) bool {
	return l.Enter(w, r, nil) != nil
}

// refusal is passes, and the Result that a refusal is answered by.
func refusal(l *middleware.RateLimit, w http.ResponseWriter, r *http.Request) (result middleware.Result, refused bool) {
	entered := l.Enter(w, r, func(is middleware.Result) { result = is })
	return result, entered == nil
}

// check is what l says about r, and the Result that the next handler finds.
func check(l *middleware.RateLimit, r *http.Request) (*httptest.ResponseRecorder, middleware.Result) {
	w := httptest.NewRecorder()
	entered := l.Enter(w, r, nil)
	if entered == nil {
		return w, middleware.Result{}
	}
	result, _ := middleware.FromContext(entered.Request.Context())
	return w, result
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestWithoutAResultHandlersFindTheirOwnRequest(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for _, headers := range []middleware.Dialect{middleware.HeadersLegacy, middleware.HeadersBoth, middleware.HeadersNone} {
			var refused middleware.Result
			l := plainly(t, middleware.Config{Headers: middleware.Headers{Send: headers},
				Rules: []middleware.Rule{{Name: "r", Key: keyfunc.IP(), Limit: limiter.PerHour(2)}},
				Refusal: middleware.Refusal{Answer: func(w http.ResponseWriter, _ *http.Request, result middleware.Result) {
					refused = result
					w.WriteHeader(result.Status)
				}}})
			r := request()
			ctx, seen := r.Context(), 0
			h := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, behind *http.Request) {
				seen++
				assert.Same(t, r, behind)
				assert.Equal(t, ctx, behind.Context())
				_, found := middleware.FromContext(behind.Context())
				assert.False(t, found)
			}))
			w := serve(h, r)
			assert.Equal(t, headers != middleware.HeadersNone, w.Header().Get("X-RateLimit-Remaining") == "1")
			require.True(t, passes(l, httptest.NewRecorder(), r), "adapters")
			assert.Equal(t, ctx, r.Context())
			require.Equal(t, 429, serve(h, r).Code)
			assert.Equal(t, 1, seen)
			assert.Equal(t, "r", refused.Rule, "Answer is called as ever")
			assert.Positive(t, refused.RetryAfter)
		}
	})
}

func TestPerIPPanicsOnWhatCannotBeMeant(t *testing.T) {
	assert.PanicsWithError(t, `middleware: Rules[0] "ip:0/1m": limiter: Events is 0: it must be from 1 to 1000000000000; Mode Deny refuses all requests, and Config.Bans those of single clients`,
		func() { middleware.PerIP(limiter.PerMinute(0)) })
	assert.Panics(t, func() { middleware.PerIP(limiter.PerMinute(1), keyfunc.TrustProxies("0.0.0.0/0")) })

	_, err := middleware.NewPerIP(limiter.PerMinute(-1), keyfunc.TrustProxies("nonsense"))
	require.ErrorContains(t, err, "-1")
	require.ErrorContains(t, err, "nonsense")
}

func TestRulesAreAllOrNothing(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		store, err := limiter.NewMemory(limiter.MemoryOptions{})
		require.NoError(t, err)
		l, err := middleware.New(middleware.Config{Store: store, Logger: quiet, Rules: []middleware.Rule{
			{Name: "global", Key: keyfunc.Global, Limit: limiter.PerHour(10)},
			{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(2)},
		}})
		require.NoError(t, err)
		h := l.Handler(ok)
		for range 2 {
			require.Equal(t, 200, serve(h, request()).Code)
		}
		for range 20 {
			require.Equal(t, 429, serve(h, request()).Code)
		}

		quota, err := limiter.NewQuota("global", "", limiter.PerHour(10))
		require.NoError(t, err)
		global := []limiter.Charge{{Quota: quota}}
		require.NoError(t, store.Decide(t.Context(), global))
		assert.EqualValues(t, 8, global[0].Decision.Remaining, "20 refusals by rule ip took nothing from rule global")
	})
}

func TestTheBindingRuleIsReported(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t,
			middleware.Rule{Name: "global", Key: keyfunc.Global, Limit: limiter.PerHour(100)},
			middleware.Rule{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(2)},
			middleware.Rule{Name: "day", Key: keyfunc.Global, Limit: limiter.PerDay(2).With(limiter.SlidingLog)}, // whose day ends with no hour
		)
		var seen middleware.Result
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen, _ = middleware.FromContext(r.Context()) }))

		serve(h, request())
		assert.Equal(t, "day", seen.Rule, "of two rules with as much left, the one that resets later binds")
		assert.True(t, seen.Allowed)
		assert.EqualValues(t, 1, seen.Remaining)
		require.Len(t, seen.Rules, 3)
		assert.Equal(t, "global", seen.Rules[0].Rule.Name)
		assert.EqualValues(t, 99, seen.Rules[0].Remaining)

		serve(h, request())
		w := serve(h, request(header("Accept", "application/problem+json")))
		require.Equal(t, 429, w.Code)
		assert.Contains(t, w.Body.String(), `"violated-policies":["ip","day"]`)
	})
}

func TestARequestWithoutAKeyIsNeverUnlimited(t *testing.T) {
	missing := keyfunc.Func(func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey })
	failing := keyfunc.Func(func(*http.Request) (string, error) { return "", errors.New("the database is down") })
	nothing := keyfunc.Func(func(*http.Request) (string, error) { return "", nil })
	tests := []struct {
		name  string
		key   keyfunc.Func
		noKey middleware.NoKey
		codes []int
	}{
		{"missing shares a counter", missing, middleware.NoKeyShare, []int{200, 429}},
		{"failing shares a counter", failing, middleware.NoKeyShare, []int{200, 429}},
		{"empty shares a counter", nothing, middleware.NoKeyShare, []int{200, 429}},
		{"missing is skipped when that is chosen", missing, middleware.NoKeySkip, []int{200, 200}},
		{"empty is skipped when that is chosen", nothing, middleware.NoKeySkip, []int{200, 200}},
		{"failing is not skipped", failing, middleware.NoKeySkip, []int{200, 429}},
		{"missing is a bad request", missing, middleware.NoKeyBadRequest, []int{400, 400}},
		{"failing is no pass where missing is none", failing, middleware.NoKeyBadRequest, []int{503}},
		{"missing is unauthorized", missing, middleware.NoKeyUnauthorized, []int{401}},
		{"failing is not unauthorized", failing, middleware.NoKeyUnauthorized, []int{503}},
	}
	for _, test := range tests {
		phase.Run(t, test.name, func(t *testing.T) {
			h := newLimit(t, middleware.Rule{Name: "r", Key: test.key, NoKey: test.noKey, Limit: limiter.PerHour(1)}).Handler(ok)
			for i, code := range test.codes {
				w := serve(h, request(from([]string{"192.0.2.1:1", "192.0.2.2:1"}[i])))
				require.Equal(t, code, w.Code, "request %d", i)
				if code == 401 {
					assert.Equal(t, "Key", w.Header().Get("WWW-Authenticate"))
				}
				if code >= 400 {
					assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
				}
				assert.NotContains(t, w.Body.String(), "database", "errors are not the client's business")
			}
		})
	}
}

func TestAnUnreadablePeerIsStillLimited(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for _, addr := range []string{"", "@", "garbage", "1.2.3.4", "[::1", "256.1.1.1:80"} {
			h := middleware.PerIP(limiter.PerHour(1))(ok)
			require.Equal(t, 200, serve(h, request(from(addr))).Code, "%q", addr)
			require.Equal(t, 429, serve(h, request(from(addr))).Code, "RemoteAddr %q is not unlimited", addr)
		}
	})
}

func TestAbsurdRequestsAreCounted(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		h := newLimit(t, middleware.Rule{Name: "key", Key: keyfunc.Header("X-Key"), Limit: limiter.PerHour(1)}).Handler(ok)
		long := strings.Repeat("k", 64<<10)
		require.Equal(t, 200, serve(h, request(header("X-Key", long+"1"))).Code)
		require.Equal(t, 200, serve(h, request(header("X-Key", long+"2"))).Code, "keys are not cut off")
		require.Equal(t, 429, serve(h, request(header("X-Key", long+"1"))).Code)

		bare := &http.Request{Method: http.MethodGet, RemoteAddr: "192.0.2.9:1"} // no URL, no Header
		h = newLimit(t, middleware.Rule{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(1), Match: nil}).Handler(ok)
		require.Equal(t, 200, serve(h, bare).Code)
		require.Equal(t, 429, serve(h, bare).Code)

		mux := http.NewServeMux()
		mux.Handle("/", ok)
		routed := newLimit(t, middleware.Rule{Name: "r", Key: keyfunc.Global, Match: middleware.Route("/"), Limit: limiter.PerHour(1)})
		w := httptest.NewRecorder()
		require.True(t, passes(routed, w, bare), "a request without a URL has no route")
	})
}

func TestCosts(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		cost := int64(0)
		h := newLimit(t, middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(10),
			Cost: middleware.CostOf(func(*http.Request) int64 { return cost })}).Handler(ok)
		remaining := func() string { return serve(h, request()).Header().Get("X-RateLimit-Remaining") }

		cost = 4
		assert.Equal(t, "6", remaining())
		for _, cost = range []int64{0, -1, -1 << 63} {
			before := remaining()
			assert.NotEqual(t, before, remaining(), "cost %d counts as 1", cost)
		}
		cost = 11
		w := serve(h, request())
		assert.Equal(t, 429, w.Code)
		assert.NotContains(t, w.Header(), "Retry-After", "waiting does not help")
		assert.Contains(t, w.Body.String(), "more than the limit ever allows")
		assert.NotContains(t, w.Body.String(), "retry_after")
		cost = 1<<63 - 1
		assert.Equal(t, 429, serve(h, request()).Code)
	})
}

func TestUnitsAreWhatEveryRequestCosts(t *testing.T) {
	l := newLimit(t, middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(10), Cost: middleware.Units(4), Tiers: middleware.Tiers{"gold": limiter.PerHour(4)}})
	require.EqualValues(t, 4, l.Explain(request()).Rules[0].Cost)
	for _, want := range []int{200, 200, 429} {
		assert.Equal(t, want, serve(l.Handler(ok), request()).Code)
	}
	assert.Equal(t, 200, serve(l.Handler(ok), request(inTier("gold"))).Code, "all of a limit is not more than it")
	assert.Equal(t, 429, serve(l.Handler(ok), request(inTier("gold"))).Code)
}

func TestALeakyBucketMakesRequestsWaitForTheirTurn(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		h := newLimit(t, middleware.Rule{Name: "q", Key: keyfunc.Global, Limit: limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(2)}).Handler(ok)
		start := time.Now()
		type served struct {
			code  int
			after time.Duration
		}
		results := make(chan served, 4)
		for range 4 {
			go func() {
				code := serve(h, request()).Code
				results <- served{code, time.Since(start)}
			}()
			synctest.Wait() // until it is served, refused, or waiting
		}
		assert.Equal(t, served{200, 0}, <-results)
		assert.Equal(t, served{429, 0}, <-results, "the queue of 2 is full: refused at once")
		assert.Equal(t, served{200, time.Second}, <-results)
		assert.Equal(t, served{200, 2 * time.Second}, <-results)
	})
}

func TestClientsThatLeaveTheQueueLetNoOthersPassTogether(t *testing.T) {
	for name, config := range map[string]middleware.Config{
		"plain":    {Rules: []middleware.Rule{{}}},
		"overload": {Rules: []middleware.Rule{{}}, Overload: roomFor(1000)},
	} {
		t.Run(name, func(t *testing.T) {
			phase.Test(t, func(t *testing.T) {
				config.Rules[0].Name, config.Rules[0].Key, config.Rules[0].Limit = "q", keyfunc.Global, limiter.PerSecond(20).With(limiter.LeakyBucket)
				l, err := middleware.New(config)
				require.NoError(t, err)
				times := make(chan time.Time, 400)
				h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { times <- time.Now() }))
				var meant sync.WaitGroup
				for rest := range 18 {
					ctx, leave := context.WithCancel(t.Context())
					var leaving sync.WaitGroup
					for range 18 - rest {
						leaving.Go(func() { serve(h, request().WithContext(ctx)) })
					}
					synctest.Wait()
					meant.Go(func() { serve(h, request()) })
					synctest.Wait()
					leave()
					leaving.Wait()
					time.Sleep(50 * time.Millisecond)
				}
				meant.Wait()
				require.Greater(t, len(times), 1)
				for last := <-times; len(times) > 0; {
					next := <-times
					assert.GreaterOrEqual(t, next.Sub(last), 50*time.Millisecond)
					last = next
				}
			})
		})
	}
}

// A distantStore is as far away as a server, so that requests decide at the same time.
type distantStore struct{ limiter.Store }

func (d distantStore) Decide(ctx context.Context, charges []limiter.Charge) error {
	defer time.Sleep(time.Millisecond)
	time.Sleep(time.Millisecond)
	return d.Store.Decide(ctx, charges)
}

func (d distantStore) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	time.Sleep(time.Millisecond)
	return d.Store.Settle(ctx, settlements)
}

func TestRequestsThatCannotWaitForTheirTurnsDoNotFillTheQueue(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Store: distantStore{limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}, Rules: []middleware.Rule{
			{Name: "ip", Key: keyfunc.Global, Limit: limiter.PerHour(100_000)},
			{Name: "queue", Key: keyfunc.Global, Limit: limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(100)},
		}})
		h := l.Handler(ok)
		var served, refused atomic.Int64
		var clients sync.WaitGroup
		for range 30 {
			clients.Go(func() {
				for range 100 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					code := serve(h, request().WithContext(ctx)).Code
					cancel()
					switch code {
					case 200:
						served.Add(1)
					case 503:
						time.Sleep(100 * time.Millisecond)
					case 429:
						refused.Add(1)
					}
				}
			})
		}
		began := time.Now()
		clients.Wait()
		assert.GreaterOrEqual(t, served.Load(), int64(9*time.Since(began)/time.Second), "ten a second leave")
		assert.Zero(t, refused.Load(), "the queue is not full")
	})
}

func TestALimitRefusesHoweverLongTheQueueIs(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		h := limited(t, middleware.Config{Rules: []middleware.Rule{
			{Name: "few", Key: keyfunc.Global, Limit: limiter.PerHour(2)},
			{Name: "queue", Key: keyfunc.Global, Limit: limiter.PerMinute(1).With(limiter.LeakyBucket).WithBurst(5)},
		}}).Handler(ok)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Equal(t, 200, serve(h, request()).Code)
		late := serve(h, request().WithContext(ctx))
		assert.Equal(t, 503, late.Code)
		assert.Equal(t, "59", late.Header().Get("Retry-After"), "then its turn would be a second away")
		assert.Equal(t, 200, serve(h, request()).Code, "the one before took nothing")
		assert.Equal(t, 429, serve(h, request().WithContext(ctx)).Code)
	})
}

func TestHandlerPanicsWithoutANextHandler(t *testing.T) {
	require.PanicsWithValue(t, "middleware: Handler needs a next handler", func() { middleware.PerIP(limiter.PerHour(1))(nil) })
}

// brokenStore cannot decide.
type brokenStore struct{ limiter.Store }

func (brokenStore) Decide(context.Context, []limiter.Charge) error {
	return errors.New("connection refused to 10.0.0.7")
}

func TestAStoreThatCannotDecideIsNeither429NorAPass(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l, err := middleware.New(middleware.Config{Store: brokenStore{}, Logger: quiet,
			Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}})
		require.NoError(t, err)
		w := serve(l.Handler(ok), request(header("Accept", "application/problem+json")))
		assert.Equal(t, 503, w.Code)
		assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		assert.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
		"title":"Temporary Reduced Capacity","status":503,
		"detail":"The service is temporarily unable to take this request. Try again in 1 second."}`, w.Body.String())
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		assert.Empty(t, w.Header().Get("X-RateLimit-Limit"))
	})
}

func TestAroundAServeMuxRoutesAreKnown(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.Handle("GET /users/{id}", ok)
		mux.Handle("POST /users/{id}", ok)
		mux.Handle("/", ok)
		l := newLimit(t, middleware.Rule{Name: "read", Key: keyfunc.Global, Match: middleware.Route("GET /users/{name}"), Limit: limiter.PerHour(2)})
		h := l.Handler(mux)
		do := func(method, path string) int {
			r := httptest.NewRequest(method, path, nil)
			code := serve(h, r).Code
			assert.NotEmpty(t, r.Pattern, "who is outside knows the route, as without a limiter")
			return code
		}
		assert.Equal(t, 200, do("GET", "/users/1"))
		assert.Equal(t, 200, do("HEAD", "/users/2"), "HEAD does the work of GET")
		assert.Equal(t, 429, do("GET", "/users/3"))
		assert.Equal(t, 200, do("POST", "/users/3"))
		assert.Equal(t, 200, do("GET", "/users"))

		r := request()
		serve(middleware.PerIP(plenty)(mux), r)
		assert.Equal(t, "/", r.Pattern, "also if no rule needs the route")
	})
}
