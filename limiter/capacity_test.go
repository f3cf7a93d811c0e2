package limiter_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
)

// fewKeys is a MaxKeys with which all keys compete with each other: they make two lines
// of three cells, and a key may be in either of two lines.
const fewKeys = 6

// A memory is a Memory in a test, where time stands still.
type memory struct {
	*limiter.Memory
	t *testing.T
}

func newMemory(t *testing.T, maxKeys int) memory {
	t.Helper()
	m, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: maxKeys})
	require.NoError(t, err)
	return memory{m, t}
}

// newSmallMemory returns a store that soon has no memory left.
func newSmallMemory(t *testing.T) memory {
	t.Helper()
	return memory{limiter.Must(limiter.NewMemory(limiter.MemoryOptions{MaxBytes: maxBytes})), t}
}

const maxBytes = 1 << 20

func (m memory) decide(charges ...limiter.Charge) []limiter.Decision {
	m.t.Helper()
	require.NoError(m.t, m.Decide(m.t.Context(), charges))
	d := make([]limiter.Decision, len(charges))
	for i, c := range charges {
		d[i] = c.Decision
	}
	return d
}

func (m memory) take(q *limiter.Quota, key string, cost int64) bool {
	m.t.Helper()
	return m.decide(charge(q, key, cost))[0].Allowed
}

func (m memory) remaining(q *limiter.Quota, key string) int64 {
	m.t.Helper()
	return m.decide(charge(q, key, 0))[0].Remaining
}

// owe charges n units to a key that it was not asked for.
func (m memory) owe(q *limiter.Quota, key string, n int64) {
	m.t.Helper()
	require.NoError(m.t, m.Settle(m.t.Context(), debts(charge(q, key, n))))
}

// refund gives n units back to a key.
func (m memory) refund(q *limiter.Quota, key string, n int64) {
	m.t.Helper()
	require.NoError(m.t, m.Settle(m.t.Context(), refunds(charge(q, key, n))))
}

// underEach runs f for each algorithm, at a random time of day.
func underEach(t *testing.T, f func(t *testing.T, a limiter.Algorithm)) {
	t.Helper()
	for _, a := range everyAlgorithm {
		phase.Run(t, a.String(), func(t *testing.T) { f(t, a) })
	}
}

// flood sends events of so many new keys.
func (m memory) flood(q *limiter.Quota, prefix string, n int) {
	m.t.Helper()
	for i := range n {
		m.decide(charge(q, fmt.Sprint(prefix, i), 1))
	}
}

func TestMaxKeysHasBounds(t *testing.T) {
	wrong := []int{-1, math.MinInt}
	if math.MaxInt > math.MaxInt32 {
		wrong = append(wrong, math.MaxInt)
	}
	for _, keys := range wrong {
		m, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: keys})
		require.ErrorContains(t, err, fmt.Sprintf("limiter: MaxKeys is %d: it must be from 1 to 2147483648", keys))
		require.Nil(t, m)
	}
	for _, keys := range []int{0, 1, 2, 1000, math.MaxInt32} {
		m := newMemory(t, keys)
		require.True(t, m.take(mustQuota(t, limiter.PerMinute(5)), "key", 1))
		require.Less(t, m.Stats().Bytes, 1<<16, "memory is taken as keys come, not for MaxKeys at once")
	}
}

func TestMaxBytesHasABound(t *testing.T) {
	for _, bytes := range []int64{-1, 1, 1<<20 - 1} {
		_, err := limiter.NewMemory(limiter.MemoryOptions{MaxBytes: bytes})
		require.ErrorContains(t, err, fmt.Sprintf("limiter: MaxBytes is %d: it must be at least 1048576, or 0 for 268435456", bytes))
	}
}

// limits of which the states take more than a word.
func wideLimits(t *testing.T) map[string][]*limiter.Quota {
	settling := named(t, "settling", "", limiter.PerHour(100).With(limiter.TokenBucket))
	settling.Settles = true
	family, err := limiter.NewQuotas("family", "", limiter.All(limiter.PerHour(100), limiter.PerDay(1000).With(limiter.TokenBucket), limiter.Limit{Events: 9, Per: 30 * time.Minute}))
	require.NoError(t, err)
	return map[string][]*limiter.Quota{
		"exact": {named(t, "exact", "", limiter.PerHour(10))}, "settling": {settling}, "family": family,
		"large": {named(t, "large", "", limiter.PerHour(3e10))}, "log": {named(t, "log", "", limiter.PerHour(100).With(limiter.SlidingLog))},
	}
}

