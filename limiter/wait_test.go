package limiter_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

func TestWaitTakesUnitsWhenTheyAreThere(t *testing.T) {
	for _, a := range everyAlgorithm {
		onEveryStore(t, func(t *testing.T, store limiter.Store) {
			l := tokens(store, a)
			begin := time.Now()
			require.NoError(t, l.Wait(t.Context(), "key", 0))
			require.NoError(t, l.Wait(t.Context(), "key", 70))
			assert.Equal(t, begin, time.Now())
			require.NoError(t, l.Wait(t.Context(), "other", remaining(t, l, "other")))
			least := ask(t, l, "key", 60).RetryAfter
			if a == limiter.LeakyBucket {
				least += time.Hour * 41 / 100 // until those before it have left
			}
			require.NoError(t, l.Wait(t.Context(), "key", 60))
			assert.Equal(t, least, time.Since(begin))
		})
	}
}

func TestWaitersAllGetTheirTurn(t *testing.T) {
	for _, a := range everyAlgorithm {
		onEveryStore(t, func(t *testing.T, store limiter.Store) {
			l := api(limiter.PerSecond(2).With(a), store)
			begin := time.Now()
			done := make(chan error)
			for range 20 {
				go func() { done <- l.Wait(t.Context(), "key", 1) }()
			}
			for range 20 {
				require.NoError(t, <-done)
			}
			assert.Greater(t, time.Since(begin), 8*time.Second)
			assert.Less(t, time.Since(begin), 30*time.Second, "%v", a)
		})
	}
}

func TestACallerThatMeetsNoOtherGetsItsUnitsOnTime(t *testing.T) {
	for _, a := range everyAlgorithm {
		if a == limiter.LeakyBucket {
			continue // it refuses no waiter
		}
		for _, period := range []time.Duration{10 * time.Millisecond, time.Second, 30 * 24 * time.Hour} {
			onEveryStore(t, func(t *testing.T, store limiter.Store) {
				l := api(limiter.Limit{Events: 1, Per: period, Algorithm: a}, store)
				require.NoError(t, l.Wait(t.Context(), "key", 1))
				d, err := l.AllowN(t.Context(), "key", 1) // a window ends when it ends
				require.NoError(t, err)
				begin := time.Now()
				for range 100 {
					require.NoError(t, l.Wait(t.Context(), "key", 1))
				}
				assert.Equal(t, d.RetryAfter+99*period, time.Since(begin), "%v, %v", a, period)
			})
		}
	}
}

// All callers are refused at once, and again when the first of them has passed.
func TestCallersThatAreRefusedAgainComeBackApartAndSoon(t *testing.T) {
	for limit, latest := range map[limiter.Allowance]time.Duration{
		limiter.PerDay(1).With(limiter.FixedWindow):                                       100 * time.Millisecond,
		limiter.PerHour(1).With(limiter.SlidingLog):                                       100 * time.Millisecond,
		limiter.PerSecond(5).With(limiter.FixedWindow):                                    100 * time.Millisecond, // a tenth of a second
		limiter.PerSecond(100).With(limiter.FixedWindow):                                  10 * time.Millisecond,
		limiter.PerSecond(1000).With(limiter.FixedWindow):                                 time.Millisecond,
		limiter.All(limiter.PerMinute(10).With(limiter.FixedWindow), limiter.PerHour(60)): 100 * time.Millisecond,
	} {
		onEveryStore(t, func(t *testing.T, store limiter.Store) {
			l := api(limit, store)
			events := remaining(t, l, "key")
			limits, _, err := limiter.Split(limit)
			require.NoError(t, err)
			require.NoError(t, l.Wait(t.Context(), "key", events))
			next := time.Now().Add(ask(t, l, "key", events).RetryAfter)
			const callers = 5
			late := make(chan time.Duration)
			for range callers {
				go func() {
					if err := l.Wait(t.Context(), "key", events); err != nil {
						panic(err)
					}
					late <- time.Since(next)
				}()
			}
			var apart bool
			for i := range time.Duration(callers) {
				after := <-late - i*limits[0].Per
				assert.LessOrEqual(t, after, i*latest, "%v, caller %d", limit, i)
				apart = apart || after > 0
			}
			assert.True(t, apart, "%v", limit)
		})
	}
}

