package limiter_test

import (
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// mustQuota is l under a name that no test looks at.
func mustQuota(tb require.TestingT, l limiter.Limit) *limiter.Quota {
	q, err := limiter.NewQuota("rule", "", l)
	require.NoError(tb, err, "%v", l)
	return q
}

// event returns the state and the decision after an event of that cost.
func event(q *limiter.Quota, s limiter.State, now, cost int64) (limiter.State, limiter.Decision) {
	s, allowed := q.Take(s, now, cost)
	return s, q.Describe(s, now, cost, allowed)
}

func TestEveryDecisionIsTheModels(t *testing.T) {
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				q := mustQuota(t, anyLimit(a).Draw(t, "limit"))
				if stepOf(q) > 1 {
					t.Skip("fades in steps, which is another test")
				}
				now := anyStart().Draw(t, "start")
				steps, times := 25, []int64{0, 1, now, math.MaxInt64, math.MinInt64}
				if q.Settles = a == limiter.TokenBucket && rapid.Bool().Draw(t, "settles"); q.Settles {
					// As many takes as lows are remembered, and times of takes only.
					steps, times = 8, []int64{0}
				}
				m, s, d := newModel(q), limiter.State{}, limiter.Decision{}
				taken := map[int64]int64{}
				for range rapid.IntRange(1, steps).Draw(t, "steps") {
					now = max(0, now+anyStep(q, d).Draw(t, "step"))
					if q.Settles && isAhead(q, s.Last, now) { // what was taken is forgotten
						times = times[:1]
						clear(taken)
					}
					if rapid.IntRange(0, 4).Draw(t, "refunds") == 0 {
						n := anyCost(q.Capacity(), 1).Draw(t, "n")
						at := rapid.SampledFrom(times).Draw(t, "at")
						switch {
						case q.Settles && at != 0: // at most what was taken then
							n = min(n, taken[at])
							taken[at] -= max(0, n)
						case q.Settles:
							times = times[:1] // what was taken may have come back now
							clear(taken)
						}
						s = q.Settle(s, now, returned(n, at))
						m.refund(now, n, at)
					}
					if rapid.IntRange(0, 4).Draw(t, "owes") == 0 {
						n := anyOwed(q.Capacity()).Draw(t, "owed")
						s = q.Settle(s, now, limiter.Settlement{Actual: n})
						m.owes(now, n)
					}
					cost := anyCost(q.Capacity(), m.remaining(now)).Draw(t, "cost")
					s, d = event(q, s, now, cost)
					require.Equal(t, m.decide(now, cost), d, "cost %d at %d under %v", cost, now, q.Limit())
					if !q.Settles || d.Allowed && cost > 0 {
						times = append(times, d.Receipt.At)
						taken[d.Receipt.At] += cost
					}
				}
			})
		})
	}
}

func TestAWindowThatFadesInStepsNeverAdmitsMoreThanOneThatDoesNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		per := rapid.Int64Range(1e9, maxPeriod.Microseconds()).Draw(t, "per")
		events := rapid.Int64Range(1<<53/per+1, min(maxEvents, maxRate*per)).Draw(t, "events")
		q := mustQuota(t, limiter.Limit{Events: events, Per: micros(per), Algorithm: limiter.SlidingCounter})
		step := stepOf(q)
		require.Greater(t, step, int64(1))
		m, s, d := newModel(q), limiter.State{}, limiter.Decision{}
		now := anyStart().Draw(t, "start")
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			now = anyNow(q, s, now, d).Draw(t, "now")
			exact := m.remaining(now)
			// What the exact window had room for two steps ago: one has not passed yet, and
			// in a window of no whole number of steps they are a little longer.
			var late int64
			if at := max(now, *m.last); at%per >= 2*step {
				late = floor(m.room(at - 2*step))
			}
			cost := anyCost(q.Capacity(), exact).Draw(t, "cost")
			s, d = event(q, s, now, cost)
			if d.Allowed && cost > 0 {
				require.LessOrEqual(t, cost, exact, "admitted although the exact window has no room")
				require.True(t, m.take(now, cost))
			} else if cost > 0 {
				require.Greater(t, cost, late, "refused although the exact window had room two steps ago")
			}
			checkFuture(t, q, s, now, cost, d)
		}
	})
}