func chargesOf(quotas []*limiter.Quota, key string, cost int64) (charges []limiter.Charge) {
	for _, q := range quotas {
		charges = append(charges, charge(q, key, cost))
	}
	return charges
}

func TestAKeyThatBeganWithADebtGivesWay(t *testing.T) {
	phase.Run(t, "", func(t *testing.T) {
		m, q := newMemory(t, fewKeys), mustQuota(t, limiter.PerMinute(5))
		for i := range 10 * fewKeys {
			m.owe(q, fmt.Sprint("owes", i), 1)
		}
		time.Sleep(time.Hour)
		for i := range fewKeys {
			d := m.decide(charge(q, fmt.Sprint("new", i), 1))
			require.False(t, d[0].Overflow, "idle keys kept their places")
		}
	})
}

func TestWithoutMemoryNewKeysShareOneCounterInEachPart(t *testing.T) {
	for name, quotas := range wideLimits(t) {
		phase.Run(t, name, func(t *testing.T) {
			m := newSmallMemory(t)
			last := quotas[len(quotas)-1]
			require.True(t, m.take(last, "refused", last.Capacity()))
			require.False(t, m.take(last, "refused", 1))
			admitted, keys, full := 0, 0, 0
			for m.Stats().Overflowed == 0 {
				require.LessOrEqual(t, m.Stats().Bytes, maxBytes)
				require.True(t, m.decide(chargesOf(quotas, fmt.Sprint("first ", keys), 1)...)[0].Allowed)
				keys++
			}
			require.Greater(t, keys, 2000)
			for i := range 8000 {
				if i == 4000 {
					full = m.Stats().Bytes
				}
				if d := m.decide(chargesOf(quotas, fmt.Sprint("new ", i), 9)...); d[0].Overflow && d[0].Allowed && d[len(d)-1].Allowed {
					admitted++
				}
			}
			assert.LessOrEqual(t, int64(admitted), 64*(last.Capacity()/9), "of all that have no place of their own")
			assert.Equal(t, full, m.Stats().Bytes, "new keys take no memory once there are overflow counters")
			assert.False(t, m.take(last, "refused", 1), "a key that was refused was forgotten")

			time.Sleep(50 * time.Hour)
			overflowed := 0
			for i := range 3000 {
				if m.decide(chargesOf(quotas, fmt.Sprint("newer ", i), 1)...)[0].Overflow {
					overflowed++
				}
			}
			assert.Less(t, overflowed, 1000, "idle keys make room, once it is looked for them")
		})
	}
}

// At MaxBytes a log counts what comes with the event before, and so for longer.
func TestWithoutMemoryALogNeverAdmitsMore(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m, q := newSmallMemory(t), named(t, "log", "", limiter.PerHour(100).With(limiter.SlidingLog))
		for i := 0; m.Stats().Overflowed == 0; i++ {
			m.take(q, fmt.Sprint(i), 1)
		}
		full := m.Stats().Bytes
		var admitted []time.Time
		for range 1000 {
			time.Sleep(time.Minute / 4)
			if d := m.decide(charge(q, "0", 1))[0]; d.Allowed {
				require.False(t, d.Overflow)
				admitted = append(admitted, time.Now())
			}
		}
		for i := 100; i < len(admitted); i++ {
			require.GreaterOrEqual(t, admitted[i].Sub(admitted[i-100]), time.Hour, "101 of 100")
		}
		assert.Greater(t, len(admitted), 200, "it goes on")
		assert.NotZero(t, m.Stats().Merged)
		assert.Equal(t, full, m.Stats().Bytes)
	})
}