func TestALeakyBucketLetsWaitersOutEvenly(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store limiter.Store) {
		l := api(limiter.PerSecond(10).With(limiter.LeakyBucket), store)
		begin := time.Now()
		left := make(chan time.Duration)
		for range 10 {
			go func() {
				if err := l.Wait(t.Context(), "key", 1); err != nil {
					panic(err)
				}
				left <- time.Since(begin)
			}()
		}
		for i := range time.Duration(10) {
			assert.Equal(t, i*100*time.Millisecond, <-left)
		}
	})
}

func TestAWaitThatDoesNotFitFailsAtOnceAndTakesNothing(t *testing.T) {
	for _, a := range everyAlgorithm {
		onEveryStore(t, func(t *testing.T, store limiter.Store) {
			l := tokens(store, a)
			ask(t, l, "key", 90)
			before := ask(t, l, "key", 0)
			ctx, end := context.WithTimeout(t.Context(), time.Millisecond)
			defer end()
			begin := time.Now()
			err := l.Wait(ctx, "key", 50)
			var wait *limiter.WaitError
			require.ErrorAs(t, err, &wait)
			assert.Equal(t, "tokens", wait.Name)
			require.ErrorContains(t, wait, `wait for "tokens": it would take `)
			assert.Equal(t, begin, time.Now())
			least := ask(t, l, "key", 50).RetryAfter
			if a == limiter.LeakyBucket {
				least += time.Hour * 51 / 100
			}
			assert.Equal(t, least, wait.Wait)
			assert.Equal(t, before, ask(t, l, "key", 0))

			require.ErrorAs(t, l.Wait(t.Context(), "key", remaining(t, l, "other")+1), &wait)
			assert.Equal(t, limiter.Never, wait.Wait)
			require.ErrorContains(t, wait, "never fit")
			require.ErrorIs(t, l.Wait(t.Context(), "key", -1), limiter.ErrCharges)
		})
	}
}

func TestAWaiterThatGivesUpLeavesNothingBehind(t *testing.T) {
	for _, a := range everyAlgorithm {
		onEveryStore(t, func(t *testing.T, store limiter.Store) {
			l := tokens(store, a)
			all := remaining(t, l, "key")
			ask(t, l, "key", all-10)
			before := ask(t, l, "key", all)
			ctx, end := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- l.Wait(ctx, "key", 50) }()
			const pause = time.Second
			time.Sleep(pause)
			end()
			require.ErrorIs(t, <-done, context.Canceled)
			assert.Equal(t, before.RetryAfter-pause, ask(t, l, "key", all).RetryAfter, "%v", a)
		})
	}
}

func TestAWaitThatHasEndedAsksNothing(t *testing.T) {
	l := tokens(nil, limiter.FixedWindow)
	ctx, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, l.Wait(ctx, "key", 1), context.Canceled)
	assert.Equal(t, int64(100), remaining(t, l, "key"))
	require.ErrorIs(t, tokens(brokenStore{}, limiter.FixedWindow).Wait(t.Context(), "key", 1), errOutage)
}

// However many callers cannot wait, callers that can wait leave as if there were no others.
func TestCallersThatCannotWaitDoNotLengthenTheQueue(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store limiter.Store) {
		l := api(limiter.Limit{Events: 10, Per: time.Second, Burst: 600, Algorithm: limiter.LeakyBucket}, store)
		var left atomic.Int64
		for range 50 {
			for range 40 {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if l.Wait(ctx, "key", 1) == nil {
						left.Add(1)
					}
				}()
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		require.Equal(t, int64(59), left.Load(), "as many as leave in 4.9 s, and those that wait in the last second")
	})
}
