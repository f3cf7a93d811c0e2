package limiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
)

// These tests look inside: which limits have words, whether words last, and who holds the shards' locks does not
// show in decisions.

func TestEveryLimitOfUpToAMillionFitsAWord(t *testing.T) {
	for _, a := range []Algorithm{SlidingCounter, TokenBucket, LeakyBucket, FixedWindow} {
		for _, per := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour, 366 * 24 * time.Hour} {
			q := mustQuota(t, Limit{Events: 1_000_000, Per: per, Algorithm: a})
			assert.True(t, q.fitsWord(), "%v", q.limit)
		}
	}
	for _, events := range []int64{11, 1000, 60_000} {
		assert.True(t, mustQuota(t, PerSecond(events)).fitsWord(), "%d/s", events)
	}
}

func TestAPackedStateIsGoodForFifteenYears(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := mustQuota(t, anyLimit(SlidingCounter, TokenBucket, LeakyBucket, FixedWindow).Draw(t, "limit"))
		if !q.fitsWord() {
			t.Skip("not packed")
		}
		origin := anyStart().Draw(t, "origin")
		now := origin + uptime.Microseconds() - rapid.Int64Range(0, 2*q.Window().Microseconds()).Draw(t, "left")
		if now < origin {
			t.Skip("a window longer than that")
		}
		cost := magnitude(1, q.capacity).Draw(t, "cost")
		s, ok := q.Take(State{}, now, cost)
		require.True(t, ok)
		later := now + magnitude(1, q.Window().Microseconds()).Draw(t, "later") - 1
		base := q.base(origin)
		u, _, _ := q.unpack(q.pack(q.usage(s.Last, s.Level, s.Prev), base), base, later)
		unpacked := q.state(u, nil)
		require.Equal(t, q.Describe(s, later, 0, true), q.Describe(unpacked, later, 0, true))
	})
}

// With every lock held by somebody, whoever needs one waits.
func TestKnownKeysAreDecidedOnWithoutALock(t *testing.T) {
	for _, a := range []Algorithm{SlidingCounter, TokenBucket, LeakyBucket, FixedWindow} {
		phase.Run(t, a.String(), func(t *testing.T) {
			m, err := NewMemory(MemoryOptions{})
			require.NoError(t, err)
			take := func(q *Quota, key string, cost int64) bool {
				charges := []Charge{{Quota: q, Key: key, Cost: cost}}
				require.NoError(t, m.Decide(t.Context(), charges))
				return charges[0].Decision.Allowed
			}
			own, exhausted := named(t, "own", "", PerDay(1000).With(a)), named(t, "exhausted", "", PerDay(1).With(a))
			for take(exhausted, "", 1) {
			}
			take(own, "key", 1)
			require.False(t, take(own, "other", own.Capacity()) && take(own, "other", 1), "it is marked as refused")

			for i := range m.shards {
				m.shards[i].Lock()
			}
			for range 3 { // one that waited for a lock would never end
				assert.True(t, take(own, "key", 1))
				assert.False(t, take(exhausted, "", 1))
				assert.False(t, take(own, "other", 1))
			}
			for i := range m.shards {
				m.shards[i].Unlock()
			}
		})
	}
}