func TestWithoutMemoryWhatIsOwedTakesNone(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m, q := newSmallMemory(t), named(t, "log", "", limiter.PerHour(1000).With(limiter.SlidingLog))
		const keys, owed = 100, 900
		for range owed {
			for key := range keys {
				m.owe(q, fmt.Sprint(key), 1)
			}
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, m.Stats().Bytes, maxBytes)
		assert.NotZero(t, m.Stats().Merged)
		for key := range keys {
			assert.EqualValues(t, 1000-owed, m.decide(charge(q, fmt.Sprint(key), 0))[0].Remaining)
		}
	})
}

func TestALimitThatIsAddedToARuleKeepsWhatTheOthersCounted(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m := newMemory(t, 0)
		second, hour, day := limiter.Limit{Events: 10, Per: phase.Long(), Algorithm: limiter.TokenBucket}, limiter.PerHour(9), limiter.PerDay(1000).With(limiter.TokenBucket)
		take := func(cost int64, limits ...limiter.Limit) (used []int64) {
			quotas, err := limiter.NewQuotas("api", "", limiter.Join(limits, limiter.Concurrency{}))
			require.NoError(t, err)
			for _, d := range m.decide(chargesOf(quotas, "key", cost)...) {
				require.True(t, d.Allowed)
				used = append(used, d.Limit-d.Remaining)
			}
			return used
		}
		assert.Equal(t, []int64{1}, take(1, second))
		assert.Equal(t, []int64{3, 2}, take(2, second, day))
		assert.Equal(t, []int64{4, 1, 3}, take(1, second, hour, day), "a limit is known by its period")
		assert.Equal(t, []int64{4, 1}, take(0, second, hour))
	})
}

func TestAFloodOfNewKeysTakesNoMoreMemory(t *testing.T) {
	const maxKeys = 1500
	for _, l := range []limiter.Limit{
		limiter.PerMinute(5), limiter.PerMinute(2_000_000), // packed and boxed
		limiter.PerMinute(5).With(limiter.TokenBucket), limiter.PerMinute(5).With(limiter.LeakyBucket), limiter.PerMinute(5).With(limiter.FixedWindow),
		limiter.PerMinute(5).With(limiter.SlidingLog),
	} {
		phase.Run(t, l.String(), func(t *testing.T) {
			m, q := newMemory(t, maxKeys), mustQuota(t, l)
			m.flood(q, "first ", 4*maxKeys)
			before := m.Stats()
			require.LessOrEqual(t, before.Cells, maxKeys+64*3, "MaxKeys, but for whole lines")
			require.NotZero(t, before.Evicted)
			for round := range 3 {
				time.Sleep(time.Duration(round) * time.Hour)
				m.flood(q, fmt.Sprint("round ", round, " "), 3*maxKeys)
			}
			after := m.Stats()
			assert.Equal(t, before.Cells, after.Cells)
			assert.Equal(t, before.Bytes, after.Bytes)
		})
	}
}

func TestIdleCellsAreReusedBeforeTheTableGrows(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m, q := newMemory(t, 0), mustQuota(t, limiter.PerMinute(5))
		const keys, rounds = 4000, 20
		m.flood(q, "first ", keys)
		before := m.Stats()
		for round := range rounds {
			time.Sleep(3 * time.Minute)
			m.flood(q, fmt.Sprint("round ", round, " "), keys)
		}
		after := m.Stats()
		assert.Less(t, after.Bytes, before.Bytes*3/2, "%d keys came, never more than %d at a time", rounds*keys, keys)
		assert.Zero(t, after.Evicted, "an idle cell carries no information: nothing was forgotten")
	})
}

func TestThenTheKeyNearestToIdleGoes(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m, q := newMemory(t, fewKeys), mustQuota(t, limiter.PerHour(100).With(limiter.TokenBucket))
		for i := range fewKeys {
			m.take(q, fmt.Sprint(i), int64(10+i*7%fewKeys))
		}
		for evicted := range fewKeys / 2 {
			m.take(q, fmt.Sprint("new ", evicted), 99)
			assert.Equal(t, uint64(evicted+1), m.Stats().Evicted)
			for i := range fewKeys {
				used := int64(10 + i*7%fewKeys)
				if used <= int64(10+evicted) {
					assert.Equal(t, int64(100), m.remaining(q, fmt.Sprint(i)), "the key with %d in use is nearest to idle", used)
				} else {
					assert.Equal(t, 100-used, m.remaining(q, fmt.Sprint(i)), "a key with %d in use went before one with less", used)
				}
			}
		}
	})
}

