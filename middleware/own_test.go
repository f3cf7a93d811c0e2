package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
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

func as(user string) func(*http.Request) {
	return func(r *http.Request) { *r = *r.WithContext(keyfunc.WithUser(r.Context(), user)) }
}

// limitedTo gives requests a limit of their own for rule r, as an authentication that ignores the error.
func limitedTo(limit limiter.Allowance) func(*http.Request) { return limitedFor("r", limit) }

func limitedFor(rule string, limit limiter.Allowance) func(*http.Request) {
	return func(r *http.Request) {
		ctx, _ := middleware.WithLimit(r.Context(), rule, limit)
		*r = *r.WithContext(ctx)
	}
}

// customers has a limit of 3 an hour, and of 30 for gold.
func customers() middleware.Rule {
	return middleware.Rule{Name: "r", Key: keyfunc.User, Limit: logOf(3, time.Hour), Tiers: middleware.Tiers{"gold": logOf(30, time.Hour)}}
}

func limitOf(l *middleware.RateLimit, edits ...func(*http.Request)) (limit, remaining int64) {
	_, result := check(l, request(edits...))
	return result.Limit, result.Remaining
}

func TestAClientMayHaveALimitOfItsOwn(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		rule := customers()
		rule.Overrides = map[string]middleware.Override{"user:big": {Limit: logOf(50, time.Hour)}}
		l := newLimit(t, rule)
		big := limitedTo(logOf(100, time.Hour))
		for i := range int64(5) {
			limit, remaining := limitOf(l, as("big"), big)
			assert.Equal(t, []int64{100, 99 - i}, []int64{limit, remaining})
		}
		limit, remaining := limitOf(l, as("big"))
		assert.Equal(t, []int64{50, 44}, []int64{limit, remaining}, "what was used stays used under another limit")
		limit, remaining = limitOf(l, as("big"), inTier("gold"), big)
		assert.Equal(t, []int64{100, 99}, []int64{limit, remaining}, "each tier counts apart, with the client's limit")
		limit, remaining = limitOf(l, as("big"), big, limitedTo(logOf(7, time.Hour)))
		assert.Equal(t, []int64{7, 0}, []int64{limit, remaining}, "the latest call wins")
		for name, edits := range map[string][]func(*http.Request){
			"no limit": {as("small")}, "another rule's": {as("other"), limitedFor("another", logOf(100, time.Hour))},
			"the rule's": {as("same"), limitedTo(logOf(3, time.Hour))},
		} {
			limit, _ = limitOf(l, edits...)
			assert.EqualValues(t, 3, limit, name)
		}
	})
}

func TestALimitOfAContextAppliesInEachLimiter(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		outer, inner := newLimit(t, customers()), newLimit(t, customers())
		h := outer.Handler(inner.Handler(ok))
		assert.Equal(t, []int{200, 200, 200, 200, 200, 429}, statuses(h, 6, as("a"), limitedTo(logOf(5, time.Hour))))
	})
}

// A counter that other clients use, too, keeps the rule's limit. A refusal needs no counter.
func TestALimitHasNoEffectOnASharedCounter(t *testing.T) {
	doubt := func(*http.Request) (string, error) { return keyfunc.InDoubt.Mark("10.0.0.1"), nil }
	for name, key := range map[string]keyfunc.Func{"global": keyfunc.Global, "method": keyfunc.Method, "no key": keyfunc.User, "in doubt": doubt} {
		phase.Run(t, name, func(t *testing.T) {
			rule := customers()
			rule.Key = key
			l := newLimit(t, rule)
			limit, _ := limitOf(l, limitedTo(logOf(100, time.Hour)))
			assert.EqualValues(t, 3, limit)
			w, _ := check(l, request(limitedTo(limiter.PerHour(0))))
			assert.Equal(t, 429, w.Code)
			w, _ = check(l, request(limitedTo(limiter.Limit{})))
			assert.Equal(t, 503, w.Code)
		})
	}
}

