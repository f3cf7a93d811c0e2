package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// recorder keeps what it observed, copied.
type recorder struct {
	mu   sync.Mutex
	seen []middleware.Observation
}

func (r *recorder) Observe(o *middleware.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	copied := *o
	copied.Rules = slices.Clone(o.Rules)
	r.seen = append(r.seen, copied)
}

func (r *recorder) last(t *testing.T) middleware.Observation {
	require.NotEmpty(t, r.seen)
	return r.seen[len(r.seen)-1]
}

func TestTheObserverHearsWhatBecomesOfARequest(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list, err := bans.New(bans.Options{})
		require.NoError(t, err)
		heard := &recorder{}
		store := &spy{}
		l := limited(t, middleware.Config{
			Observer: heard, Bans: middleware.Bans{List: list, Keys: byIP, Deny: middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/wp-admin" })}, Store: store,
			Allow: middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
			Rules: []middleware.Rule{
				{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(2)},
				{Name: "new", Key: keyfunc.Global, Limit: limiter.PerHour(1), Mode: middleware.Shadow},
				{Name: "tenant", Key: keyfunc.Header("X-Tenant"), NoKey: middleware.NoKeyBadRequest, Limit: limiter.PerHour(100)},
			},
		})
		tenant := header("X-Tenant", "acme")
		outcome := func(edits ...func(*http.Request)) middleware.Outcome {
			check(l, request(append(edits, tenant)...))
			return heard.last(t).Outcome
		}

		assert.Equal(t, middleware.OutcomeAllowed, outcome())
		o := heard.last(t)
		require.Len(t, o.Rules, 3)
		assert.Equal(t, "ip", o.Rules[0].Rule.Name)
		assert.Equal(t, "192.0.2.1", o.Rules[0].Key)
		assert.Equal(t, int64(1), o.Rules[0].Cost)
		assert.Equal(t, int64(1), o.Rules[0].Decision.Remaining)
		assert.Equal(t, middleware.Shadow, o.Rules[1].Rule.Mode)
		assert.Equal(t, "header:X-Tenant:acme", o.Rules[2].Key)
		assert.Positive(t, o.Elapsed, "of a store that is not in memory")
		info := o.Rules[0].Rule

		assert.Equal(t, middleware.OutcomeAllowed, outcome())
		assert.False(t, heard.last(t).Rules[1].Decision.Allowed, "in shadow, it would have refused")
		assert.Same(t, info, heard.last(t).Rules[0].Rule)
		assert.Equal(t, middleware.OutcomeRefused, outcome())
		assert.False(t, heard.last(t).Rules[0].Decision.Allowed)

		path := func(path string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = path } }
		assert.Equal(t, middleware.OutcomeExempt, outcome(path("/healthz")))
		assert.Equal(t, middleware.OutcomeBanned, outcome(path("/wp-admin")))
		assert.Zero(t, heard.last(t).Ban)
		require.NoError(t, list.Ban(context.Background(), "192.0.2.9", time.Hour))
		assert.Equal(t, middleware.OutcomeBanned, outcome(from("192.0.2.9:1")))
		assert.Equal(t, "192.0.2.9", heard.last(t).Ban.Key)
		check(l, request())
		assert.Equal(t, middleware.OutcomeNoKey, heard.last(t).Outcome)
		assert.Empty(t, heard.last(t).Rules)

		broken := errors.New("broken")
		store.fails = func(context.Context, []limiter.Charge) error { return broken }
		assert.Equal(t, middleware.OutcomeUndecided, outcome())
		assert.ErrorIs(t, heard.last(t).Err, broken)
	})
}

func TestAnExemptRequestIsObservedWithoutItsBanInShadow(t *testing.T) {
	list := bans.Must(bans.New(bans.Options{}))
	require.NoError(t, list.Ban(t.Context(), "192.0.2.1", time.Hour))
	seen := &recorder{}
	limits := middleware.Must(middleware.New(middleware.Config{
		Rules:    []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(5)}},
		Allow:    middleware.MatchFunc(func(*http.Request) bool { return true }),
		Bans:     middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.IP()}},
		Shadow:   true,
		Observer: seen,
	}))
	limits.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	assert.Equal(t, middleware.OutcomeExempt, seen.last(t).Outcome)
	assert.Zero(t, seen.last(t).Ban)
}

func TestSeveralObserversHearInTurn(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		a, b := &recorder{}, &recorder{}
		l := limited(t, middleware.Config{Observer: middleware.Observers(a, b), Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}})
		check(l, request())
		assert.Len(t, a.seen, 1)
		assert.Len(t, b.seen, 1)
		assert.Panics(t, func() { middleware.Observers(a, nil) })
	})
}

func TestOutcomesHaveNames(t *testing.T) {
	names := map[string]bool{}
	for _, o := range middleware.Outcomes() {
		names[o.String()] = true
	}
	assert.Len(t, names, int(middleware.OutcomeAllowed), "zero is no outcome")
	assert.Equal(t, "refused", middleware.OutcomeRefused.String())
	assert.Equal(t, "Outcome(99)", middleware.Outcome(99).String())
}

