package leasestore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// A reservation is an event that was admitted, and is settled when it is known what it cost.
type reservation struct {
	store   *Store
	charge  limiter.Charge
	at, due time.Time
	actual  int64
}

func (r *reservation) settle(t testing.TB) {
	t.Helper()
	require.NoError(t, r.store.Settle(t.Context(), []limiter.Settlement{{Charge: r.charge, Actual: r.actual}}))
}

// reserved is what a fleet of three admits of one key, with what each event really cost, which
// is up to so many times what was reserved.
func reserved(t *testing.T, random *rand.Rand, q *limiter.Quota, most float64, kills bool) []reservation {
	f := newFake()
	f.lag.Store(random.Int64N(2) * int64(20*time.Millisecond))
	next := 0
	join := func() *Store {
		next++
		return f.instance(t, next, Options{})
	}
	fleet := []*Store{join(), join(), join()}
	var all []reservation
	var open []int
	load, answer := 1+random.IntN(40), 1+random.Int64N(int64(3*time.Second))
	for range 3000 {
		switch n := random.IntN(1000); {
		case n < 3 && kills:
			i := random.IntN(3)
			fleet[i].abandon()
			dead := fleet[i]
			fleet[i] = join()
			open = slices.DeleteFunc(open, func(i int) bool {
				if all[i].store == dead {
					all[i].actual = all[i].charge.Cost // nothing is refunded
				}
				return all[i].store == dead
			})
		case n < 20:
			load, answer = 1+random.IntN(40), 1+random.Int64N(int64(3*time.Second))
		}
		time.Sleep(time.Duration(random.IntN(int(time.Second) / load)).Truncate(time.Microsecond))
		open = slices.DeleteFunc(open, func(i int) bool {
			isDue := !time.Now().Before(all[i].due)
			if isDue {
				all[i].settle(t)
			}
			return isDue
		})
		c := limiter.Charge{Quota: q, Key: "key", Cost: 1 + random.Int64N(q.Capacity()/10)}
		s := fleet[random.IntN(3)*random.IntN(2)]
		now := time.Now()
		d := decideOne(t, s, q, c.Key, c.Cost)
		if !d.Allowed {
			continue
		}
		require.Positive(t, d.Receipt.At)
		c.Decision = d
		all = append(all, reservation{
			store: s, charge: c, at: now, due: now.Add(time.Duration(random.Int64N(answer))),
			actual: int64(float64(c.Cost) * most * random.Float64() * random.Float64()),
		})
		open = append(open, len(all)-1)
	}
	for _, i := range open {
		all[i].actual = all[i].charge.Cost // which is never settled
	}
	return all
}

func settlingQuota(t testing.TB, l limiter.Limit) *limiter.Quota {
	t.Helper()
	q := quotaOf(t, "rule", l)
	q.Settles = true
	return q
}

// What events really cost, as if that had been known when they were admitted.
func TestWhatIsReallyUsedIsWithinTheLimit(t *testing.T) {
	t.Parallel()
	for _, l := range []limiter.Limit{
		limiter.PerSecond(100).With(limiter.TokenBucket),
		limiter.PerSecond(20).WithBurst(100),
		limiter.PerSecond(100).With(limiter.SlidingCounter),
		{Events: 300, Per: 2 * time.Second, Algorithm: limiter.FixedWindow},
	} {
		for _, seed := range seeds(t, 4, 2) {
			t.Run(fmt.Sprint(l, " ", seed), func(t *testing.T) {
				phase.Test(t, func(t *testing.T) {
					q := settlingQuota(t, l)
					g := newGauge(q)
					s := limiter.State{}
					all := reserved(t, rand.New(rand.NewPCG(seed, 3)), q, 1, seed%2 == 1)
					refunded := int64(0)
					for _, r := range all {
						refunded += r.charge.Cost - r.actual
						g.admitAt(r.at, r.actual)
						if l.Algorithm != limiter.TokenBucket {
							after, ok := q.Take(s, r.at.UnixMicro(), r.actual)
							require.True(t, ok, "the algorithm itself would have refused what was admitted at %v", r.at)
							s = after
						}
					}
					require.Greater(t, refunded, q.Capacity(), "or this test tries nothing")
					slack := 1e-6 * g.capacity
					ahead := float64(q.Capacity() * defaultAhead / 100)
					if l.Algorithm == limiter.TokenBucket {
						assert.LessOrEqual(t, g.worst(), ahead+slack, "over the worst interval")
						assert.LessOrEqual(t, g.above(), slack, "over the whole time")
					}
				})
			})
		}
	}
}

