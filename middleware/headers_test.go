package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// inMinute runs f in fake time, ten seconds into a minute of its calendar.
func inMinute(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 10*time.Second)))
		f(t)
	})
}

func TestHeadersOfEachDialect(t *testing.T) {
	legacy := []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
	draft := []string{"Ratelimit", "Ratelimit-Policy"}
	tests := map[string]struct {
		headers      middleware.Dialect
		sent, absent []string
	}{
		"zero":   {middleware.Headers{}.Send, legacy, draft},
		"both":   {middleware.HeadersBoth, append(legacy, draft...), nil},
		"legacy": {middleware.HeadersLegacy, legacy, draft},
		"draft":  {middleware.HeadersDraft11, draft, legacy},
		"none":   {middleware.HeadersNone, nil, append(legacy, draft...)},
	}
	for name, test := range tests {
		phase.Run(t, name, func(t *testing.T) {
			l, err := middleware.New(middleware.Config{Results: true, Headers: middleware.Headers{Send: test.headers}, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(1), SoftAt: 80}}})
			require.NoError(t, err)
			for _, code := range []int{200, 429} {
				w := serve(l.Handler(ok), request())
				require.Equal(t, code, w.Code)
				for _, field := range test.sent {
					assert.Len(t, w.Header()[field], 1, field)
				}
				for _, field := range test.absent {
					assert.NotContains(t, w.Header(), field)
				}
				assert.Equal(t, code == 429, w.Header().Get("Retry-After") != "", "Retry-After does not depend on the dialect")
				assert.Equal(t, test.sent != nil, w.Header().Get("X-RateLimit-Warning") != "", "each but none warns")
			}
		})
	}
}

func TestRetryAfterIsRepeatedUnderThePrefixOfTheOtherFields(t *testing.T) {
	for prefix, field := range map[string]string{"": "X-RateLimit-Retry-After", "X-Rate-Limit": "X-Rate-Limit-Retry-After"} {
		phase.Run(t, prefix, func(t *testing.T) {
			list := bans.Must(bans.New(bans.Options{}))
			c := middleware.Config{
				Headers: middleware.Headers{Prefix: prefix, RetryAfter: true},
				Rules: []middleware.Rule{
					{Name: "hour", Key: keyfunc.IP(), Limit: limiter.PerHour(1)},
					{Name: "maintenance", Match: middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/down" }),
						Mode: middleware.Deny, Refusal: middleware.Refusal{RetryAfter: time.Minute}},
					{Name: "forever", Match: middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/gone" }), Mode: middleware.Deny},
				},
				Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.User}},
			}
			require.NoError(t, list.Ban(t.Context(), "user:eve", time.Hour))
			l, err := middleware.New(c)
			require.NoError(t, err)
			ask := func(path, user string) http.Header {
				r := httptest.NewRequestWithContext(keyfunc.WithUser(t.Context(), user), http.MethodGet, path, nil)
				return serve(l.Handler(ok), r).Header()
			}
			assert.Empty(t, ask("/", "ann").Values(field), "it passes")
			for _, h := range []http.Header{ask("/", "ann"), ask("/down", "ann"), ask("/", "eve")} {
				assert.NotEmpty(t, h.Get("Retry-After"))
				assert.Equal(t, h.Values("Retry-After"), h.Values(field))
			}
			h := ask("/gone", "ann")
			assert.Empty(t, h.Values("Retry-After"))
			assert.Empty(t, h.Values(field), "waiting does not help")
		})
	}
	l := newLimit(t, middleware.Rule{Name: "hour", Key: keyfunc.IP(), Limit: limiter.PerHour(1)})
	serve(l.Handler(ok), request())
	assert.Empty(t, serve(l.Handler(ok), request()).Header().Values("X-RateLimit-Retry-After"), "off by default")
}

