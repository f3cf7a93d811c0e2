package limiter_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// anySteadyLimit is a limit with a period from a second to an hour.
func anySteadyLimit() *rapid.Generator[limiter.Limit] {
	return rapid.Custom(func(t *rapid.T) limiter.Limit {
		per := rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second, 7 * time.Second, 10 * time.Second, time.Minute, 61 * time.Second, 90 * time.Second, time.Hour}).Draw(t, "per")
		l := limiter.Limit{Per: per, Algorithm: limiter.Algorithm(rapid.IntRange(0, int(limiter.SlidingCounter)).Draw(t, "algorithm"))}
		l.Events = rapid.Int64Range(1, 400).Draw(t, "events")
		if l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket {
			l.Burst = rapid.SampledFrom([]int64{0, l.Events, 1 + l.Events/10}).Draw(t, "burst")
		}
		if l.Algorithm == limiter.SlidingCounter || l.Algorithm == limiter.SlidingWindow && l.Events > 10 {
			l.Events = max(l.Events, 30) // a smaller counter, also alone, refuses some at nine tenths of its rate
		}
		if rapid.IntRange(0, 15).Draw(t, "calendar") == 0 {
			l = limiter.Daily(l.Events * 100)
		}
		return l
	})
}

// A client below two limits in turn is refused by neither: of any algorithms and periods, from the start, and if the
// second limit comes when the client has been there for long.
func TestAClientBelowTwoLimitsIsRefusedByNeither(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		one, other := anySteadyLimit().Draw(rt, "one"), anySteadyLimit().Draw(rt, "other")
		pause := time.Duration(0) // between events, for nine tenths of the lower rate
		for _, l := range []limiter.Limit{one, other} {
			pause = max(pause, micros(int64(float64(l.Per.Microseconds())/float64(l.Events)/0.9)+1))
		}
		rarely := rapid.SampledFrom([]int{2, 2, 3, 10}).Draw(rt, "rarely") // the other limit is asked
		alone := rapid.SampledFrom([]int{0, 0, 5, 100, 150}).Draw(rt, "alone")
		start := micros(rapid.Int64Range(0, (2*time.Hour).Microseconds()).Draw(rt, "start"))
		inBubble(t, func() {
			time.Sleep(start)
			m, err := limiter.NewMemory(limiter.MemoryOptions{})
			require.NoError(rt, err)
			plain := newPlainStore()
			quotas := []*limiter.Quota{named(rt, "rule", "", one), named(rt, "rule", "", other)}
			for i := range alone + 300 {
				q := quotas[0]
				if i >= alone && i%rarely == 0 {
					q = quotas[1]
				}
				charges, same := []limiter.Charge{charge(q, "key", 1)}, []limiter.Charge{charge(q, "key", 1)}
				require.NoError(rt, m.Decide(t.Context(), charges))
				require.NoError(rt, plain.Decide(t.Context(), same))
				require.Equal(rt, same[0].Decision, charges[0].Decision)
				require.True(rt, charges[0].Decision.Allowed, "event %d, under %v, every %v", i, q.Limit(), pause)
				time.Sleep(pause)
			}
		})
	})
}

// Whoever waits as long as a refusal says is admitted, and not a microsecond earlier, whichever limit was used before.
func TestARefusalTellsTheWaitWhateverLimitWasUsed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limits := rapid.SliceOfN(anySteadyLimit(), 2, 5).Draw(rt, "limits")
		start := micros(rapid.Int64Range(0, (2*time.Hour).Microseconds()).Draw(rt, "start"))
		inBubble(t, func() {
			time.Sleep(start)
			m, err := limiter.NewMemory(limiter.MemoryOptions{})
			require.NoError(rt, err)
			take := func(q *limiter.Quota, cost int64) limiter.Decision {
				charges := []limiter.Charge{charge(q, "key", cost)}
				require.NoError(rt, m.Decide(t.Context(), charges))
				return charges[0].Decision
			}
			for range rapid.IntRange(1, 12).Draw(rt, "steps") {
				q := named(rt, "rule", "", rapid.SampledFrom(limits).Draw(rt, "limit"))
				cost := rapid.Int64Range(1, q.Capacity()).Draw(rt, "cost")
				look := take(q, 0)
				d := take(q, cost)
				require.Equal(rt, cost <= look.Remaining, d.Allowed, "%v", q.Limit())
				if !d.Allowed {
					time.Sleep(d.RetryAfter - time.Microsecond)
					require.False(rt, take(q, cost).Allowed, "%d of %v, a microsecond before %v", cost, q.Limit(), d.RetryAfter)
					time.Sleep(time.Microsecond)
					require.True(rt, take(q, cost).Allowed, "%d of %v, after %v", cost, q.Limit(), d.RetryAfter)
				}
				time.Sleep(micros(rapid.Int64Range(0, q.Window().Microseconds()/2).Draw(rt, "pause")))
			}
		})
	})
}

// An event under one limit counts under all, as far as it has room: nobody gets more than the sum of two limits.
func TestTwoLimitsTogetherAdmitAtMostTheirSum(t *testing.T) {
	algorithms := []limiter.Algorithm{limiter.SlidingLog, limiter.FixedWindow, limiter.SlidingCounter, limiter.TokenBucket}
	for _, a := range algorithms {
		for _, b := range algorithms {
			t.Run(fmt.Sprint(a, " and ", b), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m, err := limiter.NewMemory(limiter.MemoryOptions{})
					require.NoError(t, err)
					quotas := []*limiter.Quota{named(t, "rule", "", limiter.PerMinute(60).With(a)), named(t, "rule", "", limiter.PerHour(600).With(b))}
					admitted := [2]int{}
					for i := range 2 * 3600 {
						charges := []limiter.Charge{charge(quotas[i%2], "key", 1)}
						require.NoError(t, m.Decide(t.Context(), charges))
						if charges[0].Decision.Allowed {
							admitted[i%2]++
						}
						time.Sleep(500 * time.Millisecond)
					}
					// The limit of a minute admits what the other one does not see in vain: 60 in each minute.
					require.LessOrEqual(t, admitted[0]+admitted[1], 3600+2*60+2*600)
					require.LessOrEqual(t, admitted[1], 2*600, "the limit of an hour counts the events of both")
				})
			})
		}
	}
}
