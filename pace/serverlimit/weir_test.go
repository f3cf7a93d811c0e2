package serverlimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/pace/serverlimit"
)

// What is read of Weir's own responses is what Weir decided: the counts exactly, times
// rounded up to what the fields have.
func TestWeirIsReadAsItDecided(t *testing.T) {
	for name, headers := range map[string]middleware.Dialect{
		"both": middleware.HeadersBoth, "draft 11": middleware.HeadersDraft11,
		"legacy": middleware.HeadersLegacy, "none": middleware.HeadersNone,
	} {
		t.Run(name, func(t *testing.T) {
			phase.Test(t, func(*testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					var decided observed
					limits := middleware.Must(middleware.New(middleware.Config{
						Headers: middleware.Headers{Send: headers}, Rules: rules.Draw(t, "rules"), Observer: &decided,
					}))
					handler := limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
					for range rapid.IntRange(1, 30).Draw(t, "requests") {
						time.Sleep(rapid.SampledFrom(pauses).Draw(t, "pause"))
						w := httptest.NewRecorder()
						handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
						r := w.Result()
						r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat)) // as net/http does
						compare(t, headers, decided, serverlimit.Read(r))
					}
				})
			})
		})
	}
}

var pauses = []time.Duration{0, 0, 0, time.Microsecond, 300 * time.Millisecond, time.Second, 17 * time.Second}

var rules = rapid.Custom(func(t *rapid.T) []middleware.Rule {
	var rules []middleware.Rule
	for _, name := range []string{"ip", `a "quoted\" name`, "third"}[:rapid.IntRange(1, 3).Draw(t, "count")] {
		rules = append(rules, middleware.Rule{Name: name, Key: keyfunc.Global, Limit: limiter.Limit{
			Events: rapid.Int64Range(1, 6).Draw(t, "events"),
			Per:    rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Hour}).Draw(t, "per"),
			Algorithm: rapid.SampledFrom([]limiter.Algorithm{
				limiter.SlidingWindow, limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingLog,
			}).Draw(t, "algorithm"),
		}})
	}
	return rules
})

// observed is what was decided about the last request, by rule.
type observed struct {
	rules   map[string]limiter.Decision
	refused bool
}

func (o *observed) Observe(seen *middleware.Observation) {
	*o = observed{rules: map[string]limiter.Decision{}, refused: seen.Outcome == middleware.OutcomeRefused}
	for _, r := range seen.Rules {
		o.rules[r.Rule.Name] = r.Decision
	}
}

func compare(t *rapid.T, headers middleware.Dialect, decided observed, said serverlimit.Reading) {
	require.Equal(t, decided.refused, said.Limited)
	var retryAfter, next time.Duration
	for _, d := range decided.rules {
		retryAfter = max(retryAfter, d.RetryAfter)
		if d.Remaining == 0 {
			next = max(next, d.NextAfter)
		}
	}
	quotas := append([]serverlimit.Quota{said.Quota}, said.Others...)
	switch {
	case decided.refused:
		require.Equal(t, secondsUp(retryAfter), said.Wait)
	case headers == middleware.HeadersBoth || headers == middleware.HeadersDraft11:
		require.Equal(t, secondsUp(next), said.Wait)
	case headers == middleware.HeadersNone:
		require.Zero(t, said.Wait)
	}
	switch headers {
	case middleware.HeadersNone:
		require.Equal(t, []serverlimit.Quota{{Limit: serverlimit.Unsaid, Remaining: serverlimit.Unsaid}}, quotas)
	case middleware.HeadersLegacy:
		require.Len(t, quotas, 1)
		q := quotas[0]
		for _, d := range decided.rules {
			require.LessOrEqual(t, q.Remaining, d.Remaining, "the binding rule is told")
			if q.Limit == d.Limit && q.Remaining == d.Remaining && q.Reset >= d.ResetAfter && q.Reset <= d.ResetAfter+2*time.Second {
				return // both Date and the field are in whole seconds
			}
		}
		t.Fatalf("%+v is no rule of %+v", q, decided.rules)
	default:
		require.Len(t, quotas, len(decided.rules))
		for _, q := range quotas {
			d := decided.rules[q.Name]
			require.Equal(t, d.Limit, q.Limit, q.Name)
			require.Equal(t, d.Remaining, q.Remaining, q.Name)
			if !decided.refused || !d.Allowed { // beside a Retry-After, the others tell no time
				require.Equal(t, secondsUp(d.NextAfter), q.Reset, q.Name)
			}
		}
	}
}

func secondsUp(d time.Duration) time.Duration {
	if rest := d % time.Second; rest > 0 {
		return d - rest + time.Second
	}
	return d
}
