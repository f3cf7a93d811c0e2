package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// logOf is a limit without windows.
func logOf(events int64, per time.Duration) limiter.Limit {
	return limiter.Limit{Events: events, Per: per, Algorithm: limiter.SlidingLog}
}

// several is a rule with three limits.
func several() middleware.Rule {
	return middleware.Rule{Name: "api", Key: keyfunc.IP(), Limit: limiter.All(
		logOf(3, time.Second),
		logOf(6, time.Minute),
		logOf(8, time.Hour),
	)}
}

func TestEachOfSeveralLimitsBinds(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{several()}})
		h := l.Handler(noop)
		pass := func(n int) {
			t.Helper()
			for range n {
				assert.Equal(t, 200, serve(h, request()).Code)
			}
		}
		refused := func(retryAfter, violated string) {
			t.Helper()
			w := serve(h, request(header("Accept", "application/problem+json")))
			assert.Equal(t, http.StatusTooManyRequests, w.Code)
			assert.Equal(t, retryAfter, w.Header().Get("Retry-After"))
			assert.Contains(t, w.Body.String(), `"violated-policies":[`+violated+`]`)
		}
		pass(3)
		refused("1", `"api"`)
		time.Sleep(time.Second)
		pass(3)
		refused("59", `"api","api.60"`)
		time.Sleep(59 * time.Second)
		pass(2)
		refused("3540", `"api.3600"`)
	})
}

func TestARuleWithSeveralLimitsIsOneRule(t *testing.T) {
	var heard []middleware.RuleResult
	l := limited(t, middleware.Config{
		Headers:  bothHeaders,
		Rules:    []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: perHour(100)}, several()},
		Observer: observer(func(o *middleware.Observation) { heard = append(heard[:0], o.Rules...) }),
	})
	r := request()
	w, result := check(l, r)
	assert.Equal(t, `"all";q=100;w=3600, "api";q=3;w=1, "api.60";q=6;w=60, "api.3600";q=8;w=3600`, w.Header().Get("RateLimit-Policy"))
	assert.Equal(t, "3", w.Header().Get("X-RateLimit-Limit"))
	assert.Equal(t, "api", result.Rule)
	for what, rules := range map[string][]middleware.RuleResult{"Result": result.Rules, "Observation": heard} {
		require.Len(t, rules, 2, what)
		assert.Nil(t, rules[0].Limits, what)
		api := rules[1]
		assert.Equal(t, several().Limit, api.Rule.Limit, what)
		require.Len(t, api.Limits, 3, what)
		assert.EqualValues(t, 2, api.Limits[0].Remaining, what)
		assert.EqualValues(t, 5, api.Limits[1].Remaining, what)
		assert.EqualValues(t, 7, api.Limits[2].Remaining, what)
		assert.Equal(t, api.Limits[0], api.Decision, "%s: least of its share is left", what)
	}

	rules := l.Rules()
	require.Len(t, rules, 2)
	assert.Equal(t, "100/1h sliding-log", rules[0].LimitText())
	assert.Equal(t, "3/1s sliding-log, 6/1m sliding-log, 8/1h sliding-log", rules[1].LimitText())
	assert.Equal(t, several().Limit, rules[1].Limit)
	explained := l.Explain(request())
	require.Len(t, explained.Rules, 2)
	assert.Equal(t, "api", explained.Rules[1].Rule.Name)

	const client = "192.0.2.1"
	found, err := l.Peek(t.Context(), "api", client)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Len(t, found[0].Limits, 3)
	assert.EqualValues(t, 7, found[0].Limits[2].Remaining)
	require.NoError(t, l.Reset(t.Context(), "api", client))
	found, err = l.Peek(t.Context(), "api", client)
	require.NoError(t, err)
	assert.EqualValues(t, 8, found[0].Limits[2].Remaining, "all are forgotten")
}

// An observer is a function.
type observer func(o *middleware.Observation)

func (f observer) Observe(o *middleware.Observation) { f(o) }

func TestARuleGoesByTheLimitThatRefusesLongest(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "api", Key: keyfunc.Global, Limit: limiter.All(logOf(2, time.Second), logOf(2, time.Hour))}}})
	for range 2 {
		check(l, request())
	}
	result, refused := refusal(l, httptest.NewRecorder(), request())
	assert.True(t, refused)
	assert.Greater(t, result.RetryAfter, 59*time.Minute)
	require.Len(t, result.Rules, 1)
	assert.Equal(t, result.Rules[0].Limits[1], result.Rules[0].Decision)
	assert.Equal(t, logOf(2, time.Hour), result.Rules[0].Binding())
}