// Nobody who ignores the error lets a client pass.
func TestAnInvalidLimitRefusesItsRule(t *testing.T) {
	for want, limit := range map[string]limiter.Allowance{
		"Limit is missing": nil, "Events is 0": limiter.Limit{}, "Events is -1": limiter.Limit{Events: -1, Per: time.Hour},
		"is a *limiter.Limit": new(limiter.Limit), "Max is 0": limiter.AtOnce(0), "All has 0 limits": limiter.All(),
		"two limits have one period": limiter.All(limiter.PerHour(0), limiter.PerHour(5)),
		"one of All is <nil>":        limiter.All(limiter.PerHour(0), nil),
		"All has 9 limits":           limiter.All(limiter.Join(distinct(8), limiter.Concurrency{}), limiter.Limit{Events: 0, Per: 99 * time.Hour}),
	} {
		for _, outage := range []limiter.Outage{limiter.FailLocal, limiter.FailOpen, limiter.FailClosed} {
			phase.Run(t, want, func(t *testing.T) {
				ctx, err := middleware.WithLimit(t.Context(), "r", limit)
				require.ErrorContains(t, err, `WithLimit for rule "r": `)
				require.ErrorContains(t, err, want)
				logger, log := logged()
				rule := customers()
				rule.OnOutage = outage
				seen := outcomesSeen{}
				l := limited(t, middleware.Config{Logger: logger, Observer: seen, Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: perHour(9)}, rule}})
				w := httptest.NewRecorder()
				l.Handler(ok).ServeHTTP(w, request().WithContext(keyfunc.WithUser(ctx, "a")))
				assert.Equal(t, 503, w.Code)
				assert.Equal(t, outcomesSeen{middleware.OutcomeUndecided: 1}, seen)
				assert.Equal(t, 1, strings.Count(log.String(), "code=weir-limit-failed rule=r"))
				found, err := l.Peek(t.Context(), "all", "")
				require.NoError(t, err)
				assert.EqualValues(t, 9, found[0].Remaining, "no rule is charged")
				e := l.Explain(request(as("a"), limitedTo(limit)))
				assert.Equal(t, []any{503, "r", ""}, []any{e.Status, e.Denied, e.Keyless})
				_, err = l.Peek(ctx, "r", "user:a")
				assert.Error(t, err)
				assert.Equal(t, "no_limit", func() usageOfRule { u := usageOf(t, l, as("a"), limitedTo(limit)); return u.rule(t, "r") }().Unknown)
			})
		}
	}
}

// A store that counts for limits of up to a hundred events.
type smallStore struct{ *limiter.Memory }

func (s smallStore) Check(q *limiter.Quota) error {
	if q.Limit().Events > 100 {
		return errors.New("more than a hundred")
	}
	return nil
}

// A limit that is valid, but not for its rule, its store or beside its other rules.
func TestALimitThatARuleCannotHaveIsAnswered503(t *testing.T) {
	leaky := limiter.PerSecond(5).With(limiter.LeakyBucket)
	two := limiter.All(logOf(1, time.Second), logOf(2, time.Hour))
	for want, test := range map[string]struct {
		limit limiter.Allowance
		edit  func(*middleware.Rule)
	}{
		"more than a hundred":                 {logOf(101, time.Hour), func(*middleware.Rule) {}},
		`a counter named \"r.3600\", which`:   {two, func(*middleware.Rule) {}},
		"Units is 5: 4/1h token-bucket":       {limiter.PerHour(4).With(limiter.TokenBucket), func(r *middleware.Rule) { r.Cost, r.Limit, r.Tiers = middleware.Units(5), perHour(50), nil }},
		"Counts is 401: a leaky-bucket":       {leaky, func(r *middleware.Rule) { r.Counts = middleware.Statuses(401) }},
		"Distinct is set, and the limit is 1": {two, func(r *middleware.Rule) { r.Name, r.Distinct = "r", keyfunc.Method }},
	} {
		phase.Run(t, want, func(t *testing.T) {
			logger, log := logged()
			rule := customers()
			test.edit(&rule)
			c := middleware.Config{
				Logger: logger, Results: true, Store: smallStore{limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))},
				Rules: []middleware.Rule{rule, {Name: "r.3600", Key: keyfunc.Global, Limit: perHour(50)}},
			}
			l := limited(t, c)
			for range 2 {
				ctx, err := middleware.WithLimit(t.Context(), "r", test.limit)
				require.NoError(t, err)
				w := httptest.NewRecorder()
				l.Handler(ok).ServeHTTP(w, request().WithContext(keyfunc.WithUser(ctx, "a")))
				assert.Equal(t, 503, w.Code)
				require.NoError(t, l.Reconfigure(c))
			}
			assert.Contains(t, log.String(), want)
			assert.Equal(t, 1, strings.Count(log.String(), "weir-limit-failed"))
			limit, _ := limitOf(l, as("b"))
			assert.Positive(t, limit, "other clients pass")
		})
	}
}

