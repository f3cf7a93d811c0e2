package middleware_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
)

// tries is a rule that counts the user names that a client tries.
func tries(limit limiter.Allowance) middleware.Rule {
	return middleware.Rule{Name: "tries", Key: keyfunc.Header("X-Client"), Distinct: keyfunc.Header("X-User"), Limit: limit}
}

func TestDistinctCostsOnceForEachKeyAndValueInAPeriod(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		const most = 3
		l := limited(t, middleware.Config{Rules: []middleware.Rule{
			{Name: "all", Key: keyfunc.Global, Limit: limiter.PerSecond(1000)},
			tries(limiter.PerMinute(most).With(limiter.SlidingLog)),
		}})
		h, random := l.Handler(ok), rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
		counted := map[string]map[string]time.Time{"a": {}, "aa": {}} // by client and value, when it was charged
		for i := range 2000 {
			client, user := []string{"a", "aa"}[random.IntN(2)], []string{"a", "b", "c", "d", "aa", "1:a"}[random.IntN(6)]
			now, in := time.Now(), 0
			for _, at := range counted[client] {
				if now.Sub(at) < time.Minute {
					in++
				}
			}
			at, known := counted[client][user]
			seen := known && now.Sub(at) < time.Minute
			w := serve(h, request(header("X-Client", client), header("X-User", user)))
			want := 200
			if !seen && in == most {
				want = 429
			}
			require.Equal(t, want, w.Code, "%d: %s tries %s, seen %t, with %d counted", i, client, user, seen, in)
			if !seen && want == 200 {
				counted[client][user] = now
			}
			time.Sleep(time.Duration(random.IntN(20_000)) * time.Millisecond)
		}
	})
}

func TestValuesOfFixedWindowsBeginAnewWithThem(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for _, limit := range []limiter.Limit{limiter.PerMinute(1).With(limiter.FixedWindow), limiter.Daily(1)} {
			h := limited(t, middleware.Config{Rules: []middleware.Rule{tries(limit)}}).Handler(ok)
			ask := func(user string) int {
				return serve(h, request(header("X-Client", "a"), header("X-User", user))).Code
			}
			require.Equal(t, 200, ask("ann"))
			require.Equal(t, 429, ask("bob"))
			require.Equal(t, 200, ask("ann"), "it was counted")
			w := serve(h, request(header("X-Client", "a"), header("X-User", "bob")))
			reset, err := time.ParseDuration(w.Header().Get("Retry-After") + "s")
			require.NoError(t, err)
			time.Sleep(reset)
			require.Equal(t, 200, ask("bob"))
			require.Equal(t, 429, ask("ann"), "its count went with the window")
		}
	})
}

func TestAMissingValueIsTreatedAsNoKeySaysAndNeverCostsNothing(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*middleware.Rule)
		want   [2]int
	}{
		"share":        {func(*middleware.Rule) {}, [2]int{200, 429}},
		"skip":         {func(r *middleware.Rule) { r.NoKey = middleware.NoKeySkip }, [2]int{200, 200}},
		"bad request":  {func(r *middleware.Rule) { r.NoKey = middleware.NoKeyBadRequest }, [2]int{400, 400}},
		"unauthorized": {func(r *middleware.Rule) { r.NoKey = middleware.NoKeyUnauthorized }, [2]int{401, 401}},
		"ambiguous": {func(r *middleware.Rule) {
			r.Distinct = func(*http.Request) (string, error) { return "", keyfunc.ErrAmbiguous }
		}, [2]int{400, 400}},
		"failed": {func(r *middleware.Rule) {
			r.Distinct = func(*http.Request) (string, error) { return "", errors.New("broken") }
		}, [2]int{200, 429}},
		"failed, closed": {func(r *middleware.Rule) {
			r.Distinct, r.OnOutage = func(*http.Request) (string, error) { return "", errors.New("broken") }, limiter.FailClosed
		}, [2]int{503, 503}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := tries(perHour(1))
			test.change(&rule)
			h := limited(t, middleware.Config{Rules: []middleware.Rule{rule}}).Handler(ok)
			for i, want := range test.want {
				assert.Equal(t, want, serve(h, request(header("X-Client", "a"))).Code, i)
			}
		})
	}
}

func TestValuesAreShownToNobody(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		var observed int
		count := observer(func(o *middleware.Observation) { observed = len(o.Rules) })
		for _, mode := range []middleware.Mode{middleware.Enforce, middleware.Shadow} {
			rule := tries(perHour(2))
			rule.Mode = mode
			l := limited(t, middleware.Config{Rules: []middleware.Rule{rule}, Results: true, Observer: count})
			var result middleware.Result
			w := serve(l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				result, _ = middleware.FromContext(r.Context())
			})), request(header("X-Client", "a"), header("X-User", "ann")))
			assert.Len(t, result.Rules, 1)
			assert.Equal(t, 1, observed)
			assert.Len(t, l.Explain(request(header("X-Client", "a"), header("X-User", "ann"))).Rules, 1)
			found, err := l.Peek(t.Context(), "tries", result.Rules[0].Key)
			require.NoError(t, err)
			assert.Equal(t, int64(1), found[0].Remaining)
			assert.NotContains(t, fmt.Sprint(w.Header()), "values")
		}
	})
}