// What is owed is used without asking, so it is what can be used beside the limit.
func TestNoMoreIsUsedThanTheLimitAndWhatIsOwedInTheEnd(t *testing.T) {
	t.Parallel()
	for _, l := range []limiter.Limit{
		limiter.PerSecond(100).With(limiter.TokenBucket),
		limiter.PerSecond(100).With(limiter.SlidingCounter),
		{Events: 200, Per: 2 * time.Second, Algorithm: limiter.FixedWindow},
	} {
		for _, seed := range seeds(t, 4, 1) {
			t.Run(fmt.Sprint(l, " ", seed), func(t *testing.T) {
				phase.Test(t, func(t *testing.T) {
					q := settlingQuota(t, l)
					g := newGauge(q)
					owed := int64(0)
					for _, r := range reserved(t, rand.New(rand.NewPCG(seed, 4)), q, 3, false) {
						g.admit(r.actual)
						owed += max(0, r.actual-r.charge.Cost)
					}
					require.Greater(t, owed, 2*q.Capacity(), "or this test tries nothing")
					most := 2 * g.capacity // which is owed in the end, and a window that has just begun
					assert.LessOrEqual(t, g.above(), most)
				})
			})
		}
	}
}

// settled says what a charge really cost that d was the decision on.
func settled(t testing.TB, s limiter.Store, q *limiter.Quota, cost int64, d limiter.Decision, actual int64) error {
	t.Helper()
	return s.Settle(t.Context(), []limiter.Settlement{{
		Charge: limiter.Charge{Quota: q, Key: "key", Cost: cost, Decision: d}, Actual: actual,
	}})
}

// warmUp has a key leased, and returns how many units that took.
func warmUp(t testing.TB, s *Store, q *limiter.Quota) (used int64) {
	t.Helper()
	for s.Stats().Held == 0 {
		require.True(t, decideOne(t, s, q, "key", 1).Allowed)
		used++
		time.Sleep(15 * time.Millisecond)
	}
	return used
}

// inRedis is how many units of the key are used or held, as Redis has it.
func (f *fake) inRedis(t testing.TB, q *limiter.Quota) int64 {
	t.Helper()
	return q.Capacity() - decideOne(t, f, q, "key", 0).Remaining
}

func TestWhatALeasedEventCostIsSettledInRedis(t *testing.T) {
	t.Parallel()
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingCounter, limiter.FixedWindow} {
		onFake(t, Options{}, func(t *testing.T, f *fake, s *Store) {
			q := settlingQuota(t, limiter.Limit{Events: 1000, Per: 300 * 24 * time.Hour, Algorithm: a})
			used := warmUp(t, s, q)
			d := decideOne(t, s, q, "key", 5)
			require.True(t, d.Allowed)
			held := s.Stats().Held
			require.Equal(t, used+5+held, f.inRedis(t, q))
			require.NoError(t, settled(t, s, q, 5, d, 7))
			require.NoError(t, settled(t, s, q, 0, limiter.Decision{}, 3), "of an unknown event")
			used += 7 + 3
			assert.Equal(t, held, s.Stats().Held, "%v", a)
			assert.Equal(t, used+held, f.inRedis(t, q), "%v", a)
			assert.Equal(t, 1000-used, decideOne(t, s, q, "key", 0).Remaining, "%v", a)

			require.NoError(t, settled(t, s, q, 5, d, 1))
			assert.Equal(t, used-4+held, f.inRedis(t, q), "%v", a)
			assert.Equal(t, 1000-used+4, decideOne(t, s, q, "key", 0).Remaining, "what came back is known at once, %v", a)
		})
	}
}

func TestALeasedEventIsSettledAfterItsLeaseHasEnded(t *testing.T) {
	t.Parallel()
	onFake(t, Options{}, func(t *testing.T, f *fake, s *Store) {
		q := settlingQuota(t, longBucket(1000))
		warmUp(t, s, q)
		more, less := decideOne(t, s, q, "key", 5), decideOne(t, s, q, "key", 5)
		time.Sleep(time.Minute)
		require.Zero(t, s.Stats().Keys)
		used := f.inRedis(t, q)
		require.NoError(t, settled(t, s, q, 5, more, 9))
		assert.Equal(t, used+4, f.inRedis(t, q))
		require.NoError(t, settled(t, s, q, 5, less, 2))
		assert.Equal(t, used+1, f.inRedis(t, q))
		require.NoError(t, s.Close())
		require.NoError(t, settled(t, s, q, 5, more, 7))
		assert.Equal(t, used+3, f.inRedis(t, q), "after the store is closed too")
	})
}