func TestASuspendedClientIsRefusedAndNothingIsCharged(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		all := middleware.Rule{Name: "all", Key: keyfunc.Global, Limit: perHour(9)}
		rule := customers()
		rule.OnOutage = limiter.FailOpen
		seen := outcomesSeen{}
		l := limited(t, middleware.Config{Observer: seen, Rules: []middleware.Rule{all, rule}})
		for _, zero := range []limiter.Allowance{
			limiter.PerHour(0), limiter.Daily(0), limiter.All(limiter.PerSecond(0), limiter.PerHour(5)), limiter.All(limiter.PerHour(0), limiter.AtOnce(5)),
		} {
			ctx, err := middleware.WithLimit(t.Context(), "r", zero)
			require.NoError(t, err)
			ctx = keyfunc.WithUser(ctx, "a")
			w := httptest.NewRecorder()
			l.Handler(ok).ServeHTTP(w, request(header("Accept", "application/problem+json")).WithContext(ctx))
			assert.Equal(t, 429, w.Code)
			assert.NotContains(t, w.Header(), "Retry-After", "waiting does not help")
			assert.Contains(t, w.Body.String(), "quota-exceeded")
			found, err := l.Peek(ctx, "r", "user:a")
			require.NoError(t, err)
			assert.Equal(t, limiter.Decision{RetryAfter: limiter.Never}, found[0].Decision)
			assert.Equal(t, zero, found[0].Rule.Limit)
			e := l.Explain(request().WithContext(ctx))
			assert.Equal(t, []any{429, "r", ""}, []any{e.Status, e.Denied, e.Keyless})
			assert.False(t, l.Allow(httptest.NewRecorder(), request().WithContext(ctx), "r", "user:a"))
			assert.True(t, func() usageOfRule { u := usageOf(t, l, as("a"), limitedTo(zero)); return u.rule(t, "r") }().Denied)
		}
		assert.Equal(t, outcomesSeen{middleware.OutcomeRefused: 8}, seen)
		for rule, key := range map[string]string{"all": "", "r": "user:a"} {
			found, err := l.Peek(t.Context(), rule, key)
			require.NoError(t, err)
			assert.Equal(t, found[0].Limit, found[0].Decision.Remaining, "no rule is charged")
		}
		limit, _ := limitOf(l, as("a"))
		assert.EqualValues(t, 3, limit, "another context has the rule's limit")
	})
}

func TestAZeroLimitInAConfigIsAnErrorThatNamesOtherWays(t *testing.T) {
	for _, edit := range []func(*middleware.Rule){
		func(r *middleware.Rule) { r.Limit = limiter.PerHour(0) },
		func(r *middleware.Rule) { r.Tiers = middleware.Tiers{"gold": limiter.PerHour(0)} },
		func(r *middleware.Rule) {
			r.Overrides = map[string]middleware.Override{"user:a": {Limit: limiter.PerHour(0)}}
		},
	} {
		rule := customers()
		edit(&rule)
		_, err := middleware.New(middleware.Config{Rules: []middleware.Rule{rule}})
		require.ErrorContains(t, err, "Events is 0")
		require.ErrorContains(t, err, "Mode Deny refuses all requests, and Config.Bans those of single clients")
	}
}

func TestARuleThatALimiterDoesNotHaveIsWarnedOfOnce(t *testing.T) {
	logger, log := logged()
	l := limited(t, middleware.Config{Logger: logger, Rules: []middleware.Rule{customers(), {Name: "closed", Mode: middleware.Deny, Match: middleware.Route("/closed")}}})
	for range 2 {
		limitOf(l, as("a"), limitedFor("R", logOf(5, time.Hour)), limitedFor("r", logOf(5, time.Hour)), limitedFor("closed", logOf(5, time.Hour)))
	}
	assert.Equal(t, 1, strings.Count(log.String(), "code=weir-unknown-rule"))
	assert.Contains(t, log.String(), "code=weir-unknown-rule rule=R")
	for i := range 20 {
		limitOf(l, as("a"), limitedFor(fmt.Sprint("unknown ", i), logOf(5, time.Hour)))
	}
	assert.Equal(t, 8, strings.Count(log.String(), "code=weir-unknown-rule"), "their number is bounded")
}

