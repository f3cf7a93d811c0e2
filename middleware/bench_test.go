package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/race"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// nobody is a ResponseWriter whose own cost is a map.
type nobody struct{ header http.Header }

func (w nobody) Header() http.Header         { return w.header }
func (w nobody) Write(b []byte) (int, error) { return len(b), nil }
func (w nobody) WriteHeader(int)             {}

// plenty is never used up, and its keys never are idle.
var plenty = limiter.PerDay(30_000_000)

var noop = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// perIP is n rules with that limit for each client.
func perIP(limit limiter.Limit, n int) (rules []middleware.Rule) {
	for i := range n {
		rules = append(rules, middleware.Rule{Name: fmt.Sprint(i), Key: keyfunc.IP(), Limit: limit})
	}
	return rules
}

// A costing is a request whose price is known: the most that it allocates.
type costing struct {
	name    string
	config  middleware.Config
	request *http.Request
	most    float64
}

func costings(t testing.TB) []costing {
	once := limiter.PerDay(1)
	problem, get := header("Accept", "application/problem+json"), request()
	both := func(rules []middleware.Rule) middleware.Config {
		return middleware.Config{Headers: bothHeaders, Rules: rules}
	}
	lean := func(rules ...middleware.Rule) middleware.Config {
		return middleware.Config{Headers: middleware.Headers{Send: middleware.HeadersNone}, Rules: rules}
	}
	rule := func(edit func(*middleware.Rule)) middleware.Rule {
		r := middleware.Rule{Name: "r", Key: keyfunc.IP(), Limit: plenty}
		edit(&r)
		return r
	}
	several := rule(func(r *middleware.Rule) {
		r.Limit = limiter.All(plenty, limiter.PerHour(2_000_000), limiter.PerMinute(200_000))
	})
	slots := rule(func(r *middleware.Rule) { r.Limit = limiter.AtOnce(1000) })
	queue := rule(func(r *middleware.Rule) { r.Limit = limiter.AtOnce(1000).Queue(10, time.Second) })
	counts := rule(func(r *middleware.Rule) { r.Counts = middleware.Statuses(401) })
	with := func(rule string, limit limiter.Allowance) *http.Request {
		ctx, err := middleware.WithLimit(t.Context(), rule, limit)
		require.NoError(t, err)
		return get.WithContext(ctx)
	}
	tiers := rule(func(r *middleware.Rule) { r.Tiers = middleware.Tiers{"premium": plenty} })
	override := rule(func(r *middleware.Rule) {
		r.Overrides = map[string]middleware.Override{"192.0.2.1": {Limit: limiter.PerSecond(1_000_000)}}
	})
	banned := bansOf(t)
	require.NoError(t, banned.Ban(t.Context(), "192.0.2.1", time.Hour))
	thousand := map[string][]middleware.Rule{}
	for i := range 1000 {
		thousand[fmt.Sprintf("GET /api/resource%d/{id}/part%d", i/4, i)] = []middleware.Rule{{Name: fmt.Sprint("route ", i), Key: keyfunc.IP(), Limit: plenty}}
	}
	return []costing{
		// The request's copy, with the scope that is its context and the fields' values.
		{"allowed", middleware.Config{Rules: perIP(plenty, 1)}, get, 1},
		{"allowed, both", both(perIP(plenty, 1)), get, 1},
		{"allowed, draft", middleware.Config{Rules: perIP(plenty, 1), Headers: middleware.Headers{Send: middleware.HeadersDraft11}}, get, 1},
		{"allowed, no fields", middleware.Config{Rules: perIP(plenty, 1), Headers: middleware.Headers{Send: middleware.HeadersNone}}, get, 1},
		{"allowed, lean", lean(perIP(plenty, 1)...), get, 0},
		{"allowed, three lean", lean(perIP(plenty, 3)...), get, 0},
		{"allowed, three limits lean", lean(several), get, 0},
		{"allowed, three rules", middleware.Config{Rules: perIP(plenty, 3)}, get, 1},
		{"allowed, three rules, both", both(perIP(plenty, 3)), get, 1},
		{"allowed, eight rules", middleware.Config{Rules: perIP(plenty, 8)}, get, 2},
		{"allowed, eight rules, both", both(perIP(plenty, 8)), get, 3}, // the text is long
		{"allowed, three limits", middleware.Config{Rules: []middleware.Rule{several}}, get, 1},
		{"allowed, three limits, both", both([]middleware.Rule{several}), get, 1},
		{"allowed, observed", middleware.Config{Rules: perIP(plenty, 1), Observer: &counter{}}, get, 1},
		{"allowed, nothing is banned", middleware.Config{Rules: perIP(plenty, 1), Bans: middleware.Bans{List: bansOf(t), Keys: byIP}}, get, 1},
		{"allowed, a thousand routes", middleware.Config{ByRoute: thousand}, request(routedBy("GET /api/resource7/{id}/part30")), 1},
		{"allowed, in a tier", middleware.Config{Rules: []middleware.Rule{tiers}}, request(inTier("premium")), 1},
		{"allowed, in an unknown tier", middleware.Config{Rules: []middleware.Rule{tiers}}, request(inTier("free")), 1},
		{"allowed, an override", lean(override), get, 0},
		{"allowed, a client's own limit", lean(tiers), with("r", limiter.PerSecond(1_000_000)), 0},
		// The ending, and what sees the answer.
		{"allowed, counts answers", middleware.Config{Rules: []middleware.Rule{counts}}, get, 2},
		{"allowed, settles", middleware.Config{Rules: []middleware.Rule{rule(func(r *middleware.Rule) { r.Cost = middleware.Reserve(func(*http.Request) int64 { return 2 }) })}}, get, 1},
		{"allowed, a slot", middleware.Config{Rules: []middleware.Rule{slots}}, get, 1},
		{"allowed, a slot lean", lean(slots), get, 1},
		{"allowed, a queue lean", lean(queue), get, 1},
		// The answer.
		{"refused", middleware.Config{Rules: perIP(once, 1)}, get, 1},
		{"refused, no fields", middleware.Config{Rules: perIP(once, 1), Headers: middleware.Headers{Send: middleware.HeadersNone}}, get, 1},
		{"refused, problem", middleware.Config{Rules: perIP(once, 1)}, request(problem), 2},
		{"refused, three rules", middleware.Config{Rules: perIP(once, 3)}, get, 1},
		{"refused, three rules, both", both(perIP(once, 3)), get, 2},
		{"refused, a long Accept", middleware.Config{Rules: perIP(once, 1)}, request(header("Accept", strings.Repeat("a/B;q=0.5,", 1<<20/10))), 1},
		{"banned", middleware.Config{Rules: perIP(plenty, 1), Bans: middleware.Bans{List: banned, Keys: byIP}}, get, 1},
	}
}

func TestWhatARequestAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range costings(t) {
		h, w := plainly(t, c.config).Handler(noop), nobody{http.Header{}}
		for range 1001 { // until routes are no longer looked for
			h.ServeHTTP(w, c.request)
		}
		allocs := testing.AllocsPerRun(1000, func() {
			clear(w.header)
			h.ServeHTTP(w, c.request)
		})
		assert.LessOrEqual(t, allocs, c.most, c.name)
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, c := range costings(b) {
		b.Run(c.name, func(b *testing.B) {
			h := plainly(b, c.config).Handler(noop)
			h.ServeHTTP(nobody{http.Header{}}, c.request)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r, w := *c.request, nobody{http.Header{}}
				for pb.Next() {
					clear(w.header)
					h.ServeHTTP(w, &r)
				}
			})
		})
	}
}
