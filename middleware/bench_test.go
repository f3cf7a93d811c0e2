package middleware_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// nobody is a ResponseWriter whose own cost is a map.
type nobody struct{ header http.Header }

func (w nobody) Header() http.Header         { return w.header }
func (w nobody) Write(b []byte) (int, error) { return len(b), nil }
func (w nobody) WriteHeader(int)             {}

// plenty is never used up, and its keys never are idle.
var plenty = limiter.PerDay(30_000_000)

var noop = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func BenchmarkPerIP(b *testing.B) {
	benchmark(b, middleware.PerIP(plenty)(noop))
}

func BenchmarkRefusal(b *testing.B) {
	h := middleware.PerIP(limiter.PerDay(1))(noop)
	h.ServeHTTP(httptest.NewRecorder(), request())
	benchmark(b, h)
}

func BenchmarkRefusalOfALongAccept(b *testing.B) {
	h := middleware.PerIP(limiter.PerDay(1))(noop)
	h.ServeHTTP(httptest.NewRecorder(), request())
	r, w := request(header("Accept", strings.Repeat("a/B;q=0.5,", 1<<20/10))), nobody{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}

// perIP is n rules with that limit for each client.
func perIP(limit limiter.Limit, n int) (rules []middleware.Rule) {
	for i := range n {
		rules = append(rules, middleware.Rule{Name: fmt.Sprint(i), Key: keyfunc.IP(), Limit: limit})
	}
	return rules
}

func BenchmarkHeaders(b *testing.B) {
	for name, headers := range map[string]middleware.Headers{
		"both": middleware.HeadersBoth, "legacy": middleware.HeadersLegacy, "draft": middleware.HeadersDraft11, "none": middleware.HeadersNone,
	} {
		b.Run(name, func(b *testing.B) {
			benchmark(b, limited(b, middleware.Config{Headers: headers, Rules: perIP(plenty, 1)}).Handler(noop))
		})
		b.Run(name+"/refused", func(b *testing.B) {
			h := limited(b, middleware.Config{Headers: headers, Rules: perIP(limiter.PerDay(1), 1)}).Handler(noop)
			h.ServeHTTP(nobody{http.Header{}}, request())
			benchmark(b, h)
		})
	}
}

func BenchmarkLean(b *testing.B) {
	benchmark(b, limited(b, middleware.Config{NoResult: true, Headers: middleware.HeadersNone, Rules: perIP(plenty, 1)}).Handler(noop))
}

func BenchmarkBanned(b *testing.B) {
	list := bans.Must(bans.New(bans.Options{}))
	require.NoError(b, list.Ban(b.Context(), "192.0.2.1", time.Hour))
	benchmark(b, limited(b, middleware.Config{Bans: list, BanKeys: []keyfunc.Func{keyfunc.IP()}, Rules: perIP(plenty, 1)}).Handler(noop))
}

func BenchmarkRules(b *testing.B) {
	for _, n := range []int{1, 3, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchmark(b, limited(b, middleware.Config{Rules: perIP(plenty, n)}).Handler(noop))
		})
	}
}

func BenchmarkLimits(b *testing.B) {
	limits := []limiter.Limit{plenty, limiter.PerHour(3_000_000), limiter.PerMinute(300_000)}
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchmark(b, limited(b, middleware.Config{NoResult: true, Headers: middleware.HeadersNone,
				Rules: []middleware.Rule{{Name: "api", Key: keyfunc.IP(), Limit: limiter.Join(limits[:n], limiter.Concurrency{})}}}).Handler(noop))
		})
	}
}

func BenchmarkRoute(b *testing.B) {
	match := middleware.Route("GET /api/v1/users/{id}/posts")
	r := request()
	r.Pattern = "/api/v1/users/:id/posts"
	b.ReportAllocs()
	for b.Loop() {
		match(r)
	}
}

func benchmark(b *testing.B, h http.Handler) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r, w := request(), nobody{http.Header{}}
		for pb.Next() {
			clear(w.header)
			h.ServeHTTP(w, r)
		}
	})
}

func BenchmarkTier(b *testing.B) {
	for _, tier := range []string{"premium", "unknown"} {
		b.Run(tier, func(b *testing.B) {
			h := middleware.Must(middleware.New(middleware.Config{Logger: slog.New(slog.DiscardHandler),
				Rules: []middleware.Rule{{Name: "plan", Limit: plenty, Tiers: middleware.Tiers{"premium": plenty}}}})).Handler(noop)
			benchmark(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r.WithContext(middleware.WithTier(r.Context(), tier)))
			}))
		})
	}
}

func TestARequestOfAnUnknownTierAllocatesNoMore(t *testing.T) {
	h := middleware.Must(middleware.New(middleware.Config{Logger: slog.New(slog.DiscardHandler),
		Rules: []middleware.Rule{{Name: "plan", Limit: plenty, Tiers: middleware.Tiers{"premium": plenty}}}})).Handler(noop)
	w := nobody{http.Header{}}
	cost := func(tier string) float64 {
		r := request(inTier(tier))
		h.ServeHTTP(w, r)
		return testing.AllocsPerRun(1000, func() {
			clear(w.header)
			h.ServeHTTP(w, r)
		})
	}
	assert.Equal(t, cost("premium"), cost("free"))
}

func TestWhatARequestAllocates(t *testing.T) {
	once := limiter.PerDay(1)
	problem := header("Accept", "application/problem+json")
	for name, test := range map[string]struct {
		config  middleware.Config
		request *http.Request
		most    float64
	}{
		// The request's copy, with the scope that is its context and the fields' values.
		"allowed":              {middleware.Config{Rules: perIP(plenty, 1)}, request(), 1},
		"allowed, no fields":   {middleware.Config{Rules: perIP(plenty, 1), Headers: middleware.HeadersNone}, request(), 1},
		"allowed, no Result":   {middleware.Config{Rules: perIP(plenty, 1), NoResult: true}, request(), 1},
		"allowed, lean":        {middleware.Config{Rules: perIP(plenty, 1), NoResult: true, Headers: middleware.HeadersNone}, request(), 0},
		"allowed, three lean":  {middleware.Config{Rules: perIP(plenty, 3), NoResult: true, Headers: middleware.HeadersNone}, request(), 0},
		"allowed, three rules": {middleware.Config{Rules: perIP(plenty, 3)}, request(), 2},
		"allowed, three limits": {middleware.Config{Rules: []middleware.Rule{
			{Name: "api", Limit: limiter.All(plenty, limiter.PerHour(2_000_000), limiter.PerMinute(200_000))},
		}}, request(), 3}, // and the text of what is long to tell
		// The answer.
		"refused":              {middleware.Config{Rules: perIP(once, 1)}, request(), 1},
		"refused, problem":     {middleware.Config{Rules: perIP(once, 1)}, request(problem), 2},
		"refused, three rules": {middleware.Config{Rules: perIP(once, 3)}, request(), 2},
		"denied":               {middleware.Config{BanKeys: []keyfunc.Func{keyfunc.IP()}, DenyKey: func(string) bool { return true }}, request(), 1},
	} {
		h, w := limited(t, test.config).Handler(noop), nobody{http.Header{}}
		h.ServeHTTP(w, test.request)
		allocs := testing.AllocsPerRun(1000, func() {
			clear(w.header)
			h.ServeHTTP(w, test.request)
		})
		assert.LessOrEqual(t, allocs, test.most, name)
	}
}