// Of cost 30 nothing is left for, though 10 units are.
func TestAKeyThatRefusesACostIsNotForgottenEither(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m, q, other := newMemory(t, fewKeys), mustQuota(t, limiter.PerHour(100).With(limiter.TokenBucket)), named(t, "other", "", limiter.PerHour(1000))
		require.True(t, m.take(q, "single", 90))
		require.False(t, m.take(q, "single", 30))
		require.True(t, m.take(q, "batch", 90))
		require.False(t, m.decide(charge(q, "batch", 30), charge(other, "x", 1))[0].Allowed)
		m.flood(other, "new ", 1000)
		assert.Equal(t, int64(10), m.remaining(q, "single"))
		assert.Equal(t, int64(10), m.remaining(q, "batch"))

		require.True(t, m.take(q, "single", 10))
		time.Sleep(30 * time.Hour)
		m.flood(other, "newer ", 1000)
		assert.NotZero(t, m.Stats().Evicted)
	})
}

func TestGivingBackALittleDoesNotMakeAKeyForgettable(t *testing.T) {
	for _, tt := range []struct{ back, left int64 }{{2, 2}, {5, 10}} {
		phase.Test(t, func(t *testing.T) {
			m, q := newMemory(t, fewKeys), named(t, "q", "", limiter.Limit{Events: 10, Per: 10 * time.Hour, Algorithm: limiter.TokenBucket})
			m.take(q, "key", 10)
			require.False(t, m.take(q, "key", 1))
			m.refund(q, "key", tt.back)
			for i := range 10 * fewKeys { // these are further from idle
				m.take(q, fmt.Sprint(i), 9)
			}
			assert.Equal(t, tt.left, m.remaining(q, "key"))
		})
	}
}

// A key that hovers at its limit is refused and admitted by turns.
func TestAKeyThatWasRefusedIsNotForgottenUntilHalfIsFreeAgain(t *testing.T) {
	for _, tt := range []struct {
		free      time.Duration // of ten units in as many hours
		forgotten bool
	}{{2 * time.Hour, false}, {5 * time.Hour, false}, {6 * time.Hour, true}} {
		for _, batch := range []bool{false, true} {
			phase.Test(t, func(t *testing.T) {
				m, q := newMemory(t, fewKeys), named(t, "q", "", limiter.Limit{Events: 10, Per: 10 * time.Hour, Algorithm: limiter.TokenBucket})
				charges := []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}
				if batch {
					charges = append(charges, charge(named(t, "p", "", limiter.PerDay(1_000_000)), "", 1))
				}
				m.take(q, "key", 10)
				require.False(t, m.decide(charges...)[0].Allowed)
				time.Sleep(tt.free)
				require.True(t, m.decide(charges...)[0].Allowed)
				before := m.remaining(q, "key")
				for i := range 10 * fewKeys { // these are further from idle
					m.take(q, fmt.Sprint(i), 9)
				}
				if tt.forgotten {
					before = q.Capacity()
				}
				assert.Equal(t, before, m.remaining(q, "key"), "after %v", tt.free)
			})
		}
	}
}

func TestTheCounterOfARuleWithoutAKeyIsNeverForgotten(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m, global, ip := newMemory(t, 100), named(t, "global", "", limiter.PerMinute(100)), named(t, "ip", "", limiter.PerDay(5))
		admitted := 0
		for i := range 1000 {
			if m.take(global, "", 1) {
				admitted++
			}
			m.flood(ip, fmt.Sprint(i, " "), 5)
			m.decide(charge(ip, fmt.Sprint("batch ", i), 1), charge(global, "", 0))
		}
		assert.Equal(t, 100, admitted)
		assert.NotZero(t, m.Stats().Evicted)
	})
}