// Limits follow the load for weeks. The limiter keeps 4,096 of them, and compiles the others anew.
func TestAnyNumberOfClientsHaveLimitsOfTheirOwn(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		l := limited(t, middleware.Config{Logger: logger, Results: true, Rules: []middleware.Rule{customers()}})
		for round := range int64(2) {
			for n := range int64(5000) {
				limit, remaining := limitOf(l, as(fmt.Sprint(n)), limitedTo(limiter.PerDay(1_000_000+n)))
				require.Equal(t, []int64{1_000_000 + n, limit - round - 1}, []int64{limit, remaining})
			}
		}
		require.NotContains(t, log.String(), "weir-limit-failed")
	})
}

// Reset takes one call of the store for each name, so their number is bounded. No client pays for that.
func TestLimitsMayHaveAnyNumberOfPeriods(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		rule := customers()
		rule.Overrides = map[string]middleware.Override{"user:vip": {Limit: limiter.All(perHour(9), logOf(1, 5*time.Hour))}}
		l := limited(t, middleware.Config{Logger: logger, Rules: []middleware.Rule{rule}})
		ask := func(n int) int {
			two := limiter.All(perHour(9), logOf(1, 24*time.Hour+time.Duration(n)*time.Second))
			w, _ := check(l, request(as(fmt.Sprint(n)), limitedTo(two)))
			return w.Code
		}
		vip := func() int { w, _ := check(l, request(as("vip"))); return w.Code }
		require.Equal(t, []int{200, 429}, []int{vip(), vip()})
		for n := range 13_000 {
			require.Equal(t, 200, ask(n), n)
			if n%1000 == 0 {
				require.Equal(t, 429, ask(0), "it is always in use")
			}
		}
		for _, n := range []int{0, 9_000, 12_999} {
			require.Equal(t, 429, ask(n))
			require.NoError(t, l.Reset(t.Context(), "r", fmt.Sprint("user:", n)))
			assert.Equal(t, 200, ask(n), "%d has a counter of its own name", n)
		}
		require.NoError(t, l.Reset(t.Context(), "r", "user:vip"))
		assert.Equal(t, 200, vip())
		assert.NotContains(t, log.String(), "weir-limit-failed")
	})
}

// The store is not to blame, and waiting does not help.
func TestMoreLimitsThanAStoreDecidesAboutAreSaid(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for _, shadow := range []bool{false, true} {
			logger, log := logged()
			rules := []middleware.Rule{customers()}
			for i := range 60 {
				rules = append(rules, middleware.Rule{Name: fmt.Sprint("more", i), Key: keyfunc.Global, Limit: plenty})
			}
			l := limited(t, middleware.Config{Logger: logger, Rules: rules, Shadow: shadow})
			var many []limiter.Allowance
			for n := range 8 {
				many = append(many, logOf(5, time.Duration(n+1)*time.Hour))
			}
			w, _ := check(l, request(as("a"), limitedTo(limiter.All(many...))))
			if shadow {
				assert.Equal(t, 200, w.Code)
			} else {
				assert.Equal(t, 503, w.Code)
				assert.Empty(t, w.Header().Get("Retry-After"))
			}
			assert.Contains(t, log.String(), "code=weir-too-many-limits limits=68 most=64")
			assert.NotContains(t, log.String(), "weir-store-failed")
			w, _ = check(l, request(as("b")))
			assert.Equal(t, 200, w.Code, "other clients meet fewer")
		}
	})
}

// A limit's name, which has its period, is known as long as the rules change.
func TestResetKnowsTheNamesOfLimitsBeforeReconfigure(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		of := func(n int) middleware.Config {
			rule := customers()
			rule.Tiers, rule.Limit = nil, limiter.All(perHour(1000), logOf(1, 24*time.Hour+time.Duration(n)*time.Second))
			return configOf(rule)
		}
		l := limited(t, of(0))
		code := func() int { w, _ := check(l, request(as("a"))); return w.Code }
		assert.Equal(t, []int{200, 429}, []int{code(), code()})
		for n := 1; n <= 3000; n++ {
			require.NoError(t, l.Reconfigure(of(n)))
		}
		require.NoError(t, l.Reset(t.Context(), "r", "user:a"))
		require.NoError(t, l.Reconfigure(of(0)))
		assert.Equal(t, 200, code())
	})
}