// checkFuture tries what a decision says of the future, on copies of the state.
func checkFuture(t require.TestingT, q *limiter.Quota, s limiter.State, now, cost int64, d limiter.Decision) {
	remaining := func(after time.Duration) int64 {
		return q.Describe(s, now+after.Microseconds(), 0, true).Remaining
	}
	admitted := func(after time.Duration) bool {
		_, ok := q.Take(s, now+after.Microseconds(), cost)
		return ok
	}
	const tick = time.Microsecond
	switch {
	case d.Allowed:
		require.Zero(t, d.RetryAfter)
	case cost > q.Capacity():
		require.Equal(t, limiter.Never, d.RetryAfter)
	default:
		require.GreaterOrEqual(t, d.RetryAfter, tick)
		require.False(t, admitted(d.RetryAfter-tick), "admitted before RetryAfter")
		require.True(t, admitted(d.RetryAfter), "refused after RetryAfter")
		whole := (d.RetryAfter + time.Second - 1).Truncate(time.Second)
		require.True(t, admitted(whole), "refused after RetryAfter, rounded up to whole seconds")
	}
	if d.Remaining == d.Limit {
		require.Zero(t, d.NextAfter)
		require.Zero(t, d.ResetAfter)
		return
	}
	require.Equal(t, d.Remaining, remaining(d.NextAfter-tick), "grew before NextAfter")
	require.Greater(t, remaining(d.NextAfter), d.Remaining, "did not grow at NextAfter")
	require.Less(t, remaining(d.ResetAfter-tick), d.Limit, "all remain before ResetAfter")
	require.Equal(t, d.Limit, remaining(d.ResetAfter), "not all remain at ResetAfter")
}

func TestTurnsOfALeakyBucketNeverComeCloserTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := mustQuota(t, anyLimit(limiter.LeakyBucket).Draw(t, "limit"))
		q.Settles = rapid.Bool().Draw(t, "settles")
		type turn struct{ at, cost, receipt int64 }
		var turns []turn
		s, d, now := limiter.State{}, limiter.Decision{Remaining: q.Capacity()}, anyStart().Draw(t, "start")
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if waiting := len(turns); waiting > 0 && rapid.Bool().Draw(t, "cancels") {
				if i := rapid.IntRange(0, waiting-1).Draw(t, "which"); turns[i].at > now {
					s = q.Settle(s, now, returned(turns[i].cost, turns[i].receipt))
					turns = slices.Delete(turns, i, i+1)
				}
				continue
			}
			if rapid.IntRange(0, 9).Draw(t, "passes") == 0 {
				now += max(0, anyStep(q, d).Draw(t, "step"))
			}
			cost := anyCost(q.Capacity(), min(d.Remaining, 1+d.Remaining/8)).Draw(t, "cost")
			s, d = event(q, s, now, cost)
			if d.Allowed && cost > 0 {
				turns = append(turns, turn{now + d.Delay.Microseconds(), cost, d.Receipt.At})
			}
		}
		for i := range turns[:max(0, len(turns)-1)] { // each is behind those before it
			unit, refill := rateOf(q)
			distance := turns[i].cost * unit / refill
			require.GreaterOrEqual(t, turns[i+1].at-turns[i].at, distance, "turn %d of %+v under %v", i, turns, q.Limit())
		}
	})
}

// clone is s with a log of its own, since Take appends in place.
func clone(s limiter.State) limiter.State {
	s.Log = slices.Clone(s.Log)
	return s
}

// What the package documentation says of each algorithm, of any closed interval and of the rate that was
// asked for, and not the compiled one.
func TestAnIntervalAdmitsAtMostWhatTheAlgorithmSays(t *testing.T) {
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				q := mustQuota(t, anyLimit(a).Draw(t, "limit"))
				index, per := indexer(q.Limit()), q.Limit().Per.Microseconds()
				book := ledger{limit: q.Limit(), capacity: q.Capacity()}
				var admitted []taking
				s, d, now := limiter.State{}, limiter.Decision{Remaining: q.Capacity()}, anyStart().Draw(t, "start")
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					now = anyNow(q, s, now, d).Draw(t, "now")
					cost := max(1, anyCost(q.Capacity(), d.Remaining).Draw(t, "cost"))
					s, d = event(q, s, now, cost)
					if d.Allowed {
						admitted = append(admitted, taking{s.Last, cost})
					}
				}
				for i, first := range admitted {
					sum := int64(0)
					for _, u := range admitted[i:] {
						sum += u.n
						long := u.at - first.at
						switch {
						case a == limiter.FixedWindow && index(first.at) == index(u.at):
							require.LessOrEqual(t, sum, q.Capacity())
						case a == limiter.FixedWindow || a == limiter.SlidingCounter && long > per:
						default:
							require.LessOrEqual(t, sum, book.most(a, long), "%v in %d µs: %+v", q.Limit(), long, admitted)
						}
					}
				}
			})
		})
	}
}

