package promlimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/promlimit"
)

// nobody is a ResponseWriter whose own cost is a map.
type nobody struct{ header http.Header }

func (w nobody) Header() http.Header         { return w.header }
func (w nobody) Write(b []byte) (int, error) { return len(b), nil }
func (w nobody) WriteHeader(int)             {}

var noop = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func request() *http.Request { return httptest.NewRequest(http.MethodGet, "/", nil) }

func limited(t testing.TB, o middleware.Observer, limits ...limiter.Limit) http.Handler {
	c := middleware.Config{Observer: o}
	for i, l := range limits {
		c.Rules = append(c.Rules, middleware.Rule{Name: string(rune('a' + i)), Key: keyfunc.IP(), Limit: l})
	}
	l := middleware.Must(middleware.New(c))
	return l.Handler(noop)
}

// BenchmarkObserve is the metrics' part alone.
func BenchmarkObserve(b *testing.B) {
	metrics := promlimit.Must(promlimit.New(promlimit.Options{}))
	o := observation(b, "ip", "")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		own := *o
		for pb.Next() {
			metrics.Observe(&own)
		}
	})
}

// observation is of a request that a rule allowed.
func observation(t testing.TB, rule, tier string) *middleware.Observation {
	return &middleware.Observation{
		Request: request(), Outcome: middleware.OutcomeAllowed,
		Rules: []middleware.RuleResult{{Rule: &middleware.RuleInfo{Name: rule, Tier: tier}, Key: "192.0.2.1", Cost: 1, Decision: limiter.Decision{Allowed: true}}},
	}
}

func TestToCountAllocatesNothing(t *testing.T) {
	metrics := promlimit.Must(promlimit.New(promlimit.Options{}))
	o := observation(t, "ip", "")
	o.Elapsed = 1
	metrics.Observe(o)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { metrics.Observe(o) }))

	h := limited(t, metrics, limiter.PerDay(30_000_000))
	r, w := request(), nobody{http.Header{}}
	h.ServeHTTP(w, r)
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}), 2.0, "as without metrics")
}
