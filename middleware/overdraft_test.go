package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func TestAnOverdraftLetsExactlySoManyMorePassDegraded(t *testing.T) {
	for _, algorithm := range waitless {
		t.Run(algorithm.String(), func(t *testing.T) {
			inMinute(t, func(t *testing.T) {
				const n, overdraft = 5, 3
				l := newLimit(t, middleware.Rule{Name: "r", Limit: limiter.PerMinute(n).With(algorithm), Overdraft: overdraft})
				for range 3 {
					for i := range n + overdraft {
						w, result := check(l, request())
						require.Equal(t, 200, w.Code)
						assert.Equal(t, i >= n, result.Degraded)
						assert.Equal(t, i >= n, result.Rules[0].Degraded)
						assert.True(t, result.Allowed)
						assert.Zero(t, result.RetryAfter)
						assert.EqualValues(t, n, result.Limit)
						assert.EqualValues(t, max(0, n-i-1), result.Remaining)
						assert.Equal(t, strconv.Itoa(max(0, n-i-1)), w.Header().Get("X-RateLimit-Remaining"))
						assert.Regexp(t, fmt.Sprintf(`^"r";r=%d;t=\d+$`, max(0, n-i-1)), w.Header().Get("RateLimit"))
						assert.NotContains(t, w.Header(), "Retry-After")
					}
					for range 3 {
						w := serve(l.Handler(ok), request())
						require.Equal(t, 429, w.Code)
						assert.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
						assert.NotEmpty(t, w.Header().Get("Retry-After"))
						assert.Regexp(t, `^"r";r=0;t=\d+$`, w.Header().Get("RateLimit"))
					}
					time.Sleep(2 * time.Minute)
				}
			})
		})
	}
}

// Whatever the rules: a refused request is refused until its Retry-After is over, and then
// passes.
func TestRetryAfterIsExactWithOverdrafts(t *testing.T) {
	phase.Test(t, func(*testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			edit := func(r *middleware.Rule) { r.Overdraft = rapid.Int64Range(0, 4).Draw(t, "overdraft") }
			rules := drawRules(t, "rule", 4, func(r *middleware.Rule) {
				edit(r)
				r.Shadow = rapid.SampledFrom([]bool{false, false, true}).Draw(t, "shadow")
			})
			rules = append(rules, drawRules(t, "more", 1, edit)...)
			if len(rules) == 0 {
				t.Skip("nothing to refuse")
			}
			var refused middleware.Result
			l := limited(t, middleware.Config{Rules: rules, OnRefused: func(w http.ResponseWriter, _ *http.Request, result middleware.Result) {
				refused = result
				w.WriteHeader(result.Status)
			}})
			for range 30 {
				r := drawRequest(t)
				if w, _ := check(l, r()); w.Code == 200 {
					continue
				}
				for _, rule := range refused.Rules {
					if rule.Remaining < 0 || rule.Allowed != (rule.RetryAfter == 0) || rule.Degraded {
						t.Fatalf("a refusal's rule says %+v", rule)
					}
				}
				after := refused.RetryAfter
				if after == limiter.Never {
					continue
				}
				time.Sleep(after - time.Microsecond)
				if w, _ := check(l, r()); w.Code != 429 {
					t.Fatalf("%d a microsecond before %v were over", w.Code, after)
				}
				if refused.RetryAfter != time.Microsecond {
					t.Fatalf("a microsecond before %v were over, it said %v", after, refused.RetryAfter)
				}
				time.Sleep(time.Microsecond)
				if w, _ := check(l, r()); w.Code != 200 {
					t.Fatalf("%d after %v, and %v more", w.Code, after, refused.RetryAfter)
				}
			}
		})
	})
}

func TestAnotherRuleThatRefusesLeavesTheOverdraftAlone(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		var seen middleware.Result
		l := limited(t, middleware.Config{
			Rules: []middleware.Rule{
				{Name: "day", Limit: limiter.PerDay(1).With(limiter.SlidingLog), Overdraft: 2},
				{Name: "second", Limit: limiter.PerSecond(1).With(limiter.SlidingLog)},
			},
			OnRefused: func(w http.ResponseWriter, _ *http.Request, result middleware.Result) {
				seen = result
				w.WriteHeader(result.Status)
			},
		})
		for n := range 3 {
			_, result := check(l, request())
			require.Equal(t, n > 0, result.Degraded)
			w := serve(l.Handler(ok), request())
			require.Equal(t, 429, w.Code)
			if n < 2 {
				assert.Equal(t, "second", seen.Rule)
				assert.Equal(t, time.Second, seen.RetryAfter, "then the overdraft has room, though the day's limit has none")
				assert.True(t, seen.Rules[0].Allowed)
				assert.Equal(t, "1", w.Header().Get("Retry-After"))
			}
			time.Sleep(time.Second)
		}
		require.Equal(t, 429, serve(l.Handler(ok), request()).Code)
		assert.Equal(t, "day", seen.Rule)
		assert.False(t, seen.Degraded)
		assert.Equal(t, 24*time.Hour-3*time.Second, seen.RetryAfter)
	})
}

