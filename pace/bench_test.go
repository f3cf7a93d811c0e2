package pace_test

import (
	"net/http"
	"testing"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/pace"
)

// nothing answers at once.
func nothing() http.RoundTripper {
	response := &http.Response{StatusCode: 200, Header: http.Header{
		"Date": {"Mon, 13 Jun 2022 11:48:53 GMT"}, "Content-Type": {"application/json"}, "Cache-Control": {"private"}, "Vary": {"Accept"},
	}, Body: http.NoBody}
	return round(func(*http.Request) (*http.Response, error) {
		r := *response
		return &r, nil
	})
}

// What a request costs that does not wait, beside one decision of the store in memory.
func BenchmarkRoundTrip(b *testing.B) {
	wide := limiter.PerSecond(1_000_000_000 / 1000).WithBurst(1_000_000_000)
	rule := pace.Rule{Host: "api.example.org", Limit: wide}
	keyed := rule
	keyed.Key = pace.Token
	slotted := keyed
	slotted.Limit = limiter.All(slotted.Limit, limiter.AtOnce(1000))
	newOne := func(r pace.Rule, o pace.Options) http.RoundTripper {
		o.Rules = []pace.Rule{r}
		return newTransport(b, nothing(), o)
	}
	for name, transport := range map[string]http.RoundTripper{
		"bare":     nothing(),
		"paced":    newOne(rule, pace.Options{}),
		"by token": newOne(keyed, pace.Options{}),
		"slots":    newOne(slotted, pace.Options{}),
		"observed": newOne(keyed, pace.Options{Observer: deaf{}, Retry: pace.Retry{Attempts: 3}}),
	} {
		b.Run(name, func(b *testing.B) {
			r := request(b, "GET", api)
			r.Header.Set("Authorization", "Bearer 0123456789abcdef0123456789abcdef")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := transport.RoundTrip(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("decision", func(b *testing.B) {
		l := limiter.Must(limiter.New(limiter.Config{Name: "a", Limit: wide}))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.Allow(b.Context(), "0123456789abcdef012345"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

type deaf struct{}

func (deaf) ObserveAttempt(*pace.Observation) {}

func TestARequestThatDoesNotWaitAllocatesLittle(t *testing.T) {
	bare, rule := nothing(), pace.Rule{Host: "api.example.org", Limit: fast, Key: pace.Token}
	transport := newTransport(t, bare, pace.Options{Rules: []pace.Rule{rule}, Retry: pace.Retry{Attempts: 3}, Observer: deaf{}})
	r := request(t, "GET", api)
	r.Header.Set("Authorization", "Bearer 0123456789abcdef0123456789abcdef")
	of := func(transport http.RoundTripper) float64 {
		return testing.AllocsPerRun(100, func() { _, _ = transport.RoundTrip(r) })
	}
	if n := of(transport) - of(bare); n > 3 { // what is asked of the store, and the Observation
		t.Errorf("%v allocations more than the bare transport", n)
	}
}