func TestOfKeysThatAreIdleTogetherTheLeastUsedGoes(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m, q := newMemory(t, fewKeys), mustQuota(t, limiter.PerHour(100))
		for i := range fewKeys {
			m.take(q, fmt.Sprint(i), int64(10*(i+1)))
		}
		m.flood(q, "new ", 1)
		assert.Equal(t, int64(100), m.remaining(q, "0"))
		for i := 1; i < fewKeys; i++ {
			assert.Equal(t, int64(100-10*(i+1)), m.remaining(q, fmt.Sprint(i)))
		}
	})
}

func TestWhatIsExhaustedStaysSoWhateverComes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func() {
			m, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: rapid.SampledFrom([]int{1, fewKeys, 24, 100, 3000}).Draw(rt, "MaxKeys")})
			require.NoError(rt, err)
			var quotas []*limiter.Quota
			for i, a := range everyAlgorithm {
				quotas = append(quotas, named(rt, fmt.Sprint(i), "", limiter.PerHour(3).With(a)))
			}
			quotas = append(quotas, named(rt, "boxed", "", limiter.PerHour(80_000_000)))
			exhausted := map[limiter.Charge]bool{}
			for range rapid.IntRange(1, 150).Draw(rt, "batches") {
				var charges []limiter.Charge
				for range rapid.IntRange(1, 4).Draw(rt, "charges") {
					c := charge(rapid.SampledFrom(quotas).Draw(rt, "quota"), fmt.Sprint(rapid.IntRange(0, 20).Draw(rt, "key")), 0)
					c.Cost = min(c.Quota.Capacity(), rapid.SampledFrom([]int64{0, 1, 2, c.Quota.Capacity()}).Draw(rt, "cost"))
					if limiter.CheckCharges(append(charges, c)) == nil {
						charges = append(charges, c)
					}
				}
				require.NoError(rt, m.Decide(t.Context(), charges))
				for _, c := range charges {
					at := charge(c.Quota, c.Key, 0)
					if exhausted[at] {
						require.Zero(rt, c.Decision.Remaining, "an exhausted key was forgotten")
						require.True(rt, c.Cost == 0 || !c.Decision.Allowed)
					}
				}
				for _, c := range charges {
					at := charge(c.Quota, c.Key, 0)
					if look := (memory{m, t}).decide(at)[0]; look.Remaining == 0 && !look.Overflow {
						exhausted[at] = true
					}
				}
			}
		})
	})
}

// overflowing is a store whose cells are all taken by keys that are being refused.
func overflowing(t *testing.T) memory {
	m := newMemory(t, fewKeys)
	q := named(t, "exhausted", "", limiter.PerHour(1))
	for i := range fewKeys {
		require.True(t, m.take(q, fmt.Sprint(i), 1))
	}
	return m
}

func TestNewKeysWithoutRoomShareOneCounterOfTheirRuleAndTier(t *testing.T) {
	underEach(t, func(t *testing.T, a limiter.Algorithm) {
		m := overflowing(t)
		silver, gold := named(t, "api", "silver", limiter.PerHour(5).With(a)), named(t, "api", "gold", limiter.PerHour(7).With(a))
		other := named(t, "other", "", limiter.PerHour(5).With(a))
		for _, q := range []*limiter.Quota{silver, gold, other} {
			admitted := int64(0)
			for i := range 50 {
				d := m.decide(charge(q, fmt.Sprint("new ", i), 1))[0]
				require.True(t, d.Overflow, "the decision does not say that it is of a shared counter")
				if d.Allowed {
					admitted++
				}
			}
			assert.Equal(t, q.Capacity(), admitted, "of all new keys of %s/%s", q.Rule(), q.Tier())
		}
		earlier := limiter.Decision{Overflow: true, Degraded: true}
		known := m.decide(limiter.Charge{Quota: named(t, "exhausted", "", limiter.PerHour(1)), Key: "0", Cost: 1, Decision: earlier})[0]
		assert.False(t, known.Overflow || known.Degraded, "a key with a counter of its own")
		assert.Equal(t, uint64(150), m.Stats().Overflowed)

		time.Sleep(3 * time.Hour)
		again := m.decide(charge(silver, "new 0", silver.Capacity()))[0]
		assert.True(t, again.Allowed && !again.Overflow, "there is room again")
		assert.True(t, m.take(silver, "new 1", silver.Capacity()), "and keys count apart again")
	})
}