// A step back by up to a period grants nothing and costs itself. By more, it is as a step forward:
// it grants one burst.
func TestAClockStepBackGrantsABurstAndCostsAPeriodAtMost(t *testing.T) {
	limits := []limiter.Limit{limiter.Daily(10), limiter.Monthly(10)}
	for _, a := range everyAlgorithm {
		limits = append(limits, limiter.Limit{Events: 10, Per: 10 * time.Second, Algorithm: a})
	}
	for _, l := range limits {
		t.Run(l.String(), func(t *testing.T) {
			q := mustQuota(t, l)
			now := time.Date(2026, 3, 1, 0, 0, 0, 1000, time.UTC).UnixMicro()
			period := q.Window().Microseconds()
			s, ok := q.Take(limiter.State{}, now, q.Capacity())
			require.True(t, ok)
			before := q.Describe(s, now, 0, true)

			// Oscillating, it passes the same period again and again.
			for range 100 {
				for _, at := range []int64{now - period, now - 1, now} {
					_, ok := q.Take(s, at, 1)
					require.False(t, ok, "a clock that oscillates refilled what is spent")
				}
			}
			d := q.Describe(s, now-period, 1, false)
			require.Equal(t, before.ResetAfter+micros(period), d.ResetAfter, "it takes as much longer as the clock is behind")
			_, ok = q.Take(s, now-period+d.RetryAfter.Microseconds()-1, 1)
			require.False(t, ok)
			_, ok = q.Take(s, now-period+d.RetryAfter.Microseconds(), 1)
			require.True(t, ok)

			for _, back := range []int64{2*period + 2, 400 * 24 * 3_600_000_000} {
				at := now - back
				require.Equal(t, q.Describe(limiter.State{}, at, 0, true), q.Describe(s, at, 0, true), "after a step of %d periods", back/period)
				after, ok := q.Take(s, at, q.Capacity())
				require.True(t, ok)
				_, ok = q.Take(after, at, 1)
				require.False(t, ok, "more than one burst")
				require.LessOrEqual(t, q.Describe(after, at, 1, false).RetryAfter, micros(2*period))
				require.Equal(t, q.Describe(limiter.State{}, at, 0, true), q.Describe(q.Settle(clone(s), at, returned(1, 0)), at, 0, true))
				require.Equal(t, q.Capacity()-1, q.Describe(q.Settle(s, at, limiter.Settlement{Actual: 1}), at, 0, true).Remaining)
			}
		})
	}
}

func TestTheCompiledRateIsAtMostTheOneAskedForAndHardlyLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(limiter.TokenBucket, limiter.LeakyBucket).Draw(t, "limit")
		q := mustQuota(t, l)
		asked := big.NewRat(l.Events, l.Per.Microseconds())
		unit, refill := rateOf(q)
		compiled := big.NewRat(refill, unit)
		require.LessOrEqual(t, compiled.Cmp(asked), 0, "%v is compiled to a greater rate", l)
		if q.Window() > 31*24*time.Hour {
			return
		}
		tolerance := big.NewRat(1, 1000)
		if asked.Cmp(big.NewRat(1000, 1e6)) <= 0 {
			tolerance = big.NewRat(1, 1_000_000)
		}
		least := new(big.Rat).Mul(asked, tolerance.Sub(big.NewRat(1, 1), tolerance))
		require.GreaterOrEqual(t, compiled.Cmp(least), 0, "%v is compiled to %v of its rate", l,
			new(big.Rat).Quo(compiled, asked).FloatString(9))
	})
}

func TestWhatIsCountedStaysExactInAFloat64(t *testing.T) {
	const exact = 1 << 53
	rapid.Check(t, func(t *rapid.T) {
		q := mustQuota(t, anyLimit().Draw(t, "limit"))
		switch q.Algorithm() {
		case limiter.TokenBucket, limiter.LeakyBucket:
			unit, refill := rateOf(q)
			level := new(big.Int).Mul(big.NewInt(q.Capacity()), big.NewInt(unit))
			require.LessOrEqual(t, level.Cmp(big.NewInt(exact)), 0, "capacity*unit")
			drained := new(big.Int).Mul(big.NewInt(q.Window().Microseconds()), big.NewInt(refill))
			require.LessOrEqual(t, drained.Cmp(big.NewInt(exact)), 0, "drain*refill")
			require.LessOrEqual(t, refill, int64(1<<14), "a word holds a time in units of 1/refill for 15 years")
		case limiter.SlidingCounter:
			window, step := q.Window().Microseconds(), stepOf(q)
			weight := new(big.Int).Mul(big.NewInt(q.Capacity()), big.NewInt((window+step-1)/step))
			require.LessOrEqual(t, weight.Cmp(big.NewInt(exact)), 0, "Events*steps")
		}
	})
}
