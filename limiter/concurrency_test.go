package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
)

func TestMain(m *testing.M) { leak.VerifyMain(m) }

// At the cap everything happens at once: eviction, growth, overflow and batches.
func TestConcurrentFloodsNeitherDeadlockNorSetAnExhaustedKeyFree(t *testing.T) {
	for _, maxKeys := range []int{1, fewKeys, 3000} {
		phase.Run(t, fmt.Sprint("MaxKeys ", maxKeys), func(t *testing.T) {
			m := newMemory(t, maxKeys)
			quotas := []*limiter.Quota{
				named(t, "a", "", limiter.PerHour(3)), named(t, "b", "", limiter.PerHour(3).With(limiter.SlidingLog)),
				named(t, "c", "", limiter.PerHour(80_000_000)), named(t, "d", "", limiter.PerHour(3).With(limiter.TokenBucket)),
			}
			quotas[3].Settles = true
			victim := named(t, "victim", "", limiter.PerHour(5))
			require.True(t, m.take(victim, "key", 5))
			var wg sync.WaitGroup
			for id := range 8 {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(5, uint64(id)))
					for range 400 {
						var charges []limiter.Charge
						for range 1 + random.IntN(4) {
							q := quotas[random.IntN(len(quotas))]
							c := charge(q, fmt.Sprint(random.IntN(5000)), random.Int64N(4))
							if limiter.CheckCharges(append(charges, c)) == nil {
								charges = append(charges, c)
							}
						}
						if random.IntN(20) == 0 {
							charges = append(charges, charge(victim, "key", 1))
						}
						assert.NoError(t, m.Decide(t.Context(), charges))
						if last := charges[len(charges)-1]; last.Quota == victim {
							assert.False(t, last.Decision.Allowed)
						}
						switch random.IntN(10) {
						case 0:
							assert.NoError(t, m.Settle(t.Context(), refunds(charges[:1]...)))
						case 1:
							m.Stats()
						}
					}
				})
			}
			wg.Wait()
			assert.False(t, m.take(victim, "key", 1))
			m.Stats() // takes each lock
		})
	}
}

