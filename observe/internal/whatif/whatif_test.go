package whatif

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/race"
	"github.com/weirgo/weir/limiter"
)

const start = 1_700_000_000 // of second 0

var algorithms = []limiter.Algorithm{limiter.SlidingWindow, limiter.SlidingCounter, limiter.TokenBucket, limiter.LeakyBucket, limiter.FixedWindow, limiter.SlidingLog}

func quota(t require.TestingT, l limiter.Limit) *limiter.Quota {
	q, err := limiter.NewQuota("what-if", "", l)
	require.NoError(t, err)
	return q
}

// spread makes hashes of numbers that are as good as those of keys.
func spread(seed uint64, n int) uint64 {
	x := seed*0x9E3779B97F4A7C15 + uint64(n)*0xD1B54A32D192ED03 // and on as splitmix64
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31 | 1
}

func TestToTakeManyIsToTakeThemOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limiter.Limit{
			Events: rapid.Int64Range(1, 40).Draw(t, "events"), Per: rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, time.Minute}).Draw(t, "per"),
			Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
		}
		q := quota(t, l)
		var many, single limiter.State
		at := int64(start) * 1e6
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			at += rapid.Int64Range(0, 3e6).Draw(t, "later")
			n := rapid.Int64Range(1, 60).Draw(t, "n")
			var passed, one int64
			many, passed = takeMost(q, many, at, n)
			for range n {
				var ok bool
				if single, ok = q.Take(single, at, 1); ok {
					one++
				}
			}
			if passed != one {
				t.Fatalf("%v: %d pass at once, %d one by one", l, passed, one)
			}
		}
	})
}

// A log is what keys asked, as a list to decide on.
type log []struct {
	second int64
	eighth uint
	key    int
	n      int64
}

// decided is what a limit refuses of a log, key by key.
func (l log) decided(q *limiter.Quota, from int64) (keys, units int64) {
	states, refused := map[int]limiter.State{}, map[int]bool{}
	for _, a := range l {
		if a.second < from {
			continue
		}
		for range a.n {
			s, ok := q.Take(states[a.key], (start+a.second)*1e6+int64(a.eighth)*1e6/Eighths, 1)
			if states[a.key] = s; !ok {
				refused[a.key] = true
				units++
			}
		}
	}
	return int64(len(refused)), units
}

func TestOfFewKeysTheAnswerIsWhatTheLimitDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limiter.Limit{
			Events: rapid.Int64Range(1, 20).Draw(t, "events"), Per: rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "per"),
			Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
		}
		seed := rapid.Uint64().Draw(t, "seed")
		r := New(0)
		var all log
		second, last := int64(0), int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "seconds") {
			if second > last {
				r.Fold(last, second)
				last = second
			}
			for key := range 6 { // one eighth of a second for each: of several it is not known how much was in which
				if n := rapid.Int64Range(0, 8).Draw(t, "n"); n > 0 {
					eighth := rapid.UintRange(0, Eighths-1).Draw(t, "eighth")
					for range n {
						r.Add(spread(seed, key), 1, eighth)
					}
					all = append(all, log{{second, eighth, key, n}}...)
				}
			}
			second += rapid.SampledFrom([]int64{1, 1, 1, 2, 30, 400, 4000}).Draw(t, "later")
		}
		r.Fold(last, second)
		q := quota(t, l)
		d := r.Demand(second)
		result, err := d.Try(t.Context(), q, start)
		require.NoError(t, err)
		keys, units := all.decided(q, second-Seconds)
		if result.Keys != keys || result.Units != units {
			t.Fatalf("%v: %d keys and %d units are refused, want %d and %d", l, result.Keys, result.Units, keys, units)
		}
		if d.Each != 1 || !result.EstimateKeys().Exact() {
			t.Fatalf("one key in %d is followed, of six", d.Each)
		}
		if want := min(second, Seconds); d.Seconds != want {
			t.Fatalf("it is of %d s, want %d", d.Seconds, want)
		}
	})
}

