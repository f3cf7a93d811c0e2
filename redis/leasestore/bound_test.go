package leasestore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
	"github.com/weirgo/weir/redis/redisstore"
)

// A gauge holds what was admitted against a bucket: by how much it was exceeded, over the
// whole time and over the worst interval.
type gauge struct {
	capacity, rate float64 // units, and units in a second
	began, last    time.Time
	total          float64
	level, peak    float64
}

func newGauge(q *limiter.Quota) *gauge {
	l := q.Limit()
	now := time.Now()
	return &gauge{capacity: float64(q.Capacity()), rate: float64(l.Events) / l.Per.Seconds(), began: now, last: now}
}

func (g *gauge) admit(cost int64) { g.admitAt(time.Now(), cost) }

func (g *gauge) admitAt(now time.Time, cost int64) {
	g.level = max(0, g.level-g.rate*now.Sub(g.last).Seconds()) + float64(cost)
	g.last = now
	g.peak = max(g.peak, g.level)
	g.total += float64(cost)
}

// above is by how much admissions exceed the burst and the rate over the whole time; worst
// is the same of the interval in which it is most.
func (g *gauge) above() float64 {
	return g.total - g.capacity - g.rate*time.Since(g.began).Seconds()
}
func (g *gauge) worst() float64 { return g.peak - g.capacity }

// abandon ends an instance as a crash does: nothing is returned, nothing told.
func (s *Store) abandon() {
	s.once.Do(func() {
		close(s.stop)
		<-s.ended
	})
}

// A traffic is what happens to one key of a fleet at random, seen by one gauge.
type traffic struct {
	limit           limiter.Limit
	kills, restarts bool
	outages         bool
}

func (tr traffic) run(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 7))
		f := newFake()
		q := quotaOf(t, "rule", tr.limit)
		q.OnOutage = limiter.FailClosed
		g := newGauge(q)
		next := 0
		join := func() *Store {
			next++
			return f.instance(t, next, Options{})
		}
		fleet := []*Store{join(), join(), join()}
		bursts := 1.0 // how often all instances together could begin anew

		load := 1 << random.IntN(5)
		for range 3000 {
			switch n := random.IntN(1000); {
			case n < 5 && tr.kills:
				i := random.IntN(len(fleet))
				fleet[i].abandon()
				fleet[i] = join()
			case n < 8 && tr.kills && len(fleet) > 1:
				require.True(t, f.down.Load() || fleet[0].Close() == nil)
				fleet = fleet[1:]
			case n < 11 && tr.kills && len(fleet) < 5:
				fleet = append(fleet, join())
			case n == 11 && tr.restarts:
				f.empty()
				bursts++
			case n < 17 && tr.outages:
				f.down.Store(!f.down.Load())
			case n < 40:
				load = 1 << random.IntN(6)
				f.lag.Store(random.Int64N(int64(40*time.Millisecond)) / 1000 * 1000 * random.Int64N(2))
			}
			if random.IntN(3) > 0 {
				time.Sleep(time.Duration(random.IntN(int(time.Second) / load / 20)))
			}
			s := fleet[min(random.IntN(6)*random.IntN(2), len(fleet)-1)]
			cost := int64(1)
			if random.IntN(10) == 0 {
				cost = 1 + random.Int64N(q.Capacity()/4+1)
			}
			charges := []limiter.Charge{{Quota: q, Key: "key", Cost: cost}}
			err := s.Decide(t.Context(), charges)
			if err != nil {
				require.True(t, f.down.Load() || tr.outages, "%v", err)
				continue
			}
			if d := charges[0].Decision; d.Allowed && !d.Degraded {
				g.admit(cost)
			}
		}
		ahead := float64(q.Capacity() * defaultAhead / 100)
		slack := 1e-6 * g.capacity
		assert.LessOrEqual(t, g.above(), (bursts-1)*g.capacity+slack, "over the whole time, in units")
		assert.LessOrEqual(t, g.worst(), (bursts-1)*g.capacity+ahead+slack, "over the worst interval, in units")
		f.down.Store(false)
	})
}

func TestLeasedNeverAdmitsMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	for name, tr := range map[string]traffic{
		"while all is well":             {},
		"as instances come, go and die": {kills: true},
		"as Redis is restarted empty":   {restarts: true},
		"as Redis comes and goes":       {outages: true},
		"whatever happens":              {kills: true, restarts: true, outages: true},
	} {
		t.Run(name, func(t *testing.T) {
			limits := []limiter.Limit{
				limiter.PerSecond(100).With(limiter.TokenBucket),
				limiter.PerSecond(10).WithBurst(40),
				limiter.Limit{Events: 77, Per: 3 * time.Second}.With(limiter.TokenBucket),
			}
			for _, seed := range seeds(t, 15, 3) {
				tr.limit = limits[seed%3]
				t.Run(fmt.Sprint(tr.limit, " ", seed), func(t *testing.T) { tr.run(t, seed) })
			}
		})
	}
}

func TestAllInstancesTogetherHoldNoMoreThanAhead(t *testing.T) {
	t.Parallel()
	phase.Test(t, func(t *testing.T) {
		f := newFake()
		q := quotaOf(t, "rule", limiter.PerSecond(100).With(limiter.TokenBucket))
		var fleet []*Store
		for i := range 6 {
			fleet = append(fleet, f.instance(t, i, Options{}))
		}
		g := newGauge(q)
		ask := func(s *Store) bool {
			d := decideOne(t, s, q, "key", 1)
			if d.Allowed {
				g.admit(1)
			}
			return d.Allowed
		}
		held := int64(0)
		for range 10 {
			for range 60 {
				for _, s := range fleet {
					ask(s)
				}
				time.Sleep(90 * time.Millisecond)
			}
			held = 0
			for _, s := range fleet {
				held += s.Stats().Held
			}
			assert.LessOrEqual(t, held, int64(defaultAhead))
			for _, s := range fleet { // all that there is, at once
				for ask(s) {
				}
			}
		}
		assert.Greater(t, held, int64(defaultAhead/2), "or this test tries nothing")
		assert.LessOrEqual(t, g.worst(), float64(defaultAhead))
		assert.Positive(t, g.worst(), "the price is paid")
		assert.LessOrEqual(t, g.above(), 0.0)
	})
}

func TestALeaseTakesAChunkUntilHalfOfTheLimitIsUsed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ used, chunk int64 }{{0, 8}, {40, 8}, {60, 1}} { // Ahead is 25, a third of it 8
		t.Run(fmt.Sprint(tt.used, " of 100"), func(t *testing.T) {
			onFake(t, Options{}, func(t *testing.T, f *fake, s *Store) {
				q := quotaOf(t, "rule", longBucket(100))
				if tt.used > 0 {
					decideOne(t, f, q, "key", tt.used)
				}
				most := int64(0)
				for range 5 {
					require.True(t, decideOne(t, s, q, "key", 1).Allowed)
					time.Sleep(time.Second)
					most = max(most, s.Stats().Held)
				}
				assert.Equal(t, tt.chunk, most)
				decideOne(t, f, q, "key", 80-tt.used)
				for range 4 { // the process hears of it when it extends its lease
					decideOne(t, s, q, "key", 1)
					time.Sleep(time.Second)
				}
				assert.LessOrEqual(t, s.Stats().Held, int64(1), "units that others may need are returned")
			})
		})
	}
}

func TestAProcessWithoutUnitsIsCountedAsCrowded(t *testing.T) {
	t.Parallel()
	phase.Test(t, func(t *testing.T) {
		f := newFake()
		q := quotaOf(t, "rule", limiter.PerSecond(12).With(limiter.TokenBucket)) // Ahead is 3
		var fleet []*Store
		for i := range 5 {
			fleet = append(fleet, f.instance(t, i, Options{}))
		}
		ask := func(fleet []*Store) (crowded uint64) {
			for range 20 {
				for _, s := range fleet {
					decideOne(t, s, q, "key", 1)
				}
				time.Sleep(time.Second)
			}
			for _, s := range fleet {
				crowded += s.Stats().Crowded
			}
			return crowded
		}
		assert.Zero(t, ask(fleet[:1]))
		assert.Positive(t, ask(fleet))
	})
}

