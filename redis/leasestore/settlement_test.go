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
	require.NoError(t, limiter.Settle(t.Context(), r.store, []limiter.Settlement{{Charge: r.charge, Actual: r.actual}}))
}

// reserved is what a fleet of three admits of one key, with what each event really cost, which
// is up to so many times what was reserved.
func reserved(t *testing.T, random *rand.Rand, m Mode, q *limiter.Quota, most float64, kills bool) []reservation {
	f := newFake()
	f.lag.Store(random.Int64N(2) * int64(20*time.Millisecond))
	next := 0
	join := func() *Store {
		next++
		return f.instance(t, next, Options{Mode: m})
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
		require.Positive(t, d.At)
		c.At = d.At
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
	for _, m := range []Mode{Exact, Leased, Synchronized} {
		for _, l := range []limiter.Limit{
			limiter.PerSecond(100).With(limiter.TokenBucket),
			limiter.PerSecond(20).WithBurst(100),
			limiter.PerSecond(100).With(limiter.SlidingCounter),
			{Events: 300, Per: 2 * time.Second, Algorithm: limiter.FixedWindow},
		} {
			for seed := range uint64(4) {
				t.Run(fmt.Sprint(m, " ", l, " ", seed), func(t *testing.T) {
					phase.Test(t, func(t *testing.T) {
						q := settlingQuota(t, l)
						g := newGauge(q)
						s, windows := limiter.State{}, map[int64]int64{}
						all := reserved(t, rand.New(rand.NewPCG(seed, 3)), m, q, 1, seed%2 == 1)
						refunded := int64(0)
						for _, r := range all {
							refunded += r.charge.Cost - r.actual
							g.admitAt(r.at, r.actual)
							windows[r.at.UnixMicro()/l.Per.Microseconds()] += r.actual
							if m != Synchronized && l.Algorithm != limiter.TokenBucket {
								after, ok := q.Take(s, r.at.UnixMicro(), r.actual)
								require.True(t, ok, "the algorithm itself would have refused what was admitted at %v", r.at)
								s = after
							}
						}
						require.Greater(t, refunded, q.Capacity(), "or this test tries nothing")
						slack := 1e-6 * g.capacity
						ahead := float64(q.Capacity() * defaultAhead / 100)
						switch {
						case m == Synchronized && l.Algorithm == limiter.TokenBucket:
							assert.LessOrEqual(t, g.worst(), 2*g.capacity+slack)
						case m == Synchronized:
							for window, n := range windows {
								assert.LessOrEqual(t, n, 3*q.Capacity(), "in window %d", window)
							}
						case m == Leased && l.Algorithm == limiter.TokenBucket:
							assert.LessOrEqual(t, g.worst(), ahead+slack, "over the worst interval")
							assert.LessOrEqual(t, g.above(), slack, "over the whole time")
						case l.Algorithm == limiter.TokenBucket:
							assert.LessOrEqual(t, g.worst(), slack)
						}
					})
				})
			}
		}
	}
}