func TestUnitsOfAWindowThatHasEndedAreNotRefundedToTheNext(t *testing.T) {
	t.Parallel()
	for _, a := range []limiter.Algorithm{limiter.SlidingCounter, limiter.FixedWindow} {
		onFake(t, Options{}, func(t *testing.T, f *fake, s *Store) {
			q := settlingQuota(t, limiter.Limit{Events: 1000, Per: time.Minute, Algorithm: a})
			nextWindow := func() {
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Second)))
			}
			nextWindow()
			for range 10 {
				decideOne(t, s, q, "key", 1)
				time.Sleep(15 * time.Millisecond)
			}
			d := decideOne(t, s, q, "key", 50)
			require.True(t, d.Allowed)
			nextWindow()
			require.True(t, decideOne(t, s, q, "key", 100).Allowed)
			time.Sleep(time.Second)
			require.NoError(t, settled(t, s, q, 50, d, 0))
			time.Sleep(time.Second)
			assert.GreaterOrEqual(t, 1000-decideOne(t, s, q, "key", 0).Remaining, int64(100), "%v", a)
			other := f.instance(t, 2, Options{})
			decideOne(t, other, q, "key", 1)
			time.Sleep(time.Second)
			used := int64(100 + 1)
			if a == limiter.SlidingCounter {
				used += 9 // of the window before, the 10 that were not refunded, less what has faded
			}
			assert.GreaterOrEqual(t, 1000-decideOne(t, other, q, "key", 0).Remaining, used, "%v, as others have it", a)
			assert.LessOrEqual(t, 1000-decideOne(t, other, q, "key", 0).Remaining, used+mostChunk+1, "%v", a)
			nextWindow()
			require.NoError(t, settled(t, s, q, 50, d, 80))
			assert.GreaterOrEqual(t, 1000-decideOne(t, s, q, "key", 0).Remaining, int64(30), "what is owed is used now")
		})
	}
}

// A limit of 12 can be leased, and one of 10 is exact.
func TestARuleWhoseLimitBecomesExactGoesOnWithWhatWasUsed(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{}, {Ahead: mostAhead}, {Rules: []string{"rule"}},
	} {
		onFake(t, o, func(t *testing.T, f *fake, s *Store) {
			many, few := quotaOf(t, "rule", limiter.PerHour(12)), quotaOf(t, "rule", limiter.PerHour(10))
			admitted := map[*limiter.Quota]int{}
			var last limiter.Decision
			for i, q := range []*limiter.Quota{many, few, many, few} {
				for range 8 {
					if d := decideOne(t, s, q, "key", 1); d.Allowed {
						admitted[q]++
						last = d
					}
					if i == 0 && admitted[many] == 5 {
						break
					}
					time.Sleep(15 * time.Millisecond)
				}
			}
			total := admitted[many] + admitted[few]
			assert.LessOrEqual(t, total, 12+1) // a counter admits one more around a boundary
			assert.GreaterOrEqual(t, total, 9, "but for what was in hand at a change")
			require.NoError(t, settled(t, s, few, 1, last, 0))
			require.NoError(t, settled(t, s, many, 1, last, 3))
			require.False(t, decideOne(t, s, few, "key", 10).Allowed)
		})
	}
}

// Units in hand stay charged when another release writes the counter: they may be spent, and return otherwise.
func TestUnitsInHandReturnOnceTheCounterIsAnotherLimits(t *testing.T) {
	t.Parallel()
	onFake(t, Options{}, func(t *testing.T, f *fake, s *Store) {
		long := longBucket(1000)
		lower := long
		lower.Events = 500
		q := quotaOf(t, "rule", long)
		warmUp(t, s, q)
		used := f.inRedis(t, q) - s.Stats().Held
		other := decideOne(t, f, quotaOf(t, "rule", lower), "key", 1)
		require.True(t, other.Allowed, "another process has the new rules")
		require.True(t, decideOne(t, s, q, "key", 1).Allowed)
		time.Sleep(2 * life)
		assert.Zero(t, s.Stats().Held)
		assert.InDelta(t, used+2, f.inRedis(t, q), 1, "which a conversion rounds up")
	})
}