func TestAllThatWasTakenCanBeGivenBackAtOnce(t *testing.T) {
	t.Parallel()
	phase.Test(t, func(t *testing.T) {
		s := newFake().instance(t, 1, Options{})
		q := quotaOf(t, "rule", limiter.PerHour(100).With(limiter.TokenBucket))
		for range 30 {
			require.True(t, decideOne(t, s, q, "key", 1).Allowed)
			time.Sleep(30 * time.Millisecond)
		}
		require.NoError(t, settled(t, s, q, 1<<63-1, limiter.Decision{}, 0))
		time.Sleep(time.Second)
		require.EqualValues(t, 100, decideOne(t, s, q, "key", 0).Remaining)
		admitted := 0
		for decideOne(t, s, q, "key", 1).Allowed {
			admitted++
		}
		assert.Equal(t, 100, admitted)
		require.NoError(t, s.Reset(t.Context(), []limiter.Charge{{Quota: q, Key: "key"}}))
		assert.EqualValues(t, 100, decideOne(t, s, q, "key", 0).Remaining)
		require.NoError(t, s.Close())
	})
}

func TestLeasedUnitsOfAWindowAreSpentInThatWindow(t *testing.T) {
	t.Parallel()
	for _, a := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingWindow} {
		for _, seed := range seeds(t, 8, 2) {
			t.Run(fmt.Sprint(a, " ", seed), func(t *testing.T) {
				phase.Test(t, func(t *testing.T) {
					random := rand.New(rand.NewPCG(seed, 9))
					f := newFake()
					q := quotaOf(t, "rule", limiter.PerSecond(100).With(a))
					f.lag.Store(int64(seed%2) * int64(20*time.Millisecond))
					fleet := []*Store{f.instance(t, 1, Options{}), f.instance(t, 2, Options{}), f.instance(t, 3, Options{})}
					state := limiter.State{}
					for range 4000 {
						time.Sleep(time.Duration(random.IntN(int(4 * time.Millisecond))))
						if random.IntN(200) == 0 {
							time.Sleep(time.Duration(random.IntN(int(900 * time.Millisecond))))
						}
						now := time.Now().UnixMicro()
						if !decideOne(t, fleet[random.IntN(3)*random.IntN(2)], q, "key", 1).Allowed {
							continue
						}
						after, ok := q.Take(state, now, 1)
						require.True(t, ok, "the algorithm itself would have refused what was admitted at %d", now)
						state = after
					}
				})
			})
		}
	}
}