type counter struct{ rules int }

func (c *counter) Observe(o *middleware.Observation) { c.rules += len(o.Rules) }

func TestPeekTakesNothingAndResetForgets(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list, err := bans.New(bans.Options{})
		require.NoError(t, err)
		l := limited(t, middleware.Config{
			Bans: middleware.Bans{List: list},
			Rules: []middleware.Rule{{
				Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(2), Tiers: middleware.Tiers{"premium": limiter.PerHour(9)},
				Escalate: bans.Escalation{After: 2, Within: time.Hour, Ban: time.Minute},
			}},
			ByRoute: map[string][]middleware.Rule{"GET /search": {{Name: "search", Key: keyfunc.Global, Limit: limiter.PerHour(5)}}},
			ByTier:  map[string][]middleware.Rule{"free": {{Name: "free", Key: keyfunc.Global, Limit: limiter.PerHour(7)}}},
			Default: []middleware.Rule{{Name: "rest", Key: keyfunc.Global, Limit: limiter.PerHour(50)}},
		})
		var names []string
		for _, info := range l.Rules() {
			names = append(names, info.Name+"/"+info.Tier+info.Route+info.ForTier)
		}
		assert.Equal(t, []string{"ip/", "ip/premium", "free/free", "search/GET /search", "rest/"}, names)

		status := func() int { w, _ := check(l, request()); return w.Code }
		for range 2 {
			require.Equal(t, http.StatusOK, status())
		}
		require.Equal(t, http.StatusTooManyRequests, status(), "one strike, of two")
		for range 3 {
			results, err := l.Peek(context.Background(), "ip", "192.0.2.1")
			require.NoError(t, err)
			require.Len(t, results, 2)
			assert.Equal(t, int64(0), results[0].Remaining)
			assert.Equal(t, int64(9), results[1].Remaining)
		}
		require.NoError(t, l.Reset(context.Background(), "ip", "192.0.2.1"))
		for range 2 {
			require.Equal(t, http.StatusOK, status(), "the limit begins anew")
		}
		require.Equal(t, http.StatusTooManyRequests, status())
		assert.True(t, list.Empty(), "and so do the strikes")

		other := limited(t, middleware.Config{Rules: []middleware.Rule{
			{Name: "a", Key: keyfunc.IP(), Limit: limiter.PerHour(9)}, {Name: "a strikes", Key: keyfunc.IP(), Limit: limiter.PerHour(9)},
		}})
		check(other, request())
		require.NoError(t, other.Reset(context.Background(), "a", "192.0.2.1"))
		results, err := other.Peek(context.Background(), "a strikes", "192.0.2.1")
		require.NoError(t, err)
		assert.Equal(t, int64(8), results[0].Remaining, "another rule's counter stays")

		_, err = l.Peek(context.Background(), "none", "x")
		assert.ErrorIs(t, err, middleware.ErrNoRule)
		assert.ErrorIs(t, l.Reset(context.Background(), "ip strikes", "x"), middleware.ErrNoRule)
	})
}

// Peek and the next request agree about whether a unit is left, and when.
func TestPeekSaysWhetherAUnitIsLeft(t *testing.T) {
	for _, limit := range []limiter.Allowance{
		limiter.PerMinute(2), limiter.PerMinute(20), limiter.PerMinute(2).With(limiter.TokenBucket),
		limiter.PerMinute(2).With(limiter.FixedWindow), limiter.All(limiter.PerMinute(5), limiter.PerHour(2)),
	} {
		phase.Test(t, func(t *testing.T) {
			l := newLimit(t, middleware.Rule{Name: "ip", Key: keyfunc.IP(), Limit: limit})
			peek := func() middleware.RuleResult {
				results, err := l.Peek(t.Context(), "ip", "192.0.2.1")
				require.NoError(t, err)
				require.Len(t, results, 1)
				return results[0]
			}
			for peek().Allowed {
				require.Zero(t, peek().RetryAfter)
				w, _ := check(l, request())
				require.Equal(t, 200, w.Code, "%v", limit)
			}
			w, _ := check(l, request())
			require.Equal(t, 429, w.Code, "%v", limit)
			time.Sleep(peek().RetryAfter - time.Microsecond)
			require.False(t, peek().Allowed, "%v", limit)
			time.Sleep(time.Microsecond)
			require.True(t, peek().Allowed, "%v", limit)
			w, _ = check(l, request())
			require.Equal(t, 200, w.Code, "%v", limit)
		})
	}
}

func TestPeekSaysThatNoSlotIsFree(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "ip", Key: keyfunc.IP(), Limit: limiter.AtOnce(1)})
		isFree := func() bool {
			results, err := l.Peek(t.Context(), "ip", "192.0.2.1")
			require.NoError(t, err)
			return results[0].Allowed && results[0].Concurrent.Allowed
		}
		serve(l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { assert.False(t, isFree()) })), request())
		assert.True(t, isFree())
	})
}
