package middleware_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// statuses are what n requests, one after the other, are answered.
func statuses(h http.Handler, n int, edits ...func(*http.Request)) (codes []int) {
	for range n {
		codes = append(codes, serve(h, request(edits...)).Code)
	}
	return codes
}

func TestALimiterAroundItselfChargesOnce(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		heard := &recorder{}
		l := limited(t, middleware.Config{Logger: logger, Observer: heard, Rules: []middleware.Rule{
			{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(4)}, {Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(100)},
		}})
		var seen middleware.Result
		h := l.Handler(l.Handler(l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen, _ = middleware.FromContext(r.Context())
		}))))
		assert.Equal(t, []int{200, 200, 200, 200, 429, 429}, statuses(h, 6))
		assert.Len(t, seen.Rules, 2, "each rule once")
		assert.Zero(t, seen.Remaining)
		assert.Len(t, heard.seen, 6, "each request once")
		assert.Empty(t, log.String(), "nothing is wrong with it")
	})
}

func TestRulesThatARequestMeetsFurtherInsideStillCount(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(5)},
			middleware.Rule{Name: "login", Key: keyfunc.Global, Match: middleware.Route("POST /login"), Limit: limiter.PerHour(2)})
		mux := http.NewServeMux()
		mux.Handle("POST /login", l.Handler(ok))
		mux.Handle("/", l.Handler(ok))
		between := http.HandlerFunc(mux.ServeHTTP) // the limiter outside does not know the route
		h := l.Handler(between)
		login := func(r *http.Request) { r.Method, r.URL.Path = "POST", "/login" }
		assert.Equal(t, []int{200, 200, 429}, statuses(h, 3, login))
		assert.Equal(t, []int{200, 200, 429}, statuses(h, 3), "the refusal inside took what it was charged outside")
	})
}

// A client that signs in between is another one inside.
func TestAnotherKeyFurtherInsideStillCounts(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "r", Key: keyfunc.First(keyfunc.User, keyfunc.IP()), Limit: limiter.PerHour(2)})
		inside := l.Handler(ok)
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inside.ServeHTTP(w, r.WithContext(keyfunc.WithUser(r.Context(), r.Header.Get("X-User"))))
		}))
		require.Equal(t, []int{200, 200, 429}, statuses(h, 3, header("X-User", "ann")))
		require.Equal(t, []int{429}, statuses(h, 1, header("X-User", "ben")), "the address has none left")
		require.Equal(t, []int{429}, statuses(h, 1, header("X-User", "ann"), from("192.0.2.9:1")), "and neither has ann")
	})
}

func TestASubRequestOfAHandlerCounts(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		l := limited(t, middleware.Config{Logger: logger, Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(10)}}})
		var h http.Handler
		h = l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/batch" {
				return
			}
			for range 4 {
				sub, err := http.NewRequestWithContext(r.Context(), "GET", "/", nil)
				require.NoError(t, err)
				sub.RemoteAddr = r.RemoteAddr
				h.ServeHTTP(w, sub)
			}
		}))
		batch := func(r *http.Request) { r.URL.Path = "/batch" }
		require.Equal(t, []int{200, 200, 429}, statuses(h, 3, batch))
		assert.Empty(t, log.String(), "it is meant")
	})
}

// It can't be told from a request that a handler made, so it is counted rather than not.
func TestAChangedURLBetweenCountsTwiceAndIsSaidOnce(t *testing.T) {
	for name, between := range map[string]func(http.Handler) http.Handler{
		"StripPrefix": func(h http.Handler) http.Handler { return http.StripPrefix("/v1", h) },
		"Clone": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r.Clone(r.Context())) })
		},
	} {
		phase.Run(t, name, func(t *testing.T) {
			logger, log := logged()
			l := limited(t, middleware.Config{Logger: logger, Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(4)}}})
			h := l.Handler(between(l.Handler(ok)))
			assert.Equal(t, []int{200, 200, 429, 429}, statuses(h, 4, func(r *http.Request) { r.URL.Path = "/v1/x" }))
			assert.Equal(t, 1, strings.Count(log.String(), "code=weir-counted-twice"))
			assert.Contains(t, log.String(), "rule=all")
		})
	}
}