func TestUnitsOfADeadInstanceComeBackOnce(t *testing.T) {
	t.Parallel()
	phase.Test(t, func(t *testing.T) {
		f := newFake()
		q := quotaOf(t, "rule", limiter.PerSecond(100).With(limiter.TokenBucket))
		dies, lives := f.instance(t, 1, Options{}), f.instance(t, 2, Options{})
		g := newGauge(q)
		for range 200 {
			if decideOne(t, dies, q, "key", 1).Allowed {
				g.admit(1)
			}
			time.Sleep(20 * time.Millisecond)
		}
		held := dies.Stats().Held
		require.Positive(t, held)
		dies.abandon()

		// They refill as if they had been spent: within Ahead of the time that the whole limit
		// takes to refill.
		time.Sleep(time.Second * defaultAhead / 100)
		admitted := int64(0)
		for decideOne(t, lives, q, "key", 1).Allowed {
			admitted++
			g.admit(1)
		}
		assert.Equal(t, int64(100), admitted, "what remains when a dead instance's %d units are back", held)
		assert.LessOrEqual(t, g.worst(), float64(held), "the worst interval")
		assert.LessOrEqual(t, g.above(), 0.0)

		// And its share of what may be ahead, when its lease has ended.
		time.Sleep(life + time.Second)
		for range 100 {
			decideOne(t, lives, q, "key", 1)
			time.Sleep(20 * time.Millisecond)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, holders := range f.holders {
			for _, h := range holders {
				assert.True(t, h.units == 0 || h.ends > time.Now().UnixMicro() || h == holders[1])
			}
		}
	})
}

func TestWhatNobodyAsksForIsReturnedAndAllOfItByClose(t *testing.T) {
	t.Parallel()
	phase.Test(t, func(t *testing.T) {
		f := newFake()
		q := quotaOf(t, "rule", limiter.Limit{Events: 100, Per: 24 * time.Hour}.With(limiter.TokenBucket))
		s := f.instance(t, 1, Options{})
		ask := func() {
			for range 20 {
				require.True(t, decideOne(t, s, q, "key", 1).Allowed)
				time.Sleep(50 * time.Millisecond)
			}
			require.Positive(t, s.Stats().Held)
		}
		ask()
		time.Sleep(life)
		assert.Zero(t, s.Stats().Held, "nobody asks")
		assert.EqualValues(t, 80, decideOne(t, f, q, "key", 0).Remaining)
		time.Sleep(life)
		assert.Zero(t, s.Stats().Keys, "an idle key is forgotten")
		ask()
		require.NoError(t, s.Close())
		assert.Zero(t, s.Stats().Held)
		assert.EqualValues(t, 60, decideOne(t, f, q, "key", 0).Remaining)
		assert.EqualValues(t, 59, decideOne(t, s, q, "key", 1).Remaining, "a closed store decides exactly")
		require.NoError(t, s.Close())
	})
}

func TestALimitThatIsTightOrOfAColdKeyIsDecidedExactly(t *testing.T) {
	t.Parallel()
	onFake(t, Options{Rules: []string{"login", "queue", "log", "cold"}}, func(t *testing.T, f *fake, s *Store) {
		for name, tt := range map[string]struct {
			q    *limiter.Quota
			keys int
		}{
			"tight": {quotaOf(t, "login", limiter.PerMinute(5)), 1},
			"queue": {quotaOf(t, "queue", limiter.PerMinute(5000).With(limiter.LeakyBucket)), 1},
			"log":   {quotaOf(t, "log", limiter.PerMinute(5000).With(limiter.SlidingLog)), 1},
			"exact": {quotaOf(t, "exact", limiter.PerMinute(5000)), 1},
			"cold":  {quotaOf(t, "cold", limiter.PerMinute(5000)), 100},
		} {
			before := f.decided.Load()
			for i := range 100 {
				decideOne(t, s, tt.q, fmt.Sprint(i%tt.keys), 1)
				time.Sleep(200 * time.Millisecond)
			}
			assert.EqualValues(t, 100, f.decided.Load()-before, name)
			assert.Zero(t, s.Stats().Held, name)
		}
	})
}

func TestMostDecisionsOnAHotKeyCostNoTrip(t *testing.T) {
	t.Parallel()
	phase.Test(t, func(t *testing.T) {
		f := newFake()
		q := quotaOf(t, "global", limiter.PerSecond(10_000).With(limiter.TokenBucket))
		s := f.instance(t, 1, Options{})
		for range 20_000 {
			require.True(t, decideOne(t, s, q, "key", 1).Allowed)
			time.Sleep(200 * time.Microsecond)
		}
		trips := f.decided.Load() + f.trips.Load()
		assert.Less(t, trips, uint64(20_000/20))
	})
}

func TestOptionsThatCannotBeMeantAreAllNamed(t *testing.T) {
	t.Parallel()
	err := Options{Rules: []string{"api", ""}, Ahead: 51, MaxKeys: 1}.Validate()
	for _, part := range []string{"Rules[1] is empty", "Ahead is 51", "MaxKeys is 1"} {
		assert.ErrorContains(t, err, part)
	}
	require.NoError(t, Options{}.Validate())
	_, err = New(nil, Options{})
	assert.EqualError(t, err, "leasestore: it needs a client, and this one is nil")
	_, err = New(connect(t, "localhost:1"), Options{Ahead: 51, Redis: redisstore.Options{Prefix: "a b"}})
	for _, part := range []string{"Ahead is 51", `leasestore: Redis: redisstore: Prefix "a b"`} {
		assert.ErrorContains(t, err, part)
	}
}

func TestLocalDecisionsDoNotAllocate(t *testing.T) {
	f := newFake()
	s := f.instance(t, 1, Options{})
	q := quotaOf(t, "rule", limiter.PerSecond(10_000_000).With(limiter.TokenBucket))
	charges := []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}
	for range 100 {
		require.NoError(t, s.Decide(t.Context(), charges))
		time.Sleep(time.Millisecond)
	}
	before := s.Stats().Asked
	n := testing.AllocsPerRun(1000, func() { _ = s.Decide(t.Context(), charges) })
	if s.Stats().Asked == before {
		assert.Less(t, n, 1.0)
	}
}

