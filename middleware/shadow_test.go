package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func TestARuleInShadowRefusesNothingAndTellsClientsNothing(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t,
			middleware.Rule{Name: "shady", Key: keyfunc.Global, Limit: limiter.PerHour(1), SoftAt: 1, Mode: middleware.Shadow},
			middleware.Rule{Name: "open", Key: keyfunc.Global, Limit: limiter.PerHour(3)},
		)
		for n := range 3 {
			w, result := check(l, request())
			require.Equal(t, 200, w.Code)
			assert.Equal(t, "3", w.Header().Get("X-RateLimit-Limit"))
			assert.Equal(t, `"open";q=3;w=3600`, w.Header().Get("RateLimit-Policy"))
			assert.NotContains(t, fmt.Sprint(w.Header()), "shady")
			assert.Equal(t, "open", result.Rule)
			assert.EqualValues(t, 2-n, result.Remaining, "the other rule is charged all the same")
			require.Len(t, result.Rules, 2, "handlers see it")
			assert.Equal(t, "shady", result.Rules[1].Rule.Name)
			assert.Equal(t, middleware.Shadow, result.Rules[1].Rule.Mode)
			assert.Equal(t, n == 0, result.Rules[1].Allowed)
			assert.Equal(t, middleware.Enforce, result.Rules[0].Rule.Mode)
		}
		w := serve(l.Handler(ok), request(header("Accept", "application/problem+json")))
		require.Equal(t, 429, w.Code)
		assert.Contains(t, w.Body.String(), `"violated-policies":["open"]`)
		assert.NotContains(t, fmt.Sprint(w.Header()), "shady")
	})
}

func TestALimiterInShadowLeavesTheFieldsOfOthersAlone(t *testing.T) {
	inMinute(t, func(t *testing.T) {
		outer := newLimit(t, middleware.Rule{Name: "o", Key: keyfunc.Global, Limit: limiter.PerMinute(3).With(limiter.FixedWindow)},
			middleware.Rule{Name: "p", Key: keyfunc.Global, Limit: limiter.PerMinute(4).With(limiter.FixedWindow)})
		want := serve(outer.Handler(ok), request()).Header()
		for name, inner := range map[string]*middleware.RateLimit{
			"that refuses":      newLimit(t, middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(1), Mode: middleware.Shadow, Cost: middleware.CostOf(func(*http.Request) int64 { return 2 })}),
			"without an answer": limited(t, middleware.Config{Store: brokenStore{}, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: plenty, Mode: middleware.Shadow}}}),
		} {
			outer := newLimit(t, middleware.Rule{Name: "o", Key: keyfunc.Global, Limit: limiter.PerMinute(3).With(limiter.FixedWindow)},
				middleware.Rule{Name: "p", Key: keyfunc.Global, Limit: limiter.PerMinute(4).With(limiter.FixedWindow)})
			assert.Equal(t, want, serve(outer.Handler(inner.Handler(ok)), request()).Header(), name)
		}
	})
}

// drawRules draws some rules with small limits, that count by two keys.
func drawRules(t *rapid.T, label string, most int, edit func(*middleware.Rule)) (rules []middleware.Rule) {
	for i := range rapid.IntRange(0, most).Draw(t, label+"s") {
		rule := middleware.Rule{
			Name: fmt.Sprint(label, " ", i), Key: keyfunc.Global,
			Limit: limiter.Limit{
				Events: rapid.Int64Range(1, 8).Draw(t, "events"),
				Per:    time.Duration(rapid.Int64Range(1, 100).Draw(t, "per")) * time.Second, Algorithm: rapid.SampledFrom(waitless).Draw(t, "algorithm"),
			},
			Cost: middleware.CostOf(func(r *http.Request) int64 { return int64(len(r.Header.Get("X-Cost"))) }),
		}
		if rapid.Bool().Draw(t, "keyed") {
			rule.Key = keyfunc.IP()
		}
		edit(&rule)
		rules = append(rules, rule)
	}
	return rules
}

func drawRequest(t *rapid.T) func() *http.Request {
	peer := rapid.SampledFrom([]string{"192.0.2.1:1", "192.0.2.2:1"}).Draw(t, "peer")
	cost := strings.Repeat("x", rapid.IntRange(1, 3).Draw(t, "cost"))
	return func() *http.Request { return request(from(peer), header("X-Cost", cost)) }
}

