package middleware_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

func configOf(rules ...middleware.Rule) middleware.Config {
	return middleware.Config{Logger: quiet, Results: true, Rules: rules}
}

func TestABadConfigChangesNothing(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: limiter.PerDay(3)})
		_, result := check(l, request())
		require.EqualValues(t, 2, result.Remaining)
		for _, bad := range []middleware.Config{
			{},
			configOf(middleware.Rule{Name: "r", Key: keyfunc.Global}),
			configOf(middleware.Rule{Name: "other", Key: keyfunc.Global, Limit: limiter.PerDay(9)}, middleware.Rule{Name: "other", Key: keyfunc.Global, Limit: limiter.PerDay(9)}),
			{Bans: middleware.Bans{Status: 404}, Rules: []middleware.Rule{{Name: "other", Key: keyfunc.Global, Limit: limiter.PerDay(9)}}},
		} {
			require.ErrorContains(t, l.Reconfigure(bad), "middleware: ")
		}
		_, result = check(l, request())
		assert.Equal(t, "r", result.Rule)
		assert.EqualValues(t, 1, result.Remaining)
	})
}

func TestCountersOutliveAChangeOfConfig(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		keyed := func(n int64) middleware.Rule {
			return middleware.Rule{Name: "r", Key: keyfunc.IP(), Limit: limiter.PerDay(n), Tiers: middleware.Tiers{"gold": limiter.PerDay(2 * n)}}
		}
		l := newLimit(t, keyed(10))
		use := func(times int, edits ...func(*http.Request)) (d limiter.Decision) {
			for range times {
				_, result := check(l, request(edits...))
				d = result.Decision
			}
			return d
		}
		use(4)
		use(5, inTier("gold"))
		change := func(c middleware.Config) { t.Helper(); require.NoError(t, l.Reconfigure(c)) }

		change(configOf(keyed(10), middleware.Rule{Name: "new", Key: keyfunc.Global, Limit: plenty}))
		assert.EqualValues(t, 5, use(1).Remaining, "the rule is as it was")
		change(configOf(keyed(20)))
		assert.EqualValues(t, 14, use(1).Remaining, "what was used stays used of a higher limit")
		assert.EqualValues(t, 34, use(1, inTier("gold")).Remaining, "and in each tier")
		change(configOf(keyed(8)))
		assert.EqualValues(t, 1, use(1).Remaining, "and of a lower one")
		assert.EqualValues(t, 7, use(1, from("192.0.2.2:1")).Remaining)
		change(configOf(keyed(3)))
		assert.Equal(t, 429, serve(l.Handler(ok), request()).Code, "though that has no room left")
		assert.EqualValues(t, 1, use(1, from("192.0.2.2:1")).Remaining)

		moved := keyed(20)
		change(middleware.Config{Logger: quiet, Results: true, Default: []middleware.Rule{moved}})
		assert.EqualValues(t, 12, use(1).Remaining, "another place is no other counter")
		moved.Limit = limiter.PerDay(20).With(limiter.TokenBucket)
		change(middleware.Config{Logger: quiet, Results: true, Default: []middleware.Rule{moved}})
		assert.EqualValues(t, 11, use(1).Remaining, "and neither is another algorithm")

		change(configOf(middleware.Rule{Name: "another", Key: keyfunc.Global, Limit: plenty}))
		use(1)
		change(configOf(keyed(20)))
		assert.EqualValues(t, 10, use(1).Remaining, "a rule that was away finds its counters again")
		renamed := keyed(20)
		renamed.Name = "s"
		change(configOf(renamed))
		assert.EqualValues(t, 19, use(1).Remaining, "a new name is a new counter")
	})
}

func TestStrikesOutliveAChangeOfConfig(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		rule := loginRule(bans.Escalation{After: 3, Within: time.Hour, Ban: time.Hour})
		rule.Limit = limiter.PerDay(3)
		config := func() middleware.Config {
			return middleware.Config{Logger: quiet, Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{rule}}
		}
		l := limited(t, config())
		for n := range 6 {
			w, _ := check(l, request())
			assert.Equal(t, n < 3, w.Code == 200)
			rule.SoftAt = n + 1
			require.NoError(t, l.Reconfigure(config()))
		}
		assert.Equal(t, 1, bansIn(t, list))
		assert.Equal(t, 403, serve(l.Handler(ok), request()).Code)
	})
}

