package limiter_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"

	"github.com/weirgo/weir/limiter"
)

// onEveryStore runs f with a Memory, and with a store that is none, in the middle of an hour.
func onEveryStore(t *testing.T, f func(t *testing.T, store limiter.Store)) {
	for name, newStore := range newStores {
		phase.Run(t, name, func(t *testing.T) {
			time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(80 * time.Minute)))
			f(t, newStore())
		})
	}
}

// ask asks for n units.
func ask(t *testing.T, l *limiter.Limiter, key string, n int64) limiter.Decision {
	t.Helper()
	d, err := l.AllowN(t.Context(), key, n)
	require.NoError(t, err)
	return d
}

func remaining(t *testing.T, l *limiter.Limiter, key string) int64 {
	t.Helper()
	return ask(t, l, key, 0).Remaining
}

// tokens is a limiter of 100 that settles.
func tokens(store limiter.Store, a limiter.Algorithm) *limiter.Limiter {
	return limiter.Must(limiter.New(limiter.Config{Name: "tokens", Limit: limiter.PerHour(100).With(a), Settles: true, Store: store}))
}

func mustReserve(t *testing.T, l *limiter.Limiter, n int64) (release func(actual int64) error, cancel func() error) {
	t.Helper()
	hold, d, err := l.Reserve(t.Context(), "key", n)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	return hold.Settle, hold.Cancel
}

func TestAHoldIsSettledToWhatTheEventReallyCost(t *testing.T) {
	for _, a := range everyAlgorithm {
		onEveryStore(t, func(t *testing.T, store limiter.Store) {
			l := tokens(store, a)
			all := remaining(t, l, "key")
			settle, _ := mustReserve(t, l, 60)
			assert.Equal(t, all-60, remaining(t, l, "key"))
			require.NoError(t, settle(25))
			assert.Equal(t, all-25, remaining(t, l, "key"), "less is refunded")

			settle, _ = mustReserve(t, l, 20)
			require.NoError(t, settle(50))
			assert.Equal(t, all-75, remaining(t, l, "key"), "more is owed")

			settle, _ = mustReserve(t, l, 5)
			require.NoError(t, settle(5))
			assert.Equal(t, all-80, remaining(t, l, "key"))
		})
	}
}

func TestTheFirstSettlementCounts(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store limiter.Store) {
		l := tokens(store, limiter.FixedWindow)
		settle, cancel := mustReserve(t, l, 60)
		require.ErrorIs(t, settle(-1), limiter.ErrCharges, "the hold is as before")
		require.NoError(t, settle(10))
		require.ErrorIs(t, settle(90), limiter.ErrSettled)
		require.ErrorIs(t, cancel(), limiter.ErrSettled)
		assert.Equal(t, int64(90), remaining(t, l, "key"))

		settle, cancel = mustReserve(t, l, 60)
		require.NoError(t, cancel())
		assert.Equal(t, int64(90), remaining(t, l, "key"), "all was refunded")
		require.ErrorIs(t, cancel(), limiter.ErrSettled)
		require.ErrorIs(t, settle(60), limiter.ErrSettled)
		assert.Equal(t, int64(90), remaining(t, l, "key"))
	})
}

func TestOneOfManySettlementsAtOnceCounts(t *testing.T) {
	l := tokens(nil, limiter.TokenBucket)
	hold, _, err := l.Reserve(t.Context(), "key", 100)
	require.NoError(t, err)
	var settled sync.WaitGroup
	errs := make(chan error, 16)
	for range cap(errs) {
		settled.Go(func() { errs <- hold.Settle(40) })
	}
	settled.Wait()
	close(errs)
	first := 0
	for err := range errs {
		if err == nil {
			first++
			continue
		}
		require.ErrorIs(t, err, limiter.ErrSettled)
	}
	assert.Equal(t, 1, first)
	assert.Equal(t, int64(60), remaining(t, l, "key"))
}