// Rules decide as if those in shadow were not there, and each rule in shadow as if it alone
// were asked, about the requests that the others let pass.
func TestRulesAndRulesInShadowDoNotMindEachOther(t *testing.T) {
	phase.Test(t, func(*testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			meant := drawRules(t, "meant", 3, func(*middleware.Rule) {})
			shadows := drawRules(t, "shadow", 3, func(r *middleware.Rule) { r.Mode = middleware.Shadow })
			if len(meant) == 0 || len(shadows) == 0 {
				t.Skip("nothing to compare")
			}
			all := append(append([]middleware.Rule{}, shadows...), meant...)
			both := limited(t, middleware.Config{Rules: rapid.Permutation(all).Draw(t, "order")})
			without := limited(t, middleware.Config{Rules: meant})
			alone := map[string]*middleware.RateLimit{}
			var refused middleware.Result
			for _, rule := range shadows {
				rule.Mode = middleware.Enforce
				alone[rule.Name] = limited(t, middleware.Config{Rules: []middleware.Rule{rule},
					Refusal: middleware.Refusal{Answer: func(_ http.ResponseWriter, _ *http.Request, result middleware.Result) { refused = result }}})
			}
			for range 30 {
				time.Sleep(time.Duration(rapid.IntRange(0, 3).Draw(t, "pause")) * time.Second)
				r := drawRequest(t)
				w, result := check(both, r())
				want, wanted := check(without, r())
				if w.Code != want.Code || w.Header().Get("Retry-After") != want.Header().Get("Retry-After") {
					t.Fatalf("%d, retry after %q, and without rules in shadow %d, retry after %q",
						w.Code, w.Header().Get("Retry-After"), want.Code, want.Header().Get("Retry-After"))
				}
				if w.Code != 200 {
					continue
				}
				decisions := map[string]limiter.Decision{}
				for _, rule := range wanted.Rules {
					decisions[rule.Rule.Name] = rule.Decision
				}
				for name, l := range alone {
					_, single := check(l, r())
					if len(single.Rules) == 0 {
						single = refused
					}
					decisions[name] = single.Rules[0].Decision
				}
				for _, rule := range result.Rules {
					if rule.Decision != decisions[rule.Rule.Name] {
						t.Fatalf("%s decided %+v, and alone %+v", rule.Rule.Name, rule.Decision, decisions[rule.Rule.Name])
					}
				}
			}
		})
	})
}

func TestAQueueInShadowDelaysNobody(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "q", Key: keyfunc.Global, Limit: limiter.PerSecond(1).With(limiter.LeakyBucket).WithBurst(5), Mode: middleware.Shadow},
			middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: plenty})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		for n := range 8 {
			w, result := check(l, request().WithContext(ctx))
			require.Equal(t, 200, w.Code)
			if 0 < n && n < 6 {
				assert.Equal(t, time.Duration(n)*time.Second, result.Rules[1].Delay, "what it would be is told")
			}
		}
		assert.Zero(t, time.Since(start))
	})
}

func TestShadowIsLoggedOnceAMinuteWithHowMany(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		l := limited(t, middleware.Config{Logger: logger, Rules: []middleware.Rule{
			{Name: "r", Limit: limiter.PerDay(2).With(limiter.SlidingLog), Mode: middleware.Shadow, Key: keyfunc.IP(),
				Tiers: middleware.Tiers{"gold": limiter.PerDay(1).With(limiter.SlidingLog)}}}})
		for range 2 {
			check(l, request())
		}
		assert.Empty(t, log.String(), "it would have refused nothing")
		for range 5 {
			check(l, request())
		}
		assert.Equal(t, 1, strings.Count(log.String(), "code=weir-shadow"))
		assert.Contains(t, log.String(), "level=INFO")
		assert.Contains(t, log.String(), `rule=r tier="" code=weir-shadow requests=1`)
		assert.NotContains(t, log.String(), "192.0.2.1", "keys are not logged")

		log.Reset()
		time.Sleep(time.Minute - time.Nanosecond)
		check(l, request())
		assert.Empty(t, log.String())
		time.Sleep(time.Nanosecond)
		check(l, request(inTier("gold")))
		check(l, request(inTier("gold")))
		assert.Equal(t, 1, strings.Count(log.String(), "code=weir-shadow"))
		assert.Contains(t, log.String(), `rule=r tier=gold code=weir-shadow requests=6`)
	})
}