func TestARequestIsDecidedByTheOutagePolicyThatItCameUnder(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		store := &spy{}
		c := configOf(middleware.Rule{Name: "same", Key: keyfunc.Global, Limit: plenty})
		c.Store = store
		l := limited(t, c)
		check(l, request())
		c.Rules[0].OnOutage = limiter.FailClosed
		require.NoError(t, l.Reconfigure(c))
		check(l, request())
		assert.Equal(t, limiter.FailClosed, store.charged[1].Quota.OnOutage)
		assert.Equal(t, limiter.FailLocal, store.charged[0].Quota.OnOutage, "requests that came before are decided as they came")
	})
}

func TestEverythingButTheStoreChangesAtOnce(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := newLimit(t, middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: plenty})
		require.NoError(t, l.Reconfigure(middleware.Config{Headers: middleware.Headers{Send: middleware.HeadersLegacy}, Bans: middleware.Bans{Deny: middleware.MatchFunc(func(r *http.Request) bool { return r.Method == "PUT" }), Status: 429},
			Default: []middleware.Rule{{Name: "d", Key: keyfunc.Global, Limit: limiter.PerDay(1)}}}))
		w := serve(l.Handler(ok), request())
		assert.Equal(t, "1", w.Header().Get("X-RateLimit-Limit"))
		assert.NotContains(t, w.Header(), "Ratelimit")
		assert.Equal(t, 429, serve(l.Handler(ok), request(func(r *http.Request) { r.Method = "PUT" })).Code)
	})
}

// uncomparable stores cannot be told apart.
type uncomparable struct {
	limiter.Store
	_ []int
}

func TestAnotherStoreIsRefused(t *testing.T) {
	rule := middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: plenty}
	memory, err := limiter.NewMemory(limiter.MemoryOptions{})
	require.NoError(t, err)
	another, err := limiter.NewMemory(limiter.MemoryOptions{})
	require.NoError(t, err)
	type inside struct{ limiter.Store }
	for name, test := range map[string]struct {
		before, after limiter.Store
		same          bool
	}{
		"its own":                {nil, nil, true},
		"none named":             {memory, nil, true},
		"the same":               {memory, memory, true},
		"the same, inside":       {inside{memory}, inside{memory}, true},
		"another":                {memory, another, false},
		"another, inside":        {inside{memory}, inside{another}, false},
		"one for its own":        {nil, memory, false},
		"another type":           {memory, &spy{}, false},
		"uncomparable":           {uncomparable{Store: memory}, uncomparable{Store: memory}, false},
		"an uncomparable inside": {inside{uncomparable{Store: memory}}, inside{uncomparable{Store: memory}}, false},
	} {
		l := limited(t, middleware.Config{Store: test.before, Rules: []middleware.Rule{rule}})
		c := configOf(rule)
		c.Store = test.after
		err := l.Reconfigure(c)
		if test.same {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, "Config.Store is another store", name)
		}
	}
}

func TestReconfigureDoesNotWarnAboutItsOwnCounters(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		store, err := limiter.NewMemory(limiter.MemoryOptions{})
		require.NoError(t, err)
		config := func(names ...string) middleware.Config {
			c := middleware.Config{Store: store, Logger: logger}
			for _, name := range names {
				c.Rules = append(c.Rules, middleware.Rule{Name: name, Key: keyfunc.Global, Limit: limiter.PerDay(5)})
			}
			return c
		}
		l := limited(t, config("a"))
		for _, names := range [][]string{{"a"}, {"a", "b"}, {"b"}, {"a", "c"}} {
			require.NoError(t, l.Reconfigure(config(names...)))
		}
		assert.Empty(t, log.String())

		other := limited(t, config("d"))
		assert.Empty(t, log.String())
		require.NoError(t, other.Reconfigure(config("d", "a")))
		require.NoError(t, other.Reconfigure(config("d", "a")))
		assert.Equal(t, 1, strings.Count(log.String(), `code=weir-shared-counter rule=a`+"\n"), "that one is of another limiter")

		broken := &claimless{Memory: store}
		l = limited(t, middleware.Config{Store: broken, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: limiter.PerDay(5)}}})
		broken.fails = true
		require.ErrorContains(t, l.Reconfigure(configOf(middleware.Rule{Name: "s", Key: keyfunc.Global, Limit: plenty})), "Config.Store: no more claims")
		_, result := check(l, request())
		assert.Equal(t, "r", result.Rule, "an error changes nothing")
	})
}

