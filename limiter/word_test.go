package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"

	"github.com/weirgo/weir/limiter"
)

func TestEveryLimitOfUpToAMillionFitsAWord(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.SlidingCounter, limiter.TokenBucket, limiter.LeakyBucket, limiter.FixedWindow} {
		for _, per := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour, 366 * 24 * time.Hour} {
			q := mustQuota(t, limiter.Limit{Events: 1_000_000, Per: per, Algorithm: a})
			assert.True(t, q.FitsWord(), "%v", q.Limit())
		}
	}
	for _, events := range []int64{11, 1000, 60_000} {
		assert.True(t, mustQuota(t, limiter.PerSecond(events)).FitsWord(), "%d/s", events)
	}
}

func TestAPackedStateIsGoodForFifteenYears(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := mustQuota(t, anyLimit(limiter.SlidingCounter, limiter.TokenBucket, limiter.LeakyBucket, limiter.FixedWindow).Draw(t, "limit"))
		if !q.FitsWord() {
			t.Skip("not packed")
		}
		origin := anyStart().Draw(t, "origin")
		now := origin + limiter.Uptime.Microseconds() - rapid.Int64Range(0, 2*q.Window().Microseconds()).Draw(t, "left")
		if now < origin {
			t.Skip("a window longer than that")
		}
		cost := magnitude(1, q.Capacity()).Draw(t, "cost")
		s, ok := q.Take(limiter.State{}, now, cost)
		require.True(t, ok)
		later := now + magnitude(1, q.Window().Microseconds()).Draw(t, "later") - 1
		require.Equal(t, q.Describe(s, later, 0, true), q.Describe(q.Packed(s, origin, later), later, 0, true))
	})
}

// With every lock held by somebody, whoever needs one waits.
func TestKnownKeysAreDecidedOnWithoutALock(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.SlidingCounter, limiter.TokenBucket, limiter.LeakyBucket, limiter.FixedWindow} {
		phase.Run(t, a.String(), func(t *testing.T) {
			m, err := limiter.NewMemory(limiter.MemoryOptions{})
			require.NoError(t, err)
			take := func(q *limiter.Quota, key string, cost int64) bool {
				charges := []limiter.Charge{{Quota: q, Key: key, Cost: cost}}
				require.NoError(t, m.Decide(t.Context(), charges))
				return charges[0].Decision.Allowed
			}
			own, exhausted := named(t, "own", "", limiter.PerDay(1000).With(a)), named(t, "exhausted", "", limiter.PerDay(1).With(a))
			for take(exhausted, "", 1) {
			}
			take(own, "key", 1)
			require.False(t, take(own, "other", own.Capacity()) && take(own, "other", 1), "it is marked as refused")

			unlock := m.LockAll()
			for range 3 { // a decision that waits for a lock never ends
				assert.True(t, take(own, "key", 1))
				assert.False(t, take(exhausted, "", 1))
				assert.False(t, take(own, "other", 1))
			}
			unlock()
		})
	}
}
