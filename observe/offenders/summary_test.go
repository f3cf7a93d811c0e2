package offenders

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/keyfunc"
)

// drawKey is biased to a few keys, and to runs of new ones.
func drawKey(t *rapid.T) uint64 {
	return rapid.OneOf(
		rapid.Uint64Range(0, 3),
		rapid.Uint64Range(0, 50),
		rapid.Uint64(),
	).Draw(t, "key")
}

func TestASummaryCountsNeverTooLittleAndTooMuchByItsErrorAtMost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 12).Draw(t, "k")
		s, truth := newSummary(k, keyfunc.Digester{}), map[uint64]uint64{}
		for range rapid.IntRange(0, 300).Draw(t, "requests") {
			key := drawKey(t)
			s.add(key, fmt.Sprint(key))
			truth[key]++
			checkSummary(t, &s, truth)
		}
		s.clear()
		s.add(7, "7")
		checkSummary(t, &s, map[uint64]uint64{7: 1})
	})
}

func checkSummary(t *rapid.T, s *summary, truth map[uint64]uint64) {
	k, sum, floor := uint64(s.k), uint64(0), s.floor()
	require.LessOrEqual(t, floor, s.total/k)
	found := map[uint64]bool{}
	for i, c := range s.counters {
		found[c.hash] = true
		sum += c.count
		require.GreaterOrEqual(t, c.count, truth[c.hash])
		require.LessOrEqual(t, c.count-c.error, truth[c.hash])
		require.LessOrEqual(t, c.error, floor)
		require.Equal(t, fmt.Sprint(c.hash), s.names[i].String())
		require.Equal(t, i, s.places[c.hash])
	}
	require.Equal(t, s.total, sum)
	require.Len(t, found, len(s.counters), "a key has one counter")
	require.Len(t, s.places, len(s.counters))
	for key, n := range truth {
		if !found[key] {
			require.LessOrEqual(t, n, floor, "who has no counter came no more often than any who has")
		}
	}
}

// A tally is the exact count that a rule's is held against.
type tally struct {
	step, key uint64
	refused   bool
}

func TestEveryKeyAboveItsShareIsFoundAndNoCountIsOffByMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 8).Draw(t, "k")
		r := newRule(k, keyfunc.Digester{})
		now := int64(1)
		var seen []tally
		for range rapid.IntRange(0, 400).Draw(t, "requests") {
			if rapid.IntRange(0, 9).Draw(t, "later") == 0 {
				now += rapid.Int64Range(1, 9).Draw(t, "steps")
			}
			one := tally{uint64(now), drawKey(t), rapid.Bool().Draw(t, "refused")}
			r.add(now, one.key, "", one.refused)
			seen = append(seen, one)
		}
		now += rapid.Int64Range(0, 2).Draw(t, "steps")

		all, refused, any := map[uint64]uint64{}, map[uint64]uint64{}, map[uint64]bool{}
		var totalAll, totalRefused uint64
		for _, one := range seen {
			any[one.key] = true
			if int64(one.step) <= now-panes {
				continue
			}
			all[one.key]++
			totalAll++
			if one.refused {
				refused[one.key]++
				totalRefused++
			}
		}
		gotRefused, gotAll := r.totals(now)
		require.Equal(t, totalAll, gotAll)
		require.Equal(t, totalRefused, gotRefused)

		known := r.read(now)
		for key := range any {
			r, a := known.counts(key)
			checkCount(t, r, refused[key], totalRefused, k)
			checkCount(t, a, all[key], totalAll, k)
			require.LessOrEqual(t, r.N, a.N)
			require.LessOrEqual(t, r.AtLeast(), a.AtLeast())
		}
		top := first(k, known.refused.keys, func(hash uint64) Count { r, _ := known.counts(hash); return r })
		busiest := first(k, known.all.keys, func(hash uint64) Count { _, a := known.counts(hash); return a })
		checkTop(t, top, refused, totalRefused, k)
		checkTop(t, busiest, all, totalAll, k)
	})
}

func checkCount(t *rapid.T, c Count, truth, total uint64, k int) {
	require.GreaterOrEqual(t, c.N, truth)
	require.LessOrEqual(t, c.AtLeast(), truth)
	require.LessOrEqual(t, c.Error, total/uint64(k))
}

func checkTop(t *rapid.T, top []uint64, truth map[uint64]uint64, total uint64, k int) {
	require.LessOrEqual(t, len(top), k)
	for key, n := range truth {
		if n*uint64(k) > total {
			require.Contains(t, top, key, "%d of %d, and %d are told apart", n, total, k)
		}
	}
}

func TestNewKeysOneAfterTheOtherTakeConstantTimeEach(t *testing.T) {
	// As the work is in passes over the counters, it is the passes that are counted.
	const k = 100
	s := newSummary(k, keyfunc.Digester{})
	passes, before := 0, s.lowest
	for i := range uint64(100 * k) {
		s.add(i, "")
		if s.lowest != before {
			passes, before = passes+1, s.lowest
		}
	}
	assert.LessOrEqual(t, passes, 101)
}

func TestARuleTakesTheMemoryThatIsSaid(t *testing.T) {
	least := uint64(math.MaxUint64)
	for range 10 { // as others allocate meanwhile
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		runtime.KeepAlive(newRule(defaultK, keyfunc.Digester{}))
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	assert.LessOrEqual(t, least, uint64(165_000))
}