func TestARuleWithSeveralLimitsIsDecidedExactlyAsAWhole(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Rules: []string{"api", "api.3600"}}} {
		onFake(t, o, func(t *testing.T, f *fake, s *Store) {
			family, err := limiter.NewQuotas("api", "", limiter.All(
				limiter.PerDay(10_000).With(limiter.TokenBucket), limiter.PerHour(300).With(limiter.TokenBucket),
				limiter.Limit{Events: 5, Per: 365 * 24 * time.Hour, Algorithm: limiter.SlidingLog},
			))
			require.NoError(t, err)
			alone := quotaOf(t, "api", limiter.PerDay(10_000))
			var charges []limiter.Charge
			for _, q := range family {
				charges = append(charges, limiter.Charge{Quota: q, Key: "key", Cost: 1})
			}
			decideOne(t, s, alone, "another", 1)
			admitted := 0
			for range 50 {
				before := f.decided.Load()
				require.NoError(t, s.Decide(t.Context(), charges))
				require.Equal(t, before+1, f.decided.Load(), "in one call")
				if !slices.ContainsFunc(charges, func(c limiter.Charge) bool { return !c.Decision.Allowed }) {
					admitted++
				}
				time.Sleep(time.Millisecond)
			}
			assert.Equal(t, 5, admitted)
			assert.Zero(t, s.Stats().Held)
			for i, q := range family {
				assert.Equal(t, q.Capacity()-5, decideOne(t, f, q, "key", 0).Remaining, "limit %d", i)
			}
		})
	}
}

func TestAnEventIsSettledWhereItWasCountedWhateverHappensToRedis(t *testing.T) {
	t.Parallel()
	const before, during, after = 0, 1, 2
	for counted := before; counted <= after; counted++ {
		for when := counted; when <= after; when++ {
			for _, actual := range []int64{2, 9} {
				t.Run(fmt.Sprint(counted, " ", when, " ", actual), func(t *testing.T) {
					phase.Test(t, func(t *testing.T) {
						f := newFake()
						s := f.instance(t, 1, Options{Rules: []string{"rule"}}) // so that Redis is asked about the other
						q := settlingQuota(t, longBucket(1000))
						cold := quotaOf(t, "cold", longBucket(1000))
						var d limiter.Decision
						var err error
						used, byPolicy := int64(0), int64(0)
						for now := before; now <= after; now++ {
							f.down.Store(now == during)
							for range 400 { // so that the policies come into force, or no longer are
								decideOne(t, s, cold, "key", 1)
								time.Sleep(30 * time.Millisecond)
							}
							isDegraded := decideOne(t, s, q, "key", 0).Degraded
							require.Equal(t, now == during, isDegraded)
							if now == counted {
								d = decideOne(t, s, q, "key", 5)
								require.True(t, d.Allowed)
								require.Equal(t, isDegraded, d.Receipt.By == limiter.ByShare)
								if used += 5; isDegraded {
									used, byPolicy = used-5, 5
								}
							}
							if now == when {
								err = settled(t, s, q, 5, d, actual)
								if isDegraded {
									byPolicy = 1000 - decideOne(t, s, q, "key", 0).Remaining
								}
							}
						}
						isLost := counted == before && when == during
						switch {
						case isLost:
							assert.ErrorIs(t, err, failover.ErrUnavailable)
						case counted == during:
							require.NoError(t, err)
							if when == during {
								assert.Equal(t, actual, byPolicy)
							}
						default:
							require.NoError(t, err)
							used += actual - 5
						}
						time.Sleep(time.Second)
						assert.Equal(t, used, 1000-decideOne(t, s, q, "key", 0).Remaining, "as the process has it")
						require.NoError(t, s.Close())
						assert.Equal(t, used, f.inRedis(t, q), "as Redis has it")
					})
				})
			}
		}
	}
}

type closing struct {
	limiter.Store
	closed *int
}

func (c closing) Close() error { *c.closed++; return errDown }

func TestClosingWaitsForWhatTheExactStoreSettlesLater(t *testing.T) {
	t.Parallel()
	phase.Test(t, func(t *testing.T) {
		closed, o := 0, Options{}.complete()
		s := newStore(closing{newFake(), &closed}, fakeLedger{newFake(), 1, 25}, o)
		assert.ErrorIs(t, s.Close(), errDown)
		require.NoError(t, s.Close())
		assert.Equal(t, 1, closed)
	})
}
