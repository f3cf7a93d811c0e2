package traffic

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASeedAlwaysMakesTheSameRequests(t *testing.T) {
	require.Equal(t, Generate(1, 1000), Generate(1, 1000))
	require.NotEqual(t, Generate(1, 1000), Generate(2, 1000))
}

func TestMadeUpRequestsAreLikeRealOnes(t *testing.T) {
	for seed := range uint64(4) {
		requests := Generate(seed, 10_000)
		require.Len(t, requests, 10_000)
		require.True(t, slices.IsSortedFunc(requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) }))
		assert.Greater(t, requests[len(requests)-1].Time().Sub(requests[0].Time()), 3*day)

		byClient := map[string]int{}
		pauses := map[time.Duration]int{}
		last := map[string]time.Time{}
		onBoundary := 0
		for _, e := range requests {
			byClient[e.Client]++
			if pause := e.Time().Sub(last[e.Client]); pause < 30*day {
				for _, longest := range []time.Duration{time.Second, time.Minute, time.Hour, day} {
					if pause < longest {
						pauses[longest]++
						break
					}
				}
			}
			last[e.Client] = e.Time()
			if e.Time().Truncate(time.Minute).Equal(e.Time()) {
				onBoundary++
			}
		}
		assert.Greater(t, len(byClient), 300, "clients")
		most := slices.SortedFunc(maps.Values(byClient), func(a, b int) int { return cmp.Compare(b, a) })
		busiest := 0
		for _, n := range most[:len(most)/10] {
			busiest += n
		}
		assert.Greater(t, busiest, 5_000, "requests of a tenth of the clients")
		assert.Less(t, most[0], 2_000, "requests of the busiest client")
		for longest, n := range pauses {
			assert.Greater(t, n, 100, "pauses of a client shorter than %v", longest)
		}
		assert.Len(t, pauses, 4)
		assert.Greater(t, onBoundary, 50, "requests where a minute begins")
	}
}