func TestAValueForWhichTheStoreHasNoRoomIsNew(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 1}))
		rule := tries(perHour(40))
		rule.Key = keyfunc.Global
		h := limited(t, middleware.Config{Store: store, Rules: []middleware.Rule{rule}}).Handler(ok)
		passed := 0
		for i := range 20_000 {
			if serve(h, request(header("X-User", fmt.Sprint(i)))).Code == 200 {
				passed++
			}
		}
		assert.Equal(t, 40, passed, "a full table makes no value one that was seen")
	})
}

func TestDistinctMeetsAnOutageAsItsRuleSays(t *testing.T) {
	for outage, want := range map[limiter.Outage][3]int{
		limiter.FailLocal: {200, 200, 429}, limiter.FailOpen: {200, 200, 200}, limiter.FailClosed: {503, 503, 503},
	} {
		t.Run(outage.String(), func(t *testing.T) {
			phase.Test(t, func(t *testing.T) {
				store := failover.Must(failover.New(brokenStore{}, failover.Options{OnDegraded: func(failover.Event) {}}))
				rule := tries(perHour(1))
				rule.OnOutage = outage
				h := limited(t, middleware.Config{Store: store, Rules: []middleware.Rule{rule}}).Handler(ok)
				for i, user := range []string{"ann", "ann", "bob"} {
					assert.Equal(t, want[i], serve(h, request(header("X-Client", "a"), header("X-User", user))).Code, user)
				}
			})
		})
	}
}

// A request that ends without counting must not pay for the guess that ran beside it.
func TestAValueIsSeenOnlyWhenARequestWithItHasCounted(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for _, guessEndsFirst := range []bool{false, true} {
			rule := tries(perHour(2))
			rule.Counts = middleware.Statuses(401)
			l := limited(t, middleware.Config{Rules: []middleware.Rule{rule}})
			ask := func(user string) (end func(status int)) {
				entered := l.Enter(httptest.NewRecorder(), request(header("X-Client", "a"), header("X-User", user)), nil)
				if entered == nil {
					return nil
				}
				return entered.End
			}
			guessed := 0
			for i := range 10 {
				user := fmt.Sprint("account ", i)
				harmless, guess := ask(user), ask(user)
				if guess != nil {
					guessed++
				}
				ends := []func(){func() {
					if harmless != nil {
						harmless(400)
					}
				}, func() {
					if guess != nil {
						guess(401)
					}
				}}
				if guessEndsFirst {
					slices.Reverse(ends)
				}
				for _, end := range ends {
					end()
				}
			}
			// A request in progress has a unit too, so the last account gets no second request.
			assert.Equal(t, 1, guessed)
			last := ask("account 9")
			require.NotNil(t, last, "one unit is left")
			last(401)
			assert.Nil(t, ask("account 8"), "two accounts have counted")
			again := ask("account 0")
			require.NotNil(t, again, "which has counted, and costs nothing")
			again(401)
		}
	})
}

// While a request waits for a slot, a value that was seen may expire.
func TestAValueThatExpiresInAQueueIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{
			tries(limiter.PerMinute(3).With(limiter.SlidingLog)),
			{Name: "slots", Key: keyfunc.Global, Limit: limiter.AtOnce(1).Queue(2, 10*time.Minute)},
		}})
		end := make(chan bool)
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
		var wait sync.WaitGroup
		ask := func(user string) {
			wait.Go(func() { serve(h, request(header("X-Client", "a"), header("X-User", user))) })
			synctest.Wait()
		}
		left := func() int64 {
			used, err := l.Peek(t.Context(), "tries", "header:X-Client:a")
			require.NoError(t, err)
			return used[0].Remaining
		}
		ask("u")
		ask("u") // which was seen
		require.EqualValues(t, 2, left())
		time.Sleep(2 * time.Minute)
		require.EqualValues(t, 3, left())
		end <- true
		synctest.Wait()
		assert.EqualValues(t, 2, left(), "it is new again")
		end <- true
		wait.Wait()
	})
}

func TestAValueThatIsSettledWithNothingCountsAsNewAgain(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			costs []int64 // of requests with one value; -1: nothing is settled
			left  int64
		}{
			"never settled":                        {[]int64{-1}, 9},
			"settled with one":                     {[]int64{1}, 9},
			"settled with more than a value":       {[]int64{5}, 9},
			"settled with nothing":                 {[]int64{0}, 10},
			"new again":                            {[]int64{0, 0, -1}, 9},
			"seen, and settled with nothing":       {[]int64{-1, 0}, 9},
			"seen, and settled with one":           {[]int64{-1, 1, 5}, 9},
			"refunded, seen, settled with nothing": {[]int64{0, -1, 0}, 9},
		} {
			rule := tries(limiter.PerHour(10))
			rule.Cost = middleware.Reserve(func(*http.Request) int64 { return 7 })
			l := limited(t, middleware.Config{Rules: []middleware.Rule{rule}})
			for _, cost := range test.costs {
				through(l, func(_ http.ResponseWriter, r *http.Request) {
					if cost >= 0 {
						assert.NoError(t, middleware.Settle(r.Context(), "tries", cost))
					}
				}, header("X-Client", "a"), header("X-User", "b"))
			}
			assert.Equal(t, test.left, left(t, l, "tries", "header:X-Client:a"), name)
		}
	})
}