// Two processes that share a store, whose rules never change.
func TestAnOverrideEndsInAllProcessesAtOneInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := limiter.NewMemory(limiter.MemoryOptions{})
		require.NoError(t, err)
		until := time.Now().Add(10 * time.Minute)
		rule := customers()
		rule.Overrides = map[string]middleware.Override{
			"user:import": {Limit: logOf(50, time.Hour), Until: until, Because: "ticket 815"},
			"user:long":   {Limit: logOf(50, time.Hour), Until: until.Add(time.Minute), Because: "ticket 815"},
			"user:big":    {Limit: logOf(50, time.Hour)},
		}
		var processes []*middleware.RateLimit
		for range 2 {
			c := configOf(rule)
			c.Store = store
			processes = append(processes, middleware.Must(middleware.New(c)))
		}
		limits := func(user string) (all []int64) {
			for _, l := range processes {
				limit, remaining := limitOf(l, as(user))
				all = append(all, limit, remaining)
			}
			return all
		}
		peek := func() middleware.RuleInfo {
			results, err := processes[1].Peek(t.Context(), "r", "user:import")
			require.NoError(t, err)
			require.Len(t, results, 2)
			require.Equal(t, results[0].Rule.Own, results[1].Rule.Own, "in both tiers")
			return *results[0].Rule
		}
		time.Sleep(10*time.Minute - 1)
		assert.Equal(t, []int64{50, 49, 50, 48}, limits("import"))
		info := peek()
		assert.True(t, info.Own && info.Until.Equal(until), info)
		assert.Equal(t, "ticket 815", info.Because)
		time.Sleep(time.Nanosecond)
		assert.Equal(t, []int64{3, 0, 0, 0}, limits("import"), "what was used stays used, so the second is refused")
		assert.False(t, peek().Own)
		assert.Equal(t, []int64{50, 49, 50, 48}, limits("long"))
		assert.Equal(t, []int64{50, 49, 50, 48}, limits("big"))
		time.Sleep(time.Minute)
		assert.Equal(t, []int64{3, 0, 0, 0}, limits("long"))
		assert.Equal(t, []int64{50, 47, 50, 46}, limits("big"))
	})
}

// A file whose overrides change for years, and versions of it that were refused.
func TestReloadsLeaveNoLimitBehind(t *testing.T) {
	limits := func(n, from int) map[string]middleware.Override {
		m := map[string]middleware.Override{}
		for i := range n {
			m[fmt.Sprint("user:", i)] = middleware.Override{Limit: limiter.PerDay(int64(1_000 + from + i))}
		}
		return m
	}
	config := func(m map[string]middleware.Override) middleware.Config {
		rule := customers()
		rule.Tiers, rule.Overrides = nil, m
		return configOf(rule)
	}
	l, err := middleware.New(config(limits(2, 0)))
	require.NoError(t, err)
	for range 3 {
		require.ErrorContains(t, l.Reconfigure(config(limits(4097, 100_000))), "more than the 4096 different limits")
	}
	for version := range 4200 {
		require.NoError(t, l.Reconfigure(config(limits(2, version))))
	}
	require.NoError(t, l.Reconfigure(config(limits(4096, 1_000_000))), "a version with as many as may be, all of them new")
	limit, _ := limitOf(l, as("4095"))
	assert.EqualValues(t, 1_000+1_000_000+4095, limit)
}

// Reset finds the counters of limits that the rule no longer has, also after a change of the rules.
func TestResetCoversTheFurtherCountersOfOwnLimits(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		several := limiter.All(logOf(5, time.Minute), logOf(6, time.Hour))
		for name, use := range map[string]func(rule *middleware.Rule) []func(*http.Request){
			"WithLimit": func(*middleware.Rule) []func(*http.Request) {
				return []func(*http.Request){as("a"), limitedTo(several)}
			},
			"Overrides": func(r *middleware.Rule) []func(*http.Request) {
				r.Overrides = map[string]middleware.Override{"user:a": {Limit: several}}
				return []func(*http.Request){as("a")}
			},
		} {
			rule := customers()
			edits := use(&rule)
			l := newLimit(t, rule)
			used := func() []limiter.Decision {
				_, result := check(l, request(edits...))
				return result.Rules[0].Limits
			}
			used()
			assert.EqualValues(t, 4, used()[1].Remaining, name)
			require.NoError(t, l.Reconfigure(configOf(customers())))
			require.NoError(t, l.Reset(t.Context(), "r", "user:a"))
			require.NoError(t, l.Reconfigure(configOf(rule)))
			assert.EqualValues(t, 5, used()[1].Remaining, name)
		}
	})
}