// A claimless store stops taking claims.
type claimless struct {
	*limiter.Memory
	fails  bool
	claims int
}

func (c *claimless) Claim(name string) error {
	if c.fails {
		return fmt.Errorf("no more claims")
	}
	c.claims++
	return c.Memory.Claim(name)
}

// Rules of a file may have new names with each change.
func TestTheNamesThatALimiterClaimsAreBounded(t *testing.T) {
	const changes, rules = 11, 1000
	store := &claimless{Memory: limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}
	config := func(change int) (c middleware.Config) {
		c = middleware.Config{Logger: quiet, Store: store, ByRoute: map[string][]middleware.Rule{}}
		for i := range rules {
			name := fmt.Sprintf("%d of %d", i, change)
			c.ByRoute["/"+strconv.Itoa(i)] = []middleware.Rule{{Name: name, Key: keyfunc.Global, Limit: plenty}}
		}
		return c
	}
	l := limited(t, config(0))
	for change := range changes {
		require.NoError(t, l.Reconfigure(config(change)))
	}
	assert.Equal(t, 10_000, store.claims)
}

func TestExactlyTheLimitPassesWhileTheConfigChanges(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		const n, workers, each = 200, 6, 100
		shared := func(l limiter.Limit) middleware.Rule {
			return middleware.Rule{Name: "shared", Key: keyfunc.Global, Limit: l}
		}
		keyed := middleware.Rule{Name: "keyed", Key: keyfunc.IP(), Limit: limiter.PerDay(n)}
		otherwise := shared(limiter.PerDay(n))
		configs := []middleware.Config{
			configOf(shared(limiter.PerDay(n)), keyed),
			configOf(keyed, shared(limiter.PerDay(n)), middleware.Rule{Name: "more", Key: keyfunc.Global, Limit: plenty}),
			configOf(shared(limiter.Limit{Events: n, Per: 48 * time.Hour, Algorithm: limiter.FixedWindow}), keyed),
			configOf(shared(limiter.PerDay(n).With(limiter.SlidingLog)), middleware.Rule{Name: "shadow", Key: keyfunc.Global, Limit: limiter.PerDay(1), Mode: middleware.Shadow}),
			{Logger: quiet, Default: []middleware.Rule{otherwise}, Headers: middleware.Headers{Send: middleware.HeadersNone}},
		}
		logger, log := logged()
		l, err := middleware.New(middleware.Config{Logger: logger, Rules: configs[0].Rules})
		require.NoError(t, err)
		stop := make(chan struct{})
		var changing, group sync.WaitGroup
		changing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					assert.NoError(t, l.Reconfigure(configs[i%len(configs)]))
				}
			}
		})
		var passed atomic.Int64
		for i := range workers {
			group.Go(func() {
				for range each {
					if w, _ := check(l, request(from(fmt.Sprintf("192.0.2.%d:1", i)))); w.Code == 200 {
						passed.Add(1)
					}
				}
			})
		}
		group.Wait()
		close(stop)
		changing.Wait()
		assert.EqualValues(t, n, passed.Load())
		assert.Empty(t, log.String())
	})
}

// A request that came under rules that need no route is not decided by rules that do,
// without its route.
func TestARequestIsRoutedForTheRulesThatDecide(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.Handle("/a", ok)
		unrouted := configOf(middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: plenty})
		routed := middleware.Config{Logger: quiet, ByRoute: byRoute(plenty, "/a"), Default: []middleware.Rule{{Name: "unknown", Key: keyfunc.Global, Limit: plenty}}}
		unrouted.Headers, routed.Headers = bothHeaders, bothHeaders
		l := limited(t, unrouted)
		h := l.Handler(mux)
		stop := make(chan struct{})
		var changing sync.WaitGroup
		changing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					assert.NoError(t, l.Reconfigure(routed))
					assert.NoError(t, l.Reconfigure(unrouted))
				}
			}
		})
		defer changing.Wait()
		defer close(stop)
		r, w := request(func(r *http.Request) { r.URL.Path = "/a" }), nobody{http.Header{}}
		for range 30_000 {
			clear(w.header)
			r.Pattern = ""
			h.ServeHTTP(w, r)
			require.NotContains(t, w.header["Ratelimit"][0], "unknown")
		}
	})
}
