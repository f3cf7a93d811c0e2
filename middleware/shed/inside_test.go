package shed

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/middleware"
)

// These tests look inside: at a queue whose capacity is known without traffic, and at the arithmetic of latencies.

func TestLevelsAreThoseOfTheTier(t *testing.T) {
	l := Must(New(Options{Priority: []string{"premium", "free"}}))
	for tier, want := range map[string]int{"premium": 0, "free": 1, "": 2, "unknown": 2} {
		assert.Equal(t, want, l.level(tiered(tier)), tier)
	}
}

func TestRequestsThatWouldBeLateAreRefusedTheOldestFirst(t *testing.T) {
	g := newGate(2, 300*time.Millisecond)
	g.planSweep = func() {}
	g.meter.limit, g.meter.rate, g.meter.shrunk = 1, 100, true // 30 requests in MaxWait, 500 in patience
	var refused []time.Duration
	g.answer = func(p *slot, admitted bool) {
		assert.False(t, admitted)
		assert.Equal(t, 1, p.level, "the first level is in no overload")
		refused = append(refused, p.came)
	}
	now := time.Duration(0)
	enter := func(level, n int) {
		for range n {
			now++
			g.enter(&slot{gate: g, level: level}, now)
		}
	}
	enter(0, 1) // is admitted
	enter(0, 10)
	enter(1, 490)
	assert.Empty(t, refused, "chance makes such queues too")
	enter(1, 1)
	assert.Len(t, refused, 471, "10 of the first level wait, and 20 of the second")
	assert.True(t, slices.IsSorted(refused))
	assert.Equal(t, time.Duration(12), refused[0])
	assert.Equal(t, []uint64{0, 471}, []uint64{g.counts[0].Shed, g.counts[1].Shed})
	enter(1, 1)
	assert.Len(t, refused, 472)
	enter(0, 31)
	assert.Len(t, refused, 492, "the first level's take their room")
	assert.Equal(t, 41, g.queue.n)
}

func TestALatencyIsKnownToASixteenth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(int64(10*time.Microsecond), int64(time.Hour)).Draw(t, "latency"))
		of := middleOf(bucketOf(d))
		assert.InEpsilon(t, d.Seconds(), of, 1.0/14)
	})
}

func TestTheSlowestQuarterSaysNothing(t *testing.T) {
	var l latencies
	for range 75 {
		l.add(10 * time.Millisecond)
	}
	for range 25 {
		l.add(time.Hour)
	}
	assert.InEpsilon(t, 0.01, l.lower(100), 0.06)
}

func tiered(tier string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	return r.WithContext(middleware.WithTier(context.Background(), tier))
}