func TestABatchWithoutRoomIsAllOrNothingOnOverflowCounters(t *testing.T) {
	underEach(t, func(t *testing.T, a limiter.Algorithm) {
		m := newMemory(t, fewKeys)
		q, kept := named(t, "api", "", limiter.PerHour(5).With(a)), named(t, "kept", "", limiter.PerHour(10).With(a))
		require.True(t, m.take(kept, "key", kept.Capacity()-4))
		// The kept key is far from idle, but it is found: no batch may evict it.
		exhausted := named(t, "exhausted", "", limiter.PerHour(1))
		for i := range fewKeys - 1 {
			require.True(t, m.take(exhausted, fmt.Sprint(i), 1))
		}
		admitted := int64(0)
		for i := range 10 {
			d := m.decide(charge(kept, "key", 1), charge(q, fmt.Sprint("new ", i), 2))
			assert.True(t, !d[0].Overflow && d[1].Overflow)
			if d[0].Allowed && d[1].Allowed {
				admitted++
				continue
			}
			assert.True(t, d[0].Allowed, "what does not stand in the way is described as a look")
			assert.False(t, d[1].Allowed)
		}
		assert.Equal(t, q.Capacity()/2, admitted)
		assert.Equal(t, 4-admitted, m.remaining(kept, "key"))
	})
}

func TestTwoKeysOfABatchThatShareAnOverflowCounterBothCount(t *testing.T) {
	underEach(t, func(t *testing.T, a limiter.Algorithm) {
		m, q := overflowing(t), named(t, "api", "", limiter.PerHour(7).With(a))
		if q.Capacity() > 7 {
			require.True(t, m.take(q, "new", q.Capacity()-7))
		}
		d := m.decide(charge(q, "a", 4), charge(q, "b", 4))
		assert.True(t, d[0].Allowed, "it alone would fit, so it is a look")
		assert.Equal(t, int64(7), d[0].Remaining)
		assert.False(t, d[1].Allowed, "8 of 7 were admitted")
		assert.GreaterOrEqual(t, d[1].RetryAfter, time.Microsecond)

		d = m.decide(charge(q, "a", 3), charge(q, "b", 2), charge(q, "c", 1))
		for i := range d {
			assert.True(t, d[i].Allowed)
		}
		assert.True(t, m.take(q, "d", 1))
		assert.False(t, m.take(q, "e", 1), "6 and 1 of 7 were taken")
	})
}

func TestGivingBackToAKeyWithoutACellIsHarmless(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m, q := overflowing(t), named(t, "api", "", limiter.PerHour(5))
		require.True(t, m.take(q, "new", 5))
		m.refund(q, "new", 5)
		assert.False(t, m.take(q, "newer", 1), "what a shared counter holds is not one key's to give back")
		require.NoError(t, m.Reset(t.Context(), []limiter.Charge{{Quota: q, Key: "new", Cost: 0}}))
		assert.False(t, m.take(q, "newer", 1))
	})
}

func TestWhatIsOwedIsCountedWhateverRoomThereIs(t *testing.T) {
	underEach(t, func(t *testing.T, a limiter.Algorithm) {
		m, q := newMemory(t, fewKeys), named(t, "api", "", limiter.PerHour(15).With(a))
		m.owe(q, "new", 0)
		assert.Zero(t, m.Stats().Cells, "nothing is owed")
		m.owe(q, "", q.Capacity())
		m.flood(q, "other ", 10*fewKeys)
		assert.False(t, m.take(q, "", 1), "the key of a rule without keys was forgotten")

		full := overflowing(t)
		full.owe(q, "new", q.Capacity()-1)
		d := full.decide(charge(q, "newer", 2))[0]
		assert.True(t, !d.Allowed && d.Overflow, "without room, all keys of the rule owe it")
		assert.Equal(t, uint64(2), full.Stats().Overflowed)
		require.ErrorIs(t, full.Settle(t.Context(), debts(charge(q, "new", -1))), limiter.ErrCharges)
	})
}