func TestWhatRemainsOfSeveralLimitsPassesNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "api", Key: keyfunc.Global, Limit: limiter.All(logOf(2, time.Second), logOf(10, time.Hour))}}})
		for range 6 {
			check(l, request())
			time.Sleep(time.Second)
		}
		w, result := check(l, request())
		assert.EqualValues(t, 1, result.Remaining, "of the second's 2, though a smaller share is left of the hour's 10")
		assert.EqualValues(t, 2, result.Limit)
		assert.Equal(t, result.Decision, result.Rules[0].Decision)
		assert.Equal(t, logOf(2, time.Second), result.Rules[0].Binding())
		assert.Equal(t, "2", w.Header().Get("X-RateLimit-Limit"))
		assert.Equal(t, "1", w.Header().Get("X-RateLimit-Remaining"))
		check(l, request())
		result, refused := refusal(l, httptest.NewRecorder(), request())
		assert.True(t, refused)
		assert.Zero(t, result.Remaining)
		assert.Equal(t, time.Second, result.RetryAfter)
	})
}

func TestSeveralLimitsAreSettledEachByItsOwn(t *testing.T) {
	rule := several()
	rule.Cost = middleware.Reserve(func(*http.Request) int64 { return 7 })
	l := limited(t, middleware.Config{Rules: []middleware.Rule{rule}})
	h := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		found, err := l.Peek(r.Context(), "api", "192.0.2.1")
		require.NoError(t, err)
		assert.EqualValues(t, 0, found[0].Limits[0].Remaining, "3 of 7 are reserved, which is all")
		assert.EqualValues(t, 0, found[0].Limits[1].Remaining)
		assert.EqualValues(t, 1, found[0].Limits[2].Remaining)
		require.NoError(t, middleware.Settle(r.Context(), "api", 2))
	}))
	assert.Equal(t, 200, serve(h, request()).Code)
	found, err := l.Peek(t.Context(), "api", "192.0.2.1")
	require.NoError(t, err)
	for i, want := range []int64{1, 4, 6} {
		assert.Equal(t, want, found[0].Limits[i].Remaining)
	}
}

func TestSeveralLimitsInShadow(t *testing.T) {
	for _, settles := range []bool{false, true} {
		rule := several()
		rule.Mode = middleware.Shadow
		if settles {
			rule.Cost = middleware.Reserve(func(*http.Request) int64 { return 1 })
		}
		l := limited(t, middleware.Config{Rules: []middleware.Rule{rule, {Name: "all", Key: keyfunc.Global, Limit: perHour(100)}}})
		for range 7 {
			assert.Equal(t, 200, serve(l.Handler(noop), request()).Code)
		}
		found, err := l.Peek(t.Context(), "api", "192.0.2.1")
		require.NoError(t, err)
		assert.EqualValues(t, 0, found[0].Limits[0].Remaining)
		assert.EqualValues(t, 1, found[0].Limits[2].Remaining, "each limit in shadow takes what fits")
		assert.EqualValues(t, 93, left(t, l, "all", ""))
	}
}

func TestSeveralLimitsThatRefuseAreOneRefusal(t *testing.T) {
	list := bans.Must(bans.New(bans.Options{}))
	l := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{{
		Name: "api", Key: keyfunc.IP(), Limit: limiter.All(logOf(1, time.Minute), logOf(1, time.Hour)),
		Escalate: bans.Escalation{After: 2, Within: time.Hour, Ban: time.Hour},
	}}})
	serve(l.Handler(noop), request())
	assert.Equal(t, http.StatusTooManyRequests, serve(l.Handler(noop), request()).Code)
	assert.True(t, list.Empty(), "one refusal is one")
	serve(l.Handler(noop), request())
	assert.False(t, list.Empty())
}

func TestTiersWithSeveralLimits(t *testing.T) {
	rule := middleware.Rule{
		Name: "plan", Key: keyfunc.Global, Limit: limiter.All(logOf(1, time.Second), logOf(2, time.Hour)),
		Tiers: middleware.Tiers{"single": perHour(5), "gold": limiter.All(logOf(3, time.Second), logOf(4, time.Minute), logOf(9, time.Hour))},
	}
	l := newLimit(t, rule)
	for tier, want := range map[string]string{
		"":       `"plan";q=1;w=1, "plan.3600";q=2;w=3600`,
		"single": `"plan";q=5;w=3600`,
		"gold":   `"plan";q=3;w=1, "plan.60";q=4;w=60, "plan.3600";q=9;w=3600`,
	} {
		w := serve(l.Handler(noop), request(inTier(tier)))
		assert.Equal(t, want, w.Header().Get("RateLimit-Policy"), tier)
	}
}

// A plan is an Allowance by what it embeds, and no map's key.
type plan struct {
	limiter.Limit
	features []string
}

// distinct is n limits that all bind.
func distinct(n int) (limits []limiter.Limit) {
	for i := range n {
		limits = append(limits, limiter.Limit{Events: int64(100 + i), Per: time.Duration(i*i+1) * time.Second})
	}
	return limits
}