func TestTwoRulesOverdrawTogetherOrNotAtAll(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t,
			middleware.Rule{Name: "a", Limit: limiter.PerDay(2), Overdraft: 5},
			middleware.Rule{Name: "b", Limit: limiter.PerDay(3), Overdraft: 1},
		)
		for n, want := range [][2]bool{{false, false}, {false, false}, {true, false}, {true, true}} {
			_, result := check(l, request())
			require.Len(t, result.Rules, 2, "request %d", n)
			assert.Equal(t, want, [2]bool{result.Rules[0].Degraded, result.Rules[1].Degraded}, "request %d", n)
			assert.Equal(t, want[0], result.Degraded)
		}
		for range 10 {
			require.Equal(t, 429, serve(l.Handler(ok), request()).Code)
		}
		require.NoError(t, l.Reconfigure(middleware.Config{Logger: quiet, Rules: []middleware.Rule{{Name: "a", Limit: limiter.PerDay(2), Overdraft: 5}}}))
		for range 3 {
			_, result := check(l, request())
			require.True(t, result.Degraded, "ten refusals by the other took nothing from this overdraft")
		}
		require.Equal(t, 429, serve(l.Handler(ok), request()).Code)
	})
}

func TestTiersOverdrawApart(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "r", Limit: limiter.PerDay(1), Overdraft: 1,
			Tiers: middleware.Tiers{"gold": limiter.PerDay(2).With(limiter.TokenBucket), "silver": limiter.PerHour(1)}})
		for tier, n := range map[string]int{"": 1, "gold": 2, "silver": 1} {
			for i := range n + 1 {
				w, result := check(l, request(inTier(tier)))
				require.Equal(t, 200, w.Code, "%q", tier)
				assert.Equal(t, i == n, result.Degraded)
			}
			assert.Equal(t, 429, serve(l.Handler(ok), request(inTier(tier))).Code)
		}
	})
}

func TestACostMovesToTheOverdraftWhole(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		cost := int64(3)
		l := newLimit(t, middleware.Rule{Name: "r", Limit: limiter.PerDay(4), Overdraft: 3, Cost: func(*http.Request) int64 { return cost }})
		_, result := check(l, request())
		assert.False(t, result.Degraded)
		_, result = check(l, request())
		assert.True(t, result.Degraded)
		assert.EqualValues(t, 1, result.Remaining, "it is there for a smaller one")
		require.Equal(t, 429, serve(l.Handler(ok), request()).Code)
		cost = 1
		_, result = check(l, request())
		assert.False(t, result.Degraded)
		cost = 5
		assert.NotContains(t, serve(l.Handler(ok), request()).Header(), "Retry-After")
	})
}

func TestTheOverdraftIsUsedOnlyWhileTheLimitHasNoRoom(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "r", Limit: limiter.PerMinute(1).With(limiter.SlidingLog), Overdraft: 1})
		for range 5 {
			_, result := check(l, request())
			require.True(t, result.Allowed)
			require.False(t, result.Degraded)
			time.Sleep(time.Minute)
		}
	})
}

func TestATurnThatComesTooLateGivesBackWhatWasTakenAndNoMore(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		queued := true
		l := newLimit(t,
			middleware.Rule{Name: "shadow", Limit: limiter.PerDay(1), Shadow: true},
			middleware.Rule{Name: "r", Limit: limiter.PerDay(1), Overdraft: 1},
			middleware.Rule{Name: "q", Limit: limiter.PerHour(1).With(limiter.LeakyBucket), Match: func(*http.Request) bool { return queued }},
		)
		_, result := check(l, request())
		require.False(t, result.Degraded)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 3 {
			require.Equal(t, 503, serve(l.Handler(ok), request().WithContext(ctx)).Code)
		}
		queued = false
		_, result = check(l, request())
		assert.True(t, result.Degraded, "it is the overdraft that was given back")
		require.Len(t, result.Rules, 2)
		assert.False(t, result.Rules[1].Allowed, "the rule in shadow had nothing to get back")
		assert.Equal(t, 429, serve(l.Handler(ok), request()).Code)
	})
}

func TestExactlyLimitAndOverdraftPassAmongMany(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		const n, overdraft = 60, 40
		l := newLimit(t,
			middleware.Rule{Name: "all", Limit: limiter.PerDay(n), Overdraft: overdraft},
			middleware.Rule{Name: "shadow", Limit: limiter.PerDay(7), Shadow: true},
			middleware.Rule{Name: "more", Limit: limiter.PerDay(n + overdraft)},
		)
		var passed, degraded atomic.Int64
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 30 {
					if w, result := check(l, request()); w.Code == 200 {
						passed.Add(1)
						if result.Degraded {
							degraded.Add(1)
						}
					}
				}
			})
		}
		group.Wait()
		assert.EqualValues(t, n+overdraft, passed.Load())
		assert.EqualValues(t, overdraft, degraded.Load())
	})
}