// As rules do that are charged when their events are over.
func TestWithoutRoomALookShowsWhatAllOwe(t *testing.T) {
	underEach(t, func(t *testing.T, a limiter.Algorithm) {
		m, q, other := overflowing(t), named(t, "api", "", limiter.PerHour(15).With(a)), named(t, "exhausted", "", limiter.PerHour(1))
		before := m.Stats()
		fresh := m.decide(charge(q, "new", 0))[0]
		assert.True(t, !fresh.Overflow && fresh.Remaining == q.Capacity(), "nobody owes anything")
		assert.Equal(t, before, m.Stats(), "a look takes no room")
		for i := range 3 {
			m.owe(q, fmt.Sprint("new ", i), q.Capacity()/2)
		}
		alone := m.decide(charge(q, "new", 0))[0]
		assert.True(t, alone.Allowed && alone.Overflow && alone.Remaining == 0)
		assert.Zero(t, m.decide(charge(q, "new", 0), charge(q, "newer", 0))[1].Remaining)
		beside := m.decide(charge(other, "0", 0), charge(q, "new", 0))
		assert.False(t, beside[0].Overflow)
		assert.Equal(t, alone, beside[1], "in a batch")
		refused := m.decide(charge(other, "0", 1), charge(q, "new", 1))
		assert.Equal(t, alone, refused[1], "beside one that is refused")
	})
}

func TestABatchOfMoreNewKeysThanThereAreCellsIsDecided(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m, q := newMemory(t, 1), mustQuota(t, limiter.PerHour(100))
		var charges []limiter.Charge
		for i := range limiter.MaxCharges {
			charges = append(charges, charge(q, fmt.Sprint(i), 1))
		}
		for _, d := range m.decide(charges...) {
			require.True(t, d.Allowed)
		}
		refused := 0
		for _, d := range m.decide(charges[3:]...) { // 61 more than the 61 on the shared counter
			if !d.Allowed {
				refused++
			}
		}
		assert.NotZero(t, refused)
		assert.Equal(t, 3, m.Stats().Cells)
	})
}

func TestAStoreMadeOutsideABubbleGrantsNothingInside(t *testing.T) {
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			m, q := newMemory(t, 0), mustQuota(t, limiter.Limit{Events: 5, Per: phase.Long() + time.Microsecond, Algorithm: a})
			require.True(t, m.take(q, "key", q.Capacity()))
			// In a bubble it is the year 2000.
			synctest.Test(t, func(t *testing.T) {
				d := memory{m.Memory, t}.decide(charge(q, "key", 1))[0]
				assert.False(t, d.Allowed)
				assert.Positive(t, d.RetryAfter)
				assert.LessOrEqual(t, d.ResetAfter, 3*q.Limit().Per)
				for i := range 100 { // in all shards, among them such as no time has passed in
					key := fmt.Sprint("new ", i)
					assert.True(t, memory{m.Memory, t}.take(q, key, q.Capacity()))
					refused := memory{m.Memory, t}.decide(charge(q, key, 1))[0]
					assert.False(t, refused.Allowed)
					assert.LessOrEqual(t, refused.ResetAfter, 3*q.Limit().Per)
				}
			})
			assert.False(t, m.take(q, "key", 1))
		})
	}
}

func TestWhatABatchHeldInPlaceMakesRoomLater(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m, q := newMemory(t, fewKeys), mustQuota(t, limiter.PerHour(1))
		for round := range 3 {
			for i := range fewKeys / 2 { // both new, then both known
				for range 2 {
					m.decide(charge(q, fmt.Sprint(round, "a", i), 1), charge(q, fmt.Sprint(round, "b", i), 1))
				}
			}
			time.Sleep(2 * time.Hour)
		}
		assert.Zero(t, m.Stats().Overflowed, "cells of keys that are idle were not taken over")
		assert.Zero(t, m.Stats().Evicted)
	})
}

func TestChangingLimitsTakeNoMoreMemory(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m := newMemory(t, 0)
		change := func() int {
			for _, l := range []limiter.Limit{
				limiter.PerHour(50).With(limiter.SlidingLog), limiter.PerHour(50), limiter.PerHour(80_000_000), limiter.PerHour(50).With(limiter.TokenBucket),
			} {
				q := named(t, "rule", "", l)
				for i := range 100 {
					m.take(q, fmt.Sprint(i), 20)
				}
			}
			return m.Stats().Bytes
		}
		change()
		before := change()
		for range 20 {
			change()
		}
		assert.Equal(t, before, m.Stats().Bytes)
	})
}