func TestAReservationAboveTheLimitIsTheLimit(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store limiter.Store) {
		l := tokens(store, limiter.SlidingCounter)
		settle, _ := mustReserve(t, l, math.MaxInt64)
		assert.Zero(t, remaining(t, l, "key"))
		require.NoError(t, settle(30))
		assert.Equal(t, int64(70), remaining(t, l, "key"), "what came back is of what was taken")

		require.NoError(t, l.Reset(t.Context(), "key"))
		settle, _ = mustReserve(t, l, 150)
		require.NoError(t, settle(120))
		d := ask(t, l, "key", 1)
		assert.Greater(t, d.RetryAfter, time.Hour/100, "20 more than was taken are owed")
	})
}

func TestAnEstimateBelowOneIsOne(t *testing.T) {
	for _, n := range []int64{0, -1, math.MinInt64} {
		onEveryStore(t, func(t *testing.T, store limiter.Store) {
			l := tokens(store, limiter.FixedWindow)
			settle, _ := mustReserve(t, l, n)
			assert.Equal(t, int64(99), remaining(t, l, "key"))
			require.NoError(t, settle(8))
			assert.Equal(t, int64(92), remaining(t, l, "key"))
		})
	}
}

func TestAHoldOfARefusalOrAnErrorHoldsNothing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store limiter.Store) {
		l := tokens(store, limiter.FixedWindow)
		mustReserve(t, l, 60)
		hold, d, err := l.Reserve(t.Context(), "key", 50)
		require.NoError(t, err)
		assert.False(t, d.Allowed)
		require.ErrorIs(t, hold.Cancel(), limiter.ErrCharges)
		require.ErrorIs(t, hold.Settle(1), limiter.ErrCharges)
		assert.Equal(t, int64(40), remaining(t, l, "key"))
	})
	l := tokens(brokenStore{}, limiter.FixedWindow)
	hold, _, err := l.Reserve(t.Context(), "key", 50)
	require.ErrorIs(t, err, errOutage)
	require.ErrorIs(t, hold.Cancel(), limiter.ErrCharges)
	require.ErrorIs(t, hold.Settle(1), limiter.ErrCharges)
}

func TestReservingHasToBeConfigured(t *testing.T) {
	l := limiter.Must(limiter.New(limiter.Config{Name: "tokens", Limit: limiter.PerHour(100)}))
	_, d, err := l.Reserve(t.Context(), "key", 1)
	require.ErrorIs(t, err, limiter.ErrCharges)
	require.ErrorContains(t, err, `"tokens", whose Config has Settles false`)
	assert.False(t, d.Allowed)
	assert.Equal(t, int64(100), remaining(t, l, "key"))
}

// settledStore has its settlements fail if their context has ended.
type settledStore struct{ limiter.Store }

func (s settledStore) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		return fmt.Errorf("nothing ends this call")
	}
	return s.Store.Settle(ctx, settlements)
}

func TestSettlingOutlivesTheContextOfTheReservation(t *testing.T) {
	l := tokens(settledStore{limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}, limiter.FixedWindow)
	ctx, end := context.WithCancel(t.Context())
	hold, _, err := l.Reserve(ctx, "key", 60)
	require.NoError(t, err)
	end()
	require.NoError(t, hold.Settle(10))
	assert.Equal(t, int64(90), remaining(t, l, "key"))
}

func TestALimiterOfSeveralLimitsTakesFromAllOrNone(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store limiter.Store) {
		limits := limiter.All(limiter.PerSecond(10), limiter.PerHour(15), limiter.PerDay(1000))
		l := limiter.Must(limiter.New(limiter.Config{Name: "api", Limit: limits, Settles: true, Store: store}))
		d := ask(t, l, "key", 8)
		assert.True(t, d.Allowed)
		assert.Equal(t, int64(10), d.Limit, "the fewest are left of the second's")
		assert.Equal(t, int64(2), d.Remaining)

		d = ask(t, l, "key", 8)
		assert.False(t, d.Allowed)
		assert.Equal(t, int64(2), d.Remaining)
		assert.Equal(t, int64(10), d.Limit)
		assert.Greater(t, d.RetryAfter, time.Minute, "the hour's refusal lasts longest")
		time.Sleep(10 * time.Second)

		d = ask(t, l, "key", 7)
		assert.True(t, d.Allowed)
		assert.Equal(t, int64(15), d.Limit)
		assert.Zero(t, d.Remaining)
		assert.Equal(t, limiter.Never, ask(t, l, "key", 11).RetryAfter)

		require.NoError(t, l.Reset(t.Context(), "key"))
		d = ask(t, l, "key", 1)
		assert.Equal(t, int64(9), d.Remaining)
		require.NoError(t, l.Refund(t.Context(), "key", 1, d))
		hold, d, err := l.Reserve(t.Context(), "key", 12)
		require.NoError(t, err)
		assert.True(t, d.Allowed, "each limit takes as much as it can")
		require.NoError(t, hold.Settle(11))
		time.Sleep(time.Minute)
		assert.Equal(t, int64(4), remaining(t, l, "key"), "of the hour's 15")
	})
}