// check looks at what must hold of a Recorder at any time.
func check(t require.TestingT, r *Recorder) {
	require.LessOrEqual(t, len(r.records), mostRecords)
	require.LessOrEqual(t, r.known, mostKeys)
	counted, known := [slots]int32{}, 0
	second := r.oldest
	for i := r.first; i < r.next; i++ {
		e := r.records[i%uint64(len(r.records))]
		if seconds, ok := e.pause(); ok {
			second += seconds
			continue
		}
		counted[e.slot()]++
		require.True(t, r.isKey(e.slot()), "a record is of a key that is known")
	}
	if r.first < r.next {
		require.Equal(t, r.newest, second)
	}
	require.Equal(t, counted, r.counted)
	for slot := range uint64(slots) {
		if r.isKey(slot) {
			known++
			found, ok := r.find(r.keys[slot].Load())
			require.True(t, ok && found == slot, "a key is found where it is")
			require.True(t, sampled(r.keys[slot].Load(), r.level.Load()))
		}
	}
	require.Equal(t, known, r.known)
}

// crowd has n keys ask for an hour: each twice in ten minutes, and one in ten twice a second for
// a minute of each.
func crowd(r *Recorder, seed uint64, n int, from int64) (all log) {
	rng := rand.New(rand.NewPCG(1, seed))
	for second := from; second < from+Seconds; second++ {
		for key := int(second) % 300; key < n; key += 300 {
			e := rng.UintN(Eighths)
			r.Add(spread(seed, key), 1, e)
			all = append(all, log{{second, e, key, 1}}...)
		}
		for key := int(second / 60 % 10); key < n; key += 100 {
			r.Add(spread(seed, key), 2, 3)
			all = append(all, log{{second, 3, key, 2}}...)
		}
		r.Fold(second, second+1)
	}
	return all
}

func TestASampleOfManyKeysStandsForThemAll(t *testing.T) {
	const n = 12_000
	runs := race.Draws(12, 3)
	q := quota(t, limiter.PerMinute(30).With(limiter.TokenBucket))
	within, sum, want := 0, 0.0, int64(0)
	for seed := range uint64(runs) {
		r := New(0)
		all := crowd(r, seed, n, 0)
		check(t, r)
		d := r.Demand(Seconds)
		require.Greater(t, d.Each, int64(4))
		if want == 0 {
			want, _ = all.decided(q, 0)
			require.Equal(t, int64(n/10), want)
		}
		result, err := d.Try(t.Context(), q, start)
		require.NoError(t, err)
		e := result.EstimateKeys()
		if e.Low <= want && want <= e.High {
			within++
		}
		sum += float64(e.About)
		assert.InDelta(t, n, d.Keys*d.Each, 0.35*n)
	}
	assert.GreaterOrEqual(t, within, runs*3/4, "19 times in 20 the number is within its bounds")
	assert.InDelta(t, float64(want), sum/float64(runs), 0.2*float64(want), "and the mean is near it")
}

func TestEstimatesHoldNineteenTimesInTwenty(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, refused := range []int{0, 1, 5, 40, 800} {
		within, known := 0, 0
		const each = 8
		runs := race.Draws(2000, 400)
		for range runs {
			r := Result{each: each}
			units := int64(0)
			for range refused {
				own := 1 + rng.Int64N(100)
				units += own
				if rng.IntN(each) == 0 {
					r.Keys++
					r.Units += own
					r.squares += float64(own * own)
				}
			}
			e := r.EstimateKeys()
			if e.Low <= int64(refused) && int64(refused) <= e.High {
				within++
			}
			if e, ok := r.EstimateUnits(); ok && e.Low <= units && units <= e.High {
				known++
			}
		}
		assert.Greater(t, within, runs*92/100, "of %d keys", refused)
		if refused > 100 {
			assert.Greater(t, known, runs*92/100, "what %d keys are refused", refused)
		}
	}
}

func TestTheSampleGrowsAgainAndIsNeverOfHalfAnHour(t *testing.T) {
	const seed = 1
	r := New(0)
	crowd(r, seed, 20_000, 0)
	high := r.level.Load()
	require.Greater(t, high, uint32(2))
	now := int64(Seconds)
	few := func() {
		for key := range 200 {
			if now%60 == int64(key%60) {
				r.Add(spread(seed, key), 1, 0)
			}
		}
		r.Fold(now, now+1)
		now++
	}
	for range 2*Seconds + 10 {
		few()
	}
	low := r.level.Load()
	require.Less(t, low, high)
	d := r.Demand(now)
	assert.Equal(t, int64(1)<<(low+1), d.Each, "an hour of the wider sample is not over")
	assert.Equal(t, int64(Seconds), d.Seconds)
	for range 6 * Seconds {
		few()
	}
	d = r.Demand(now)
	assert.Equal(t, int64(1), d.Each)
	assert.Equal(t, int64(200), d.Keys)
	assert.Equal(t, int64(200*60), d.Units)
	check(t, r)
}

