package limiter_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

func semaphore(tb testing.TB, c limiter.SemaphoreConfig) *limiter.Semaphore {
	c.Name = "exports"
	s, err := limiter.NewSemaphore(c)
	require.NoError(tb, err)
	return s
}

func TestASemaphoreHasAsManySlotsAsItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := semaphore(t, limiter.SemaphoreConfig{Limit: limiter.AtOnce(2)})
		first, d, err := s.Acquire(t.Context(), "key")
		require.NoError(t, err)
		assert.Equal(t, int64(1), d.Remaining)
		_, d, _ = s.Acquire(t.Context(), "key")
		assert.True(t, d.Allowed)
		assert.Zero(t, d.Remaining)

		release, d, err := s.Acquire(t.Context(), "key")
		require.NoError(t, err)
		assert.False(t, d.Allowed)
		assert.Equal(t, time.Second/2, d.RetryAfter, "how long a place is held is not known: a second, of two places")
		release() // it has none to return
		_, d, _ = s.Acquire(t.Context(), "other")
		assert.True(t, d.Allowed, "keys are apart")

		time.Sleep(8 * time.Second)
		first()
		first() // once
		_, d, _ = s.Acquire(t.Context(), "key")
		assert.True(t, d.Allowed)
		_, d, _ = s.Acquire(t.Context(), "key")
		assert.False(t, d.Allowed, "a place was returned twice")
		assert.Equal(t, 4*time.Second, d.RetryAfter, "half of how long the one was held")
	})
}

// Each waiter gets its turn in the order in which it came, and those that come while others wait
// do not go first.
func TestWaitersGoInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := semaphore(t, limiter.SemaphoreConfig{Limit: limiter.AtOnce(1).Queue(100, time.Hour)})
		release, _, _ := s.Acquire(t.Context(), "key")
		var order []int
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				release, d, err := s.Acquire(t.Context(), "key")
				assert.NoError(t, err)
				assert.True(t, d.Allowed)
				order = append(order, i) // one has the place
				time.Sleep(time.Millisecond)
				release()
			})
			synctest.Wait()
			if i == 20 {
				release()
			}
		}
		wg.Wait()
		assert.True(t, slices.IsSorted(order), "%v", order)
		assert.Len(t, order, 50)
	})
}

func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := semaphore(t, limiter.SemaphoreConfig{Limit: limiter.AtOnce(1).Queue(2, 2*time.Second)})
		release, _, _ := s.Acquire(t.Context(), "key")

		began := time.Now()
		_, d, err := s.Acquire(t.Context(), "key")
		require.NoError(t, err)
		assert.False(t, d.Allowed)
		assert.Equal(t, 2*time.Second, time.Since(began), "MaxWait")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		release2, d, err := s.Acquire(ctx, "key")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.False(t, d.Allowed)
		release2()

		for range 2 {
			go s.Acquire(t.Context(), "key")
		}
		synctest.Wait()
		began = time.Now()
		_, d, err = s.Acquire(t.Context(), "key")
		require.NoError(t, err)
		assert.False(t, d.Allowed)
		assert.Zero(t, time.Since(began), "the queue is full")
		assert.Equal(t, 3*time.Second, d.RetryAfter, "two come first")
		assert.Zero(t, d.Remaining)
		release()
		time.Sleep(time.Minute)
		_, d, _ = s.Acquire(t.Context(), "key")
		assert.False(t, d.Allowed, "one of those that waited has the place")
	})
}

// However events come, wait, give up and end: never more than Max are under way, and when all
// have ended nothing is left.
func TestSlotsAreNeverMoreAndAllReturn(tt *testing.T) {
	rapid.Check(tt, func(t *rapid.T) {
		most := rapid.Int64Range(1, 4).Draw(t, "max")
		queue := rapid.IntRange(0, 3).Draw(t, "queue")
		n := rapid.IntRange(1, 30).Draw(t, "events")
		type event struct{ come, hold, patience time.Duration }
		ms := rapid.Map(rapid.IntRange(0, 50), func(n int) time.Duration { return time.Duration(n) * time.Millisecond })
		events := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event {
			return event{ms.Draw(t, "come"), ms.Draw(t, "hold"), ms.Draw(t, "patience")}
		}), n, n).Draw(t, "events")
		var under, peak atomic.Int64
		var after limiter.Decision
		synctest.Test(tt, func(*testing.T) { // what fails in it would end more than the draw
			m := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
			c := limiter.SemaphoreConfig{Name: "x", Limit: limiter.AtOnce(most), Store: m}
			if queue > 0 {
				c.Limit = c.Limit.Queue(queue, 20*time.Millisecond)
			}
			s, _ := limiter.NewSemaphore(c)
			var wg sync.WaitGroup
			for _, e := range events {
				wg.Go(func() {
					time.Sleep(e.come)
					ctx, cancel := context.WithTimeout(context.Background(), e.patience+time.Microsecond)
					defer cancel()
					release, d, err := s.Acquire(ctx, "key")
					defer release()
					if err != nil || !d.Allowed {
						return
					}
					peak.Store(max(peak.Load(), under.Add(1)))
					time.Sleep(e.hold)
					under.Add(-1)
				})
			}
			wg.Wait()
			_, after, _ = s.Acquire(context.Background(), "key")
		})
		require.LessOrEqual(t, peak.Load(), most)
		require.True(t, after.Allowed, "an event waits for ever")
		require.Equal(t, most-1, after.Remaining, "a slot is not released")
	})
}

func TestSlotsLeaveNothingBehind(t *testing.T) {
	m := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	s := semaphore(t, limiter.SemaphoreConfig{Limit: limiter.AtOnce(1), Store: m})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 20_000 {
				release, _, _ := s.Acquire(context.Background(), fmt.Sprint(g, i))
				if i%16 > 0 {
					release()
				} else {
					defer release()
				}
			}
		})
	}
	wg.Wait()
	assert.Zero(t, m.HeldKeys())
}

func TestBadSemaphores(t *testing.T) {
	for want, c := range map[string]limiter.SemaphoreConfig{
		"the rule name is empty":               {Limit: limiter.AtOnce(1)},
		"Max is 0: it must be from 1":          {Name: "x"},
		"Max is -1":                            {Name: "x", Limit: limiter.AtOnce(-1)},
		"Queue is -1":                          {Name: "x", Limit: limiter.AtOnce(1).Queue(-1, 0)},
		"Queue is 10001":                       {Name: "x", Limit: limiter.AtOnce(1).Queue(10_001, time.Second)},
		"MaxWait is missing":                   {Name: "x", Limit: limiter.AtOnce(1).Queue(1, 0)},
		"MaxWait is 1s, and there is no queue": {Name: "x", Limit: limiter.AtOnce(1).Queue(0, time.Second)},
		"MaxWait is -1s":                       {Name: "x", Limit: limiter.AtOnce(1).Queue(0, -time.Second)},
		"cannot count slots":                   {Name: "x", Limit: limiter.AtOnce(1), Store: struct{ limiter.Store }{}},
	} {
		_, err := limiter.NewSemaphore(c)
		assert.ErrorContains(t, err, want)
	}
}