// An own limit may be several, and slots, though the rule has none.
func TestAClientMayHaveSeveralLimitsAndSlotsOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := limiter.All(logOf(5, time.Second), logOf(6, time.Hour), limiter.AtOnce(2).Queue(1, time.Hour))
		for _, name := range []string{"Overrides", "WithLimit", "WithLimit, of a rule without slots"} {
			rule := middleware.Rule{Name: "r", Key: keyfunc.User, Limit: limiter.All(logOf(100, time.Hour), limiter.AtOnce(1))}
			client := []func(*http.Request){as("big")}
			switch name {
			case "Overrides":
				rule.Overrides = map[string]middleware.Override{"user:big": {Limit: big}}
			case "WithLimit, of a rule without slots":
				rule.Limit = logOf(100, time.Hour)
				fallthrough
			default:
				client = append(client, limitedTo(big))
			}
			d := deskOf(t, middleware.Config{Rules: []middleware.Rule{rule}})
			assert.Empty(t, d.begin(client...), name)
			assert.Empty(t, d.begin(client...), name)
			waits := d.begin(client...)
			assert.Empty(t, waits, "%s: it waits for a slot of its own", name)
			assert.Equal(t, 429, (<-d.begin(client...)).Code, name)
			require.NoError(t, d.l.Reconfigure(middleware.Config{Rules: []middleware.Rule{rule}}))
			d.leave <- struct{}{}
			synctest.Wait()
			d.leave <- struct{}{}
			d.leave <- struct{}{}
			synctest.Wait()
			time.Sleep(time.Second)
			for range 3 {
				assert.Empty(t, d.begin(client...), name)
				d.leave <- struct{}{}
				synctest.Wait()
			}
			assert.Equal(t, 429, (<-d.begin(client...)).Code, "%s: six an hour", name)
			if name != "WithLimit, of a rule without slots" {
				assert.Empty(t, d.begin(as("small")), "%s: another key has the rule's one slot", name)
				assert.Equal(t, 429, (<-d.begin(as("small"))).Code, name)
				d.leave <- struct{}{}
			}
		}
	})
}

// A request meets at most 64 limits. Own limits may exceed that, and the store then decides nothing.
func TestMoreLimitsThanFitABatchAreAnswered503(t *testing.T) {
	most := limiter.Join(distinct(8), limiter.AtOnce(1))
	for n, want := range map[int]int{1: 200, 7: 200, 8: 503} {
		var rules []middleware.Rule
		edits := []func(*http.Request){as("a")}
		for i := range n {
			rules = append(rules, middleware.Rule{Name: fmt.Sprint(i), Key: keyfunc.User, Limit: perHour(9)})
			edits = append(edits, limitedFor(fmt.Sprint(i), most))
		}
		w := serve(newLimit(t, rules...).Handler(ok), request(edits...))
		assert.Equal(t, want, w.Code, n)
	}
}

// What else a rule has goes by the client's own limit.
func TestAnOwnLimitHoldsForAllThatARuleHas(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		five := limitedTo(logOf(5, time.Hour))
		t.Log("Reserve: an estimate beyond the limit is reserved as far as the limit goes")
		rule := customers()
		rule.Cost = middleware.Reserve(func(*http.Request) int64 { return 100 })
		l := newLimit(t, rule)
		settles := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			assert.NoError(t, middleware.Settle(r.Context(), "r", 2))
		}))
		assert.Equal(t, []int{200}, statuses(settles, 1, as("a"), five))
		found, err := l.Peek(ownContext(t, logOf(5, time.Hour)), "r", "user:a")
		require.NoError(t, err)
		assert.Equal(t, []any{int64(5), int64(3), true}, []any{found[0].Decision.Limit, found[0].Remaining, found[0].Rule.Own})

		t.Log("Counts: answers that do not count are refunded")
		rule = customers()
		rule.Counts = middleware.Statuses(401)
		l = newLimit(t, rule)
		statuses(l.Handler(ok), 9, as("a"), five)
		fails := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }))
		assert.Equal(t, []int{401, 401, 401, 401, 401, 429}, statuses(fails, 6, as("a"), five))

		t.Log("Distinct: so many values")
		rule = customers()
		rule.Distinct = keyfunc.Header("X-Value")
		l = newLimit(t, rule)
		for i := range 12 {
			want := 200
			if i%6 == 5 {
				want = 429
			}
			assert.Equal(t, []int{want}, statuses(l.Handler(ok), 1, as("a"), five, header("X-Value", fmt.Sprint(i%6))), i)
		}

		t.Log("Escalate: a refusal by the own limit counts, a suspended client's does not")
		rule = customers()
		rule.Escalate = bans.Escalation{After: 2, Within: time.Hour, Ban: time.Hour}
		list := bansOf(t)
		l = limited(t, middleware.Config{Logger: quiet, Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{rule}})
		assert.Equal(t, []int{429, 429, 429}, statuses(l.Handler(ok), 3, as("b"), limitedTo(limiter.PerHour(0))))
		assert.Equal(t, []int{200, 429, 429, 403}, statuses(l.Handler(ok), 4, as("b"), limitedTo(logOf(1, time.Hour))))
	})
}