// The several limits of a rule are one decision: what it says of units and times is what AllowN does.
func TestRemainingOfSeveralLimitsIsWhatPassesNow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { inBubble(t, func() { severalLimits(rt) }) })
}

func severalLimits(t *rapid.T) {
	var limits []limiter.Limit
	algorithms := rapid.SampledFrom([]limiter.Algorithm{limiter.SlidingWindow, limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingCounter})
	for _, per := range []time.Duration{time.Millisecond, 1500 * time.Microsecond, time.Second, time.Minute, time.Hour} {
		if events := rapid.Int64Range(0, 30).Draw(t, "events"); events > 0 {
			limits = append(limits, limiter.Limit{Events: events, Per: per, Algorithm: algorithms.Draw(t, "algorithm")})
		}
	}
	if limits == nil {
		t.Skip("no limit")
	}
	l := api(limiter.Join(limits, limiter.Concurrency{}), nil)
	ask := func(n int64) limiter.Decision {
		d, err := l.AllowN(context.Background(), "key", n)
		require.NoError(t, err)
		return d
	}
	d := ask(0)
	for range rapid.IntRange(0, 5).Draw(t, "steps") {
		d = ask(anyCost(2*d.Remaining+1, d.Remaining).Draw(t, "cost"))
		if !d.Allowed && d.RetryAfter < limiter.Never && rapid.Bool().Draw(t, "waits") {
			time.Sleep(d.RetryAfter)
		}
	}
	d = ask(0)
	require.False(t, ask(d.Remaining+1).Allowed, "more than remain of %v: %+v", limits, d)
	if d.NextAfter > 0 {
		time.Sleep(d.NextAfter - time.Microsecond)
		require.Equal(t, d.Remaining, ask(0).Remaining, "before NextAfter")
		time.Sleep(time.Microsecond)
		require.Greater(t, ask(0).Remaining, d.Remaining, "after NextAfter")
	}
	d = ask(0)
	require.True(t, ask(d.Remaining).Allowed, "what remains of %v: %+v", limits, d)
	d = ask(1)
	require.False(t, d.Allowed)
	require.Zero(t, d.Remaining)
	time.Sleep(d.RetryAfter - time.Microsecond)
	require.False(t, ask(1).Allowed)
	time.Sleep(time.Microsecond)
	require.True(t, ask(1).Allowed)
}