func TestTwoLimitersStillCountEach(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		store, err := limiter.NewMemory(limiter.MemoryOptions{})
		require.NoError(t, err)
		c := middleware.Config{Store: store, Rules: []middleware.Rule{{Name: "shared", Key: keyfunc.Global, Limit: limiter.PerHour(4)}}}
		h := limited(t, c).Handler(limited(t, c).Handler(ok))
		assert.Equal(t, []int{200, 200, 429}, statuses(h, 3), "it is said that they share a counter")
	})
}

func TestWhatARequestCostsMoreInsideIsCharged(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(10), Cost: middleware.CostOf(func(r *http.Request) int64 { return int64(len(r.Header.Get("X-Cost"))) })})
		costs := func(inside string) http.Handler {
			next := l.Handler(ok)
			return l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("X-Cost", inside)
				next.ServeHTTP(w, r)
			}))
		}
		w := serve(costs("xxxx"), request(header("X-Cost", "xx")))
		assert.Equal(t, "6", w.Header().Get("X-RateLimit-Remaining"))
		w = serve(costs("x"), request(header("X-Cost", "xx")))
		assert.Equal(t, "4", w.Header().Get("X-RateLimit-Remaining"), "and nothing is given back")
	})
}

func TestARuleThatChangesMeanwhileChargesOnce(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		config := func(limit int64) middleware.Config {
			return middleware.Config{Logger: quiet, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(limit)}}}
		}
		l := limited(t, config(10))
		inside := l.Handler(ok)
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			require.NoError(t, l.Reconfigure(config(20)))
			inside.ServeHTTP(w, r)
		}))
		serve(h, request())
		left, err := l.Peek(t.Context(), "r", "")
		require.NoError(t, err)
		assert.EqualValues(t, 19, left[0].Remaining)
	})
}

// However often, in whatever place and by whatever copies of the request without another
// URL it is met: a limiter admits what it would alone.
func TestALimiterAdmitsTheSameHoweverOftenItIsMet(t *testing.T) {
	synctest.Test(t, func(*testing.T) { rapid.Check(t, admitsTheSame) })
}

func admitsTheSame(t *rapid.T) {
	rules := []middleware.Rule{
		{Name: "all", Key: keyfunc.Global, Limit: limiter.PerDay(rapid.Int64Range(1, 12).Draw(t, "all"))},
		{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerDay(rapid.Int64Range(1, 6).Draw(t, "ip")),
			Mode: inShadow(rapid.Bool().Draw(t, "shadow"))},
		{Name: "user", Key: keyfunc.User, Limit: limiter.PerDay(3), NoKey: middleware.NoKey(rapid.IntRange(0, 3).Draw(t, "no key")),
			Tiers: middleware.Tiers{"gold": limiter.PerDay(5)}},
	}
	once, often := limited(t, middleware.Config{Rules: rules}), limited(t, middleware.Config{Rules: rules})
	wrapped := often.Handler(ok)
	for range rapid.IntRange(1, 3).Draw(t, "times") {
		inside := wrapped
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			wrapped = often.Handler(inside)
		case 1:
			wrapped = often.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inside.ServeHTTP(w, r.WithContext(r.Context()))
			}))
		case 2:
			wrapped = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if passes(often, w, r) {
					inside.ServeHTTP(w, r)
				}
			})
		}
	}
	alone := once.Handler(ok)
	for range 30 {
		edits := []func(*http.Request){from(rapid.SampledFrom([]string{"192.0.2.1:1", "192.0.2.2:1"}).Draw(t, "peer"))}
		if rapid.Bool().Draw(t, "gold") {
			edits = append(edits, inTier("gold"))
		}
		if rapid.Bool().Draw(t, "signed in") {
			edits = append(edits, func(r *http.Request) { *r = *r.WithContext(keyfunc.WithUser(r.Context(), "ann")) })
		}
		want, got := serve(alone, request(edits...)), serve(wrapped, request(edits...))
		require.Equal(t, want.Code, got.Code)
		for _, field := range []string{"Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Remaining", "Retry-After"} {
			require.Equal(t, want.Header()[field], got.Header()[field])
		}
	}
}

func TestASecondMeetingAllocatesNothing(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(100_000)})
		h := l.Handler(l.Handler(noop))
		r, w := request(), nobody{http.Header{}}
		h.ServeHTTP(w, r)
		assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
			clear(w.header)
			h.ServeHTTP(w, r)
		}), 2.0)
	})
}