func TestARuleInShadowAsksNobodyForAKey(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for _, noKey := range []middleware.NoKey{middleware.NoKeyUnauthorized, middleware.NoKeyBadRequest, middleware.NoKeySkip} {
			for name, key := range map[string]keyfunc.Func{
				"missing": func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey },
				"failing": func(*http.Request) (string, error) { return "", errors.New("the database is down") },
			} {
				rule := middleware.Rule{Name: "r", Key: key, NoKey: noKey, Limit: limiter.PerHour(1), Mode: middleware.Shadow}
				logger, log := logged()
				l := limited(t, middleware.Config{Logger: logger, Rules: []middleware.Rule{rule, {Name: "open", Key: keyfunc.Global, Limit: limiter.PerHour(2)}}})
				for range 2 {
					require.Equal(t, 200, serve(l.Handler(ok), request()).Code, name)
				}
				assert.Equal(t, 429, serve(l.Handler(ok), request()).Code, "the other rule is charged")
				refuses := noKey != middleware.NoKeySkip || name == "failing"
				assert.Equal(t, refuses, strings.Contains(log.String(), "code=weir-shadow"), "%s, %v: %s", name, noKey, log)
			}
		}
	})
}

func TestWithoutAnAnswerFromTheStoreRulesInShadowLetPass(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		shadow := middleware.Rule{Name: "s", Key: keyfunc.Global, Limit: limiter.PerHour(1), Mode: middleware.Shadow, OnOutage: limiter.FailClosed}
		l := limited(t, middleware.Config{Store: brokenStore{}, Rules: []middleware.Rule{shadow}})
		w := serve(l.Handler(ok), request())
		assert.Equal(t, 200, w.Code)
		assert.Empty(t, w.Header().Get("X-RateLimit-Limit"))
		assert.Equal(t, limiter.FailLocal, l.Explain(request()).Rules[0].Rule.OnOutage, "a rule in shadow cannot be closed")

		l = limited(t, middleware.Config{Store: brokenStore{}, Rules: []middleware.Rule{shadow, {Name: "r", Key: keyfunc.Global, Limit: plenty}}})
		assert.Equal(t, 503, serve(l.Handler(ok), request()).Code)
	})
}

func TestAConfigInShadowRefusesNothingAtAll(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		list := bansOf(t)
		l := limited(t, middleware.Config{
			Logger: logger, Shadow: true, Bans: middleware.Bans{List: list, Keys: byIP, Deny: middleware.MatchFunc(func(r *http.Request) bool { return r.Header.Get("X-Bad") != "" })},
			Rules:   []middleware.Rule{{Name: "r", Limit: limiter.PerDay(1), Key: keyfunc.IP(), Escalate: strict}},
			ByTier:  map[string][]middleware.Rule{"free": {{Name: "t", Key: keyfunc.Global, Limit: limiter.PerDay(1)}}},
			ByRoute: byRoute(limiter.PerDay(1), "/a"),
			Default: []middleware.Rule{{Name: "d", Key: keyfunc.Global, Limit: limiter.PerDay(1)}},
		})
		for range 20 {
			for _, r := range []*http.Request{request(), request(inTier("free"), routedBy("/a")), request(header("X-Bad", "1"))} {
				w := serve(l.Handler(noop), r)
				require.Equal(t, 200, w.Code)
				require.Empty(t, w.Header())
			}
		}
		assert.True(t, list.Empty(), "a rule in shadow bans nobody")
		for _, name := range []string{"rule=r ", "rule=t ", "rule=/a ", "rule=d "} {
			assert.Contains(t, log.String(), name)
		}
		assert.Equal(t, 1, strings.Count(log.String(), "a ban in shadow would have refused requests"))

		time.Sleep(time.Minute)
		log.Reset()
		require.NoError(t, list.Ban(t.Context(), "192.0.2.1", 0))
		require.Equal(t, 200, serve(l.Handler(ok), request()).Code)
		assert.Contains(t, log.String(), `a ban in shadow would have refused requests" code=weir-shadow requests=20`)
	})
}

// Whatever the rules: a refused request is refused until its Retry-After is over, and then
// passes.
func TestRetryAfterIsExactWithRulesInShadow(t *testing.T) {
	phase.Test(t, func(*testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			rules := drawRules(t, "rule", 4, func(r *middleware.Rule) {
				r.Mode = rapid.SampledFrom([]middleware.Mode{middleware.Enforce, middleware.Enforce, middleware.Shadow}).Draw(t, "shadow")
			})
			rules = append(rules, drawRules(t, "more", 1, func(*middleware.Rule) {})...)
			if len(rules) == 0 {
				t.Skip("nothing to refuse")
			}
			var refused middleware.Result
			l := limited(t, middleware.Config{Rules: rules, Refusal: middleware.Refusal{Answer: func(w http.ResponseWriter, _ *http.Request, result middleware.Result) {
				refused = result
				w.WriteHeader(result.Status)
			}}})
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

// inShadow is the mode of a rule that is in shadow if so.
func inShadow(so bool) middleware.Mode {
	if so {
		return middleware.Shadow
	}
	return middleware.Enforce
}