func TestHeaderValues(t *testing.T) {
	inMinute(t, func(t *testing.T) {
		h := newLimit(t,
			middleware.Rule{Name: "min", Key: keyfunc.IP(), Limit: limiter.PerMinute(2).With(limiter.FixedWindow)},
			middleware.Rule{Name: `day "x"\`, Key: keyfunc.Global, Limit: limiter.PerDay(1000).With(limiter.TokenBucket)},
			middleware.Rule{Name: "fast", Key: keyfunc.Global, Limit: limiter.Limit{Events: 100, Per: 100 * time.Millisecond}},
		).Handler(ok)
		reset := strconv.FormatInt(time.Now().Truncate(time.Minute).Add(time.Minute).Unix(), 10)

		w := serve(h, request())
		assert.Equal(t, []string{`"min";q=2;w=60, "day \"x\"\\";q=1000;w=86400, "fast";q=100`}, w.Header()["Ratelimit-Policy"],
			"the draft has no window under a second")
		assert.Equal(t, []string{`"min";r=1;t=50, "day \"x\"\\";r=999;t=87, "fast";r=99;t=1`}, w.Header()["Ratelimit"])
		assert.Equal(t, "2", w.Header().Get("X-RateLimit-Limit"))
		assert.Equal(t, "1", w.Header().Get("X-RateLimit-Remaining"))
		assert.Equal(t, reset, w.Header().Get("X-RateLimit-Reset"))

		time.Sleep(500 * time.Microsecond)
		serve(h, request())
		w = serve(h, request())
		require.Equal(t, 429, w.Code)
		assert.Equal(t, "50", w.Header().Get("Retry-After"), "49.9995 seconds, rounded up")
		assert.Equal(t, `"min";r=0;t=50, "day \"x\"\\";r=998, "fast";r=98`, w.Header().Get("RateLimit"))
		assert.Equal(t, reset, w.Header().Get("X-RateLimit-Reset"))

		time.Sleep(49*time.Second + 999*time.Millisecond)
		w = serve(h, request())
		require.Equal(t, 429, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"), "half a millisecond is not 0")
	})
}

func TestStackedLimitersAgreeOnOneSetOfFields(t *testing.T) {
	inMinute(t, func(t *testing.T) {
		fixed := func(n int64) limiter.Limit { return limiter.PerMinute(n).With(limiter.FixedWindow) }
		outer := newLimit(t, middleware.Rule{Name: "router", Key: keyfunc.Global, Limit: fixed(10)}, middleware.Rule{Name: "twice", Key: keyfunc.Global, Limit: fixed(8)})
		inner := newLimit(t, middleware.Rule{Name: "route", Key: keyfunc.Global, Limit: fixed(3)}, middleware.Rule{Name: "twice", Key: keyfunc.Global, Limit: fixed(7)})
		innermost := newLimit(t, middleware.Rule{Name: "deep", Key: keyfunc.Global, Limit: fixed(5)})
		var seen middleware.Result
		h := outer.Handler(inner.Handler(innermost.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen, _ = middleware.FromContext(r.Context())
		}))))

		w := serve(h, request())
		assert.Equal(t, []string{`"router";q=10;w=60, "twice";q=8;w=60, "route";q=3;w=60, "twice";q=7;w=60, "deep";q=5;w=60`}, w.Header()["Ratelimit-Policy"])
		assert.Equal(t, []string{`"router";r=9;t=50, "twice";r=7;t=50, "route";r=2;t=50, "twice";r=6;t=50, "deep";r=4;t=50`}, w.Header()["Ratelimit"])
		assert.Equal(t, []string{"3"}, w.Header()["X-Ratelimit-Limit"])
		assert.Equal(t, []string{"2"}, w.Header()["X-Ratelimit-Remaining"])
		assert.Equal(t, "deep", seen.Rule, "handlers find the Result of the nearest limiter")
		assert.Len(t, seen.Rules, 1)

		serve(h, request())
		serve(h, request())
		w = serve(h, request())
		require.Equal(t, 429, w.Code)
		assert.Equal(t, []string{`"route";q=3;w=60, "twice";q=7;w=60, "router";q=10;w=60, "twice";q=8;w=60`}, w.Header()["Ratelimit-Policy"])
		assert.Equal(t, []string{`"route";r=0;t=50, "twice";r=4`}, w.Header()["Ratelimit"], "what the refusing limiter has")
		assert.Equal(t, []string{"50"}, w.Header()["Retry-After"])
	})
}

func TestOtherMembersOfTheListsStay(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		perIP := func(limit limiter.Limit) *middleware.RateLimit {
			return newLimit(t, middleware.Rule{Name: fmt.Sprint("ip:", limit.Events, "/1h"), Key: keyfunc.IP(), Limit: limit})
		}
		inner := perIP(limiter.PerHour(5)).Handler(ok)
		between := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("RateLimit-Policy", `"gateway";q=1`)
			inner.ServeHTTP(w, r)
		})
		w := serve(perIP(limiter.PerHour(9)).Handler(between), request())
		assert.Equal(t, []string{`"ip:9/1h";q=9;w=3600, "gateway";q=1, "ip:5/1h";q=5;w=3600`}, w.Header()["Ratelimit-Policy"])

		alone := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("RateLimit-Policy", `"gateway";q=1`)
			inner.ServeHTTP(w, r)
		})
		w = serve(alone, request())
		assert.Equal(t, []string{`"gateway";q=1, "ip:5/1h";q=5;w=3600`}, w.Header()["Ratelimit-Policy"])
	})
}

func TestResponsesShareNoHeaderMemory(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		h := newLimit(t, middleware.Rule{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(9)}).Handler(ok)
		first := serve(h, request()).Header()
		for field, values := range first {
			first[field] = append(values, "appended by somebody")
		}
		second := serve(h, request()).Header()
		for field, values := range second {
			assert.Len(t, values, 1, field)
			assert.NotContains(t, values, "appended by somebody")
		}
		assert.Equal(t, "8", first.Get("X-RateLimit-Remaining"))
	})
}

// waitless are the algorithms under which Check never waits.
var waitless = []limiter.Algorithm{limiter.SlidingWindow, limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingLog}

// Whatever the rules, the fields parse as Structured Fields with the draft's types,
// and a client that waits for Retry-After seconds finds the effective window over.
func TestFieldsAreStructuredAndRetryAfterIsNotBeforeTheWindow(t *testing.T) {
	phase.Test(t, func(*testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(1, 12).Draw(t, "rules")
			rules := make([]middleware.Rule, n)
			for i := range rules {
				rules[i] = middleware.Rule{
					Name: strconv.Itoa(i) + rapid.StringMatching(`[ -~]{0,8}[!-~]`).Draw(t, "name"), Key: keyfunc.Global,
					Limit: limiter.Limit{
						Events:    rapid.Int64Range(1, 8).Draw(t, "events"),
						Per:       time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "per")) * time.Microsecond,
						Algorithm: rapid.SampledFrom(waitless).Draw(t, "algorithm"),
					},
				}
			}
			l, err := middleware.New(middleware.Config{Headers: bothHeaders, Rules: rules})
			if err != nil {
				t.Skip(err)
			}
			for range 10 {
				passes(l, httptest.NewRecorder(), request())
			}
			w := httptest.NewRecorder()
			allowed := passes(l, w, request())
			policies := parseList(t, w.Header()["Ratelimit-Policy"])
			limits := parseList(t, w.Header()["Ratelimit"])
			if len(policies) != n || len(limits) != n {
				t.Fatalf("%d and %d members for %d rules", len(policies), len(limits), n)
			}
			retry, _ := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
			if !allowed && retry < 1 {
				t.Fatalf("Retry-After is %d on a refusal", retry)
			}
			for i := range limits {
				if limits[i].Value != policies[i].Value {
					t.Fatalf("the lists name different policies: %v and %v", limits[i].Value, policies[i].Value)
				}
				if q := param(t, policies[i], "q"); q < 1 {
					t.Fatalf("q=%d", q)
				}
				r := param(t, limits[i], "r")
				if r < 0 {
					t.Fatalf("r=%d", r)
				}
				if _, ok := limits[i].Params.Get("t"); ok && !allowed {
					if window := param(t, limits[i], "t"); window > retry {
						t.Fatalf("Retry-After %d points into the effective window of %d s", retry, window)
					}
				}
			}
		})
	})
}

func parseList(t *rapid.T, lines []string) (items []httpsfv.Item) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		t.Fatalf("%q is no list: %v", lines, err)
	}
	for _, member := range list {
		item := member.(httpsfv.Item)
		if _, ok := item.Value.(string); !ok {
			t.Fatalf("%v is no string", item.Value)
		}
		items = append(items, item)
	}
	return items
}

func param(t *rapid.T, item httpsfv.Item, name string) int64 {
	value, ok := item.Params.Get(name)
	n, isInteger := value.(int64)
	if !ok || !isInteger || n < 0 {
		t.Fatalf("%s of %v is %v, not an integer", name, item.Value, value)
	}
	return n
}

// The policy says how long the window is that the request is in, and Reset when that ends.
func TestThePolicyOfACalendarSaysHowLongItsWindowIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		require.NoError(t, err)
		limits := newLimit(t,
			middleware.Rule{Name: "month", Key: keyfunc.IP(), Limit: limiter.Monthly(100)},
			middleware.Rule{Name: "day", Key: keyfunc.IP(), Limit: limiter.Daily(5).In("Europe/Berlin")},
		)
		h := limits.Handler(ok)
		for _, step := range []struct {
			at         time.Time
			month, day int // seconds
			midnight   time.Time
		}{
			{time.Date(2000, 2, 28, 12, 0, 0, 0, berlin), 29 * 86400, 86400, time.Date(2000, 2, 29, 0, 0, 0, 0, berlin)},
			{time.Date(2000, 3, 26, 12, 0, 0, 0, berlin), 31 * 86400, 23 * 3600, time.Date(2000, 3, 27, 0, 0, 0, 0, berlin)},
			{time.Date(2000, 9, 30, 12, 0, 0, 0, berlin), 30 * 86400, 86400, time.Date(2000, 10, 1, 0, 0, 0, 0, berlin)},
			{time.Date(2000, 10, 29, 12, 0, 0, 0, berlin), 31 * 86400, 25 * 3600, time.Date(2000, 10, 30, 0, 0, 0, 0, berlin)},
		} {
			time.Sleep(time.Until(step.at))
			w := serve(h, request())
			assert.Equal(t, fmt.Sprintf(`"month";q=100;w=%d, "day";q=5;w=%d`, step.month, step.day), w.Header().Get("RateLimit-Policy"))
			assert.Contains(t, w.Header().Get("RateLimit"), `"day";r=4;t=43200`)
			assert.Equal(t, strconv.FormatInt(step.midnight.Unix(), 10), w.Header().Get("X-RateLimit-Reset"))
			assert.Contains(t, serve(limits.Usage(), request()).Body.String(), fmt.Sprintf(
				`"limit":"5 daily Europe/Berlin","events":5,"per":86400,"calendar":"daily Europe/Berlin","algorithm":"fixed-window","quota":5,"window":%d,"used":1,"remaining":4,"next":43200,"reset":43200`, step.day))
		}
	})
}