func TestMemoryIsBoundedWhateverKeysAsk(t *testing.T) {
	for name, ask := range map[string]func(r *Recorder, second int64){
		"ever new keys": func(r *Recorder, second int64) {
			for range 500 {
				r.Add(rand.Uint64()|1, 1, uint(second)%Eighths)
			}
		},
		"keys that never stop": func(r *Recorder, second int64) {
			for key := range 100 {
				r.Add(spread(fixed, key), 7, 0)
			}
		},
		"one counter for all": func(r *Recorder, second int64) { r.Add(Whole, 1<<40, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			r := New(0)
			for second := range int64(2 * Seconds) {
				ask(r, second)
				r.Fold(second, second+1)
				if second%500 == 0 {
					check(t, r)
				}
			}
			check(t, r)
			d := r.Demand(2 * Seconds)
			assert.Equal(t, int64(Seconds), d.Seconds)
			assert.NotZero(t, d.Keys)
			t.Logf("%d keys, one in %d", d.Keys, d.Each)
		})
	}
}

const fixed = 7

func TestUnitsAreKeptToAPercent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, mostUnits).Draw(t, "units")
		slot := rapid.Uint64Range(0, slots-1).Draw(t, "slot")
		mask := rapid.Uint8().Draw(t, "mask")
		e := recordOf(slot, n, mask)
		if _, ok := e.pause(); ok || e.slot() != slot || e.mask() != mask || math.Abs(float64(e.units())-float64(n)) > 0.01*float64(n) {
			t.Fatalf("%d units of slot %d in %b are kept as %d of %d in %b", n, slot, mask, e.units(), e.slot(), e.mask())
		}
		seconds := rapid.Int64Range(1, mostPause).Draw(t, "pause")
		if got, ok := pause(seconds).pause(); !ok || got != seconds {
			t.Fatalf("a pause of %d is kept as %d", seconds, got)
		}
	})
}

func TestKeysMayComeWhileASecondEnds(t *testing.T) {
	r := New(0)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 20_000 {
				r.Add(spread(fixed, (g*20_000+i)%3000), 1, uint(i)%Eighths)
			}
		})
	}
	for second := range int64(200) {
		r.Fold(second, second+1)
		r.Demand(second)
	}
	all.Wait()
	r.Fold(200, 201)
	assert.NotZero(t, r.Demand(201).Units)
	assert.LessOrEqual(t, r.known, mostKeys)
}

func TestAddAllocatesNothing(t *testing.T) {
	r := New(0)
	i := 0
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		r.Add(spread(fixed, i%5000), 1, uint(i)%Eighths)
		i++
	}))
}

func BenchmarkAdd(b *testing.B) {
	for _, keys := range []int{1, 100, 100_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			r := New(0)
			hashes := make([]uint64, keys)
			for i := range hashes {
				hashes[i] = spread(fixed, i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Add(hashes[i%keys], 1, uint(i)%Eighths)
			}
		})
	}
}

func BenchmarkFold(b *testing.B) {
	for _, keys := range []int{0, 1000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			r := New(0)
			second := int64(0)
			for b.Loop() {
				b.StopTimer()
				for key := range keys {
					r.Add(spread(fixed, key), 1, 0)
				}
				b.StartTimer()
				r.Fold(second, second+1)
				second++
			}
		})
	}
}

func BenchmarkTry(b *testing.B) {
	r := New(0)
	crowd(r, fixed, 12_000, 0)
	q := quota(b, limiter.PerSecond(20))
	for b.Loop() {
		_, _ = r.Demand(Seconds).Try(b.Context(), q, start)
	}
}

func TestToTryALimitEndsWithItsContext(t *testing.T) {
	r := New(0)
	r.Add(1, 1, 0)
	r.Fold(0, 1)
	limit, err := limiter.Parse("10/1h sliding-log")
	require.NoError(t, err)
	q, err := limiter.NewQuota("x", "", limit)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Demand(1).Try(ctx, q, 0)
	require.ErrorIs(t, err, context.Canceled)
}