// ownContext returns a context with that limit for rule r.
func ownContext(t *testing.T, limit limiter.Allowance) context.Context {
	ctx, err := middleware.WithLimit(t.Context(), "r", limit)
	require.NoError(t, err)
	return ctx
}

// What cannot be known without the context is not shown: the rule's limit is, with what the key has used.
func TestAnOwnLimitIsShownWhereTheContextHasIt(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		rule := customers()
		rule.Tiers = nil
		l := newLimit(t, rule)
		limitOf(l, as("a"), limitedTo(logOf(9, time.Hour)))
		for _, test := range []struct {
			ctx            context.Context
			edits          []func(*http.Request)
			own            bool
			limit, remains int64
		}{
			{t.Context(), []func(*http.Request){as("a")}, false, 3, 2},
			{ownContext(t, logOf(9, time.Hour)), []func(*http.Request){as("a"), limitedTo(logOf(9, time.Hour))}, true, 9, 8},
		} {
			found, err := l.Peek(test.ctx, "r", "user:a")
			require.NoError(t, err)
			assert.Equal(t, []any{test.own, test.limit, test.remains}, []any{found[0].Rule.Own, found[0].Decision.Limit, found[0].Remaining})
			e := l.Explain(request(test.edits...))
			assert.Equal(t, test.own, e.Rules[0].Rule.Own)
			u := usageOf(t, l, test.edits...)
			assert.Equal(t, test.remains, *u.rule(t, "r").Limits[0].Remaining)
		}
	})
}

// A key has less until its override ends. No wait is longer than that, and then its requests are admitted.
func TestNoWaitIsLongerThanAnOverride(t *testing.T) {
	for _, limit := range []limiter.Limit{limiter.PerHour(100), limiter.PerMinute(50).With(limiter.TokenBucket), limiter.Daily(500)} {
		t.Run(limit.String(), func(t *testing.T) {
			phase.Test(t, func(t *testing.T) {
				l := newLimit(t, middleware.Rule{Name: "r", Key: keyfunc.User, Limit: limit, Overrides: map[string]middleware.Override{
					"user:abuser": {Limit: logOf(20, 24*time.Hour), Until: time.Now().Add(10 * time.Minute)},
				}})
				for range 20 {
					_, result := check(l, request(as("abuser")))
					require.LessOrEqual(t, result.ResetAfter, 10*time.Minute)
				}
				time.Sleep(3 * time.Minute)
				w, _ := check(l, request(as("abuser")))
				require.Equal(t, http.StatusTooManyRequests, w.Code)
				require.Equal(t, "420", w.Header().Get("Retry-After"))
				left, err := l.Peek(t.Context(), "r", "user:abuser")
				require.NoError(t, err)
				require.LessOrEqual(t, left[0].RetryAfter, 7*time.Minute)
				time.Sleep(7 * time.Minute)
				w, _ = check(l, request(as("abuser")))
				require.Equal(t, http.StatusOK, w.Code)
			})
		})
	}
}

// The end of an override brings no units that a lower limit does not have.
func TestARaiseThatEndsShortensNoWait(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "r", Key: keyfunc.User, Limit: logOf(3, time.Hour), Overrides: map[string]middleware.Override{
			"user:big": {Limit: logOf(5, time.Hour), Until: time.Now().Add(time.Minute)},
		}})
		for range 5 {
			check(l, request(as("big")))
		}
		w, _ := check(l, request(as("big")))
		require.Equal(t, "3600", w.Header().Get("Retry-After"))
	})
}