// manyLimits is three times as many as can have words at a time.
const manyLimits = int64(12_000)

// Limits that come and go, as those of plans and of files that are loaded anew.
func TestMemoryTakesAnyNumberOfLimits(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m := newMemory(t, 0)
		for i := range manyLimits {
			a := []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingCounter, limiter.FixedWindow}[i%3]
			q := named(t, "rule", "", limiter.Limit{Events: 100_000 + i, Per: 30 * 24 * time.Hour, Algorithm: a})
			require.True(t, m.take(q, fmt.Sprint("key ", i%1000), 1), "limit %d", i)
			require.EqualValues(t, i/1000+1, q.Capacity()-m.remaining(q, fmt.Sprint("key ", i%1000)), "what was used under other limits stays used")
		}
		assert.Less(t, m.Stats().Bytes, 1<<20, "a key has at most four states")
	})
}

// A limit that follows the load, in a service that runs for weeks: what former limits left behind would
// cost each new key a state beside its cell.
func TestALimitThatChangesEachMinuteLeavesNothingBehind(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m := newMemory(t, 0)
		var newest *limiter.Quota
		for minute := range int64(200 * 60) {
			newest = named(t, "rule", "", limiter.PerMinute(100_000+minute))
			for key := range 5 {
				require.True(t, m.take(newest, fmt.Sprint("minute ", minute, " key ", key), 1))
			}
			time.Sleep(time.Minute)
		}
		assert.Less(t, m.Stats().Bytes, 1<<18)
		takesAWordPerKey(t, m, newest)
	})
}

// While more limits are in use than can have words, keys of the others count too; and those that come later
// have words again.
func TestLimitsGetWordsAgainWhenOthersAreNoLongerInUse(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m := newMemory(t, 0)
		limit := func(i int64) *limiter.Quota { return named(t, fmt.Sprint("rule ", i), "", limiter.PerDay(100_000+i)) }
		for round := range 2 {
			for i := range manyLimits {
				require.True(t, m.take(limit(i), "key", 100))
			}
			for i := range manyLimits {
				require.EqualValues(t, 100_000+i-100, m.remaining(limit(i), "key"), "limit %d", i)
			}
			time.Sleep(48 * time.Hour)
			takesAWordPerKey(t, m, named(t, fmt.Sprint("new ", round), "", limiter.PerDay(1_000_000+int64(round))))
			time.Sleep(48 * time.Hour)
		}
	})
}

// takesAWordPerKey requires that new keys of q take no state beside their cells.
func takesAWordPerKey(t *testing.T, m memory, q *limiter.Quota) {
	t.Helper()
	const keys = 20_000
	before := m.Stats().Bytes
	for i := range keys {
		require.True(t, m.take(q, fmt.Sprint("of one minute ", i), 1))
	}
	assert.Less(t, (m.Stats().Bytes-before)/keys, 50)
}

// Old requests decide under former limits while the limit changes and tags are given anew: no unit is lost.
func TestALimitMayChangeWhileItsKeysAreInUse(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m := newMemory(t, 0)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for id := range 4 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(11, uint64(id)))
				var q *limiter.Quota
				for i := range 4000 {
					if i%2 == 0 {
						q = named(t, "rule", "", limiter.PerDay(1_000_000+random.Int64N(1e6)).With(limiter.TokenBucket))
					}
					d := m.decide(charge(q, "key", 1), limiter.Charge{Quota: named(t, "other", "", limiter.PerDay(1_000_000+random.Int64N(1e6))), Key: fmt.Sprint(i), Cost: 1})
					if d[0].Allowed && d[1].Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		q := named(t, "rule", "", limiter.PerDay(3_000_000).With(limiter.TokenBucket))
		assert.InDelta(t, admitted.Load(), q.Capacity()-m.remaining(q, "key"), 5, "which may have refilled meanwhile")
		assert.EqualValues(t, 4*4000, admitted.Load())
	})
}