// Were the clock read before the word, a bucket that is refilled every microsecond would soon
// be seen fuller than full, and a window's words would be of windows to come.
func TestNoDecisionIsBeforeOneItBuildsOn(t *testing.T) {
	for _, a := range everyAlgorithm {
		for _, batch := range []bool{false, true} {
			phase.Run(t, fmt.Sprintf("%v, batch %v", a, batch), func(t *testing.T) {
				m := newMemory(t, 0)
				quotas := []*limiter.Quota{
					named(t, "a", "", limiter.Limit{Events: 2, Per: 2 * time.Microsecond, Algorithm: a}),
					named(t, "b", "", limiter.Limit{Events: 2, Per: 2 * time.Microsecond, Algorithm: a}),
				}
				if !batch {
					quotas = quotas[:1]
				}
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						var charges []limiter.Charge
						for _, q := range quotas {
							charges = append(charges, charge(q, "key", 1))
						}
						for range 15_000 {
							if err := m.Decide(t.Context(), charges); !assert.NoError(t, err) {
								return
							}
							for _, c := range charges {
								d := c.Decision
								// What a bucket or two windows can be away from idle.
								if d.Remaining < 0 || d.Remaining > d.Limit || d.ResetAfter > 4*time.Microsecond || d.RetryAfter > 4*time.Microsecond {
									t.Errorf("%+v", d)
									return
								}
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// Batches of two keys in either order, beside decisions on one of them: what is in use of
// both is as much as was admitted, and no batch sees one key ahead of the other.
func TestBatchesAreOneStepAmongThoseWithoutLocks(t *testing.T) {
	const callers, calls = 4, 20_000
	for name, settles := range map[string][2]bool{"words": {}, "one a state": {true, false}, "both states": {true, true}} {
		for _, a := range []limiter.Algorithm{limiter.SlidingCounter, limiter.TokenBucket, limiter.FixedWindow} {
			if name != "words" && a != limiter.TokenBucket {
				continue // only a bucket's state is another
			}
			phase.Run(t, name+"/"+a.String(), func(t *testing.T) { // where time stands still
				m := newMemory(t, 0)
				x := named(t, "x", "", limiter.PerHour(callers*calls).With(a))
				y := named(t, "y", "", limiter.PerHour(callers*calls/4).With(a))
				x.Settles, y.Settles = settles[0], settles[1]
				never := named(t, "never", "", limiter.PerHour(1).With(a))
				require.True(t, m.take(never, "key", 1))
				var onBoth, onX atomic.Int64
				caller := func(random *rand.Rand) {
					for range calls {
						charges := []limiter.Charge{{Quota: x, Key: "key", Cost: 1}, {Quota: y, Key: "key", Cost: 1}}
						taken := random.IntN(5)
						switch taken {
						case 0:
							slices.Reverse(charges)
						case 1:
							charges[0].Cost, charges[1].Cost = 0, 0
						case 2:
							charges = append(charges, charge(never, "key", 1))
						case 3:
							charges = charges[:1]
						}
						before := onX.Load()
						d := m.decide(charges...)
						after := onX.Load() + callers // as many may not have counted theirs yet
						used := func(q *limiter.Quota) int64 {
							i := slices.IndexFunc(charges, func(c limiter.Charge) bool { return c.Quota == q })
							return d[i].Limit - d[i].Remaining
						}
						all := !slices.ContainsFunc(d, func(d limiter.Decision) bool { return !d.Allowed })
						switch {
						case taken == 3:
							if all {
								onX.Add(1)
							}
							continue
						case taken != 1 && all:
							onBoth.Add(1)
						}
						if alone := used(x) - used(y); alone < before || alone > after {
							t.Errorf("%d were taken from one key alone, where it must be from %d to %d: %+v", alone, before, after, d)
							return
						}
					}
				}
				var wg sync.WaitGroup
				for id := range callers {
					wg.Go(func() { caller(rand.New(rand.NewPCG(3, uint64(id)))) })
				}
				wg.Wait()
				used := func(q *limiter.Quota) int64 {
					d := m.decide(charge(q, "key", 0))[0]
					return d.Limit - d.Remaining
				}
				assert.Equal(t, onBoth.Load()+onX.Load(), used(x))
				assert.Equal(t, onBoth.Load(), used(y))
				assert.Equal(t, y.Capacity(), onBoth.Load(), "some must have been refused")
			})
		}
	}
}

// Everything at once, but for eviction: no unit is lost, and none is taken twice.
func TestWhatIsInUseIsWhatWasAdmittedLessWhatWasGivenBack(t *testing.T) {
	phase.Test(t, func(t *testing.T) { // where time stands still
		const keys = 300
		m := newMemory(t, 0)
		quotas := []*limiter.Quota{
			named(t, "a", "", limiter.PerDay(10_000)), named(t, "b", "", limiter.PerDay(10_000).With(limiter.TokenBucket)),
			named(t, "c", "", limiter.PerDay(8e11)), named(t, "d", "", limiter.PerDay(9000).With(limiter.SlidingLog)),
			named(t, "e", "", limiter.PerDay(10_000).With(limiter.FixedWindow)), named(t, "f", "", limiter.PerDay(10_000).With(limiter.TokenBucket)),
		}
		quotas[5].Settles = true
		var used [6][keys]atomic.Int64
		var wg sync.WaitGroup
		for id := range 4 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(9, uint64(id)))
				for range 4000 {
					var charges []limiter.Charge
					var of []*atomic.Int64
					for range 1 + random.IntN(4) {
						i, key := random.IntN(len(quotas)), random.IntN(keys)
						c := charge(quotas[i], fmt.Sprint(key), 1+random.Int64N(3))
						if limiter.CheckCharges(append(charges, c)) == nil {
							charges, of = append(charges, c), append(of, &used[i][key])
						}
					}
					assert.NoError(t, m.Decide(t.Context(), charges))
					back := random.IntN(3) == 0
					if back { // all of what was taken just now, so it is there
						assert.NoError(t, m.Settle(t.Context(), refunds(charges...)))
					}
					for i, c := range charges {
						assert.True(t, c.Decision.Allowed)
						if !back {
							of[i].Add(c.Cost)
						}
					}
				}
			})
		}
		wg.Wait()
		require.Zero(t, m.Stats().Evicted)
		for i, q := range quotas {
			for key := range keys {
				assert.Equal(t, used[i][key].Load(), q.Capacity()-m.remaining(q, fmt.Sprint(key)), "%v, key %d", q.Limit(), key)
			}
		}
	})
}