func TestSeveralLimitsThatMakeNoSense(t *testing.T) {
	for _, tt := range []struct {
		c    limiter.Config
		want string
	}{
		{limiter.Config{}, "Limit is missing"},
		{limiter.Config{Limit: new(limiter.Limit)}, "Limit is a *limiter.Limit: it must be a Limit, AtOnce or All"},
		{limiter.Config{Limit: limiter.All()}, "has 0 limits"},
		{limiter.Config{Limit: limiter.Join(make([]limiter.Limit, 9), limiter.Concurrency{})}, "has 9 limits: it must have 1 to 8"},
		{limiter.Config{Limit: limiter.All(limiter.Join(make([]limiter.Limit, 5), limiter.Concurrency{}), limiter.Join(make([]limiter.Limit, 4), limiter.Concurrency{}))}, "has 9 limits: it must have 1 to 8"},
		{limiter.Config{Limit: limiter.All(limiter.PerHour(1), nil)}, "one of All is <nil>"},
		{limiter.Config{Limit: limiter.All(limiter.PerHour(1), limiter.All())}, "one of All is an All of nothing"},
		{limiter.Config{Limit: limiter.All(limiter.PerHour(1), limiter.AtOnce(2), limiter.AtOnce(2))}, "must have AtOnce once"},
		{limiter.Config{Limit: limiter.All(limiter.PerHour(1), limiter.AtOnce(0))}, "must have AtOnce once, of at least 1"},
		{limiter.Config{Limit: limiter.AtOnce(2)}, "AtOnce is for a Semaphore"},
		{limiter.Config{Limit: limiter.All(limiter.PerHour(1), limiter.AtOnce(2))}, "AtOnce is for a Semaphore"},
		{limiter.Config{Limit: limiter.All(limiter.PerHour(1), limiter.PerHour(2))}, "two limits have one period"},
		{limiter.Config{Limit: limiter.All(limiter.PerHour(1), limiter.PerSecond(2).With(limiter.LeakyBucket))}, "leaky-bucket cannot be held to another limit"},
		{limiter.Config{Limit: limiter.All(limiter.PerHour(1), limiter.Limit{})}, "Events is 0"},
	} {
		tt.c.Name = "api"
		l, err := limiter.New(tt.c)
		require.ErrorContains(t, err, tt.want)
		assert.Nil(t, l)
	}
}

func TestReservingAndSettlingDoesNotAllocate(t *testing.T) {
	ctx := context.Background()
	for _, a := range everyAlgorithm {
		if a == limiter.SlidingLog {
			continue // it grows
		}
		for _, actual := range []int64{2, 3, 4} {
			l := limiter.Must(limiter.New(limiter.Config{Name: "tokens", Limit: limiter.PerDay(1_000_000).With(a), Settles: true}))
			reserve := func() {
				hold, d, err := l.Reserve(ctx, "key", 3)
				if err != nil || !d.Allowed {
					panic("refused")
				}
				defer func() { _ = hold.Cancel() }()
				if err := hold.Settle(actual); err != nil {
					panic(err)
				}
			}
			for range 20 {
				reserve() // until what a bucket remembers has its place
			}
			assert.Zero(t, testing.AllocsPerRun(1000, reserve), "%v, 3 reserved and %d used", a, actual)
		}
	}
}

func TestSeveralLimitsDoNotAllocate(t *testing.T) {
	l := api(limiter.All(limiter.PerSecond(1000), limiter.PerHour(10_000), limiter.PerDay(100_000)), nil)
	ask(t, l, "key", 1)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = l.Allow(t.Context(), "key") }))
}

// A day that slides is free again when the window after it has begun and enough of it is over; a day of the
// calendar at midnight.
func TestASlidingDayCanTakeMoreThanADayAndSaysExactlyHowLong(t *testing.T) {
	for _, day := range []limiter.Limit{limiter.PerDay(250_000), limiter.Daily(250_000)} {
		synctest.Test(t, func(t *testing.T) { // at midnight
			l := limiter.Must(limiter.New(limiter.Config{Name: "tokens", Limit: limiter.All(limiter.PerMinute(100_000), day), Settles: true}))
			for left := int64(250_000); left > 0; left -= 25_000 {
				time.Sleep(4 * time.Minute)
				hold, d, err := l.Reserve(t.Context(), "ada", min(left, 60_000))
				require.NoError(t, err)
				require.True(t, d.Allowed)
				require.NoError(t, hold.Settle(25_000))
			}
			reserve := func() limiter.Decision {
				_, d, err := l.Reserve(t.Context(), "ada", 40_000)
				require.NoError(t, err)
				return d
			}
			wait := reserve().RetryAfter
			if day.Calendar() == "" {
				require.InDelta(t, 24*time.Hour-40*time.Minute+24*time.Hour*40/250, wait, float64(time.Second), "until the next day, and 40 of its 250 parts")
			} else {
				require.Equal(t, 24*time.Hour-40*time.Minute, wait, "until midnight")
			}
			time.Sleep(wait - time.Microsecond)
			require.False(t, reserve().Allowed)
			time.Sleep(time.Microsecond)
			require.True(t, reserve().Allowed)
		})
	}
}