func TestKeysAreBounded(t *testing.T) {
	t.Parallel()
	onFake(t, Options{MaxKeys: 1000}, func(t *testing.T, f *fake, s *Store) {
		q := quotaOf(t, "rule", limiter.PerMinute(1000))
		for i := range 20_000 {
			decideOne(t, s, q, fmt.Sprint(i), 1)
			if i%100 == 0 {
				time.Sleep(75 * time.Millisecond)
			}
		}
		assert.LessOrEqual(t, s.Stats().Keys, 1000+shardCount)
		require.NoError(t, s.Close())
	})
}

func TestABatchOfLeasedAndExactChargesIsTakenTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	onFake(t, Options{Rules: []string{"leased", "too"}}, func(t *testing.T, f *fake, s *Store) {
		seed := seeds(t, 1, 1)[0]
		t.Log("WEIR_SEED", seed)
		random := rand.New(rand.NewPCG(seed, 1))
		quotas := []*limiter.Quota{}
		for _, rule := range []string{"exact", "leased", "too"} {
			quotas = append(quotas, quotaOf(t, rule, limiter.Limit{Events: 100, Per: 300 * 24 * time.Hour}))
		}
		used := map[*limiter.Quota]int64{}
		for range 3000 {
			var charges []limiter.Charge
			fits := true
			for _, i := range random.Perm(3)[:1+random.IntN(3)] {
				cost := random.Int64N(4)
				optional := random.IntN(4) == 0
				fits = fits && (optional || used[quotas[i]]+cost <= 100)
				charges = append(charges, limiter.Charge{Quota: quotas[i], Key: "key", Cost: cost, Optional: optional})
			}
			require.NoError(t, s.Decide(t.Context(), charges))
			taken := store.Taken(charges)
			for _, c := range charges {
				assert.Equal(t, used[c.Quota]+c.Cost <= 100, c.Decision.Allowed, "who stands in the way is told so")
			}
			require.Equal(t, fits, taken)
			for _, c := range charges {
				if taken && c.Decision.Allowed {
					used[c.Quota] += c.Cost
				}
				require.Equal(t, 100-used[c.Quota], c.Decision.Remaining, "%s after %+v", c.Quota.Rule(), charges)
			}
			if random.IntN(4) == 0 {
				time.Sleep(time.Duration(random.IntN(int(200 * time.Millisecond))))
			}
			if c := charges[0]; random.IntN(20) == 0 && used[c.Quota] > 5 {
				c.Cost, c.Decision = random.Int64N(5), limiter.Decision{} // of any of its events
				require.NoError(t, s.Settle(t.Context(), []limiter.Settlement{{Charge: c}}))
				used[c.Quota] -= c.Cost
			}
		}
	})
}
