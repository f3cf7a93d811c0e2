package leasestore

import (
	"fmt"
	"hash/maphash"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

func TestALeaseReturnsItsUnitsUnlessRedisMayHaveLostThem(t *testing.T) {
	until := life.Microseconds()
	for _, tt := range []struct {
		now         int64
		all         bool
		stock, back int64
	}{
		{until - 1, false, 5, 3},
		{until - 1, true, 0, 8},
		{until, false, 0, 8},
		{until + grace.Microseconds() - 1, false, 0, 8},
		{until + grace.Microseconds(), false, 0, 0},
	} {
		e := entry{stock: 5, back: 3, until: until}
		e.expire(tt.now, tt.all)
		assert.Equal(t, []int64{tt.stock, tt.back}, []int64{e.stock, e.back}, "%+v", tt)
	}
}

func TestALeaseAsksForChunksUntilHalfOfTheLimitIsUsed(t *testing.T) {
	o := Options{}.complete()
	ps := &plans{seed: maphash.MakeSeed(), options: &o}
	p := ps.of(quotaOf(t, "rule", limiter.Limit{Events: 100, Per: time.Hour, Algorithm: limiter.FixedWindow}))
	require.EqualValues(t, 8, p.chunk)
	const now, long = 1_000_000_000, 4_000_000
	for _, tt := range []struct {
		used, stock int64
		sights      uint8
		rate        float64
		left        int64 // of the lease, in microseconds

		due              bool
		need, want, back int64
	}{
		{used: 50, stock: 4, sights: 2, left: long, due: true, want: 4},
		{used: 50, stock: 5, sights: 2, left: long},
		{used: 50, stock: 5, sights: 2, left: long / 2, due: true},
		{used: 50, stock: 0, sights: 1, left: long},
		{used: 51, stock: 0, sights: 2, left: long, due: true, need: 1, want: 8},
		{used: 51, stock: 1, sights: 2, left: long},
		{used: 51, stock: 1, sights: 2, left: long / 2, due: true},
		{used: 51, stock: 5, sights: 2, left: long, due: true, back: 4},
		{used: 51, stock: 1, sights: 2, rate: 40, left: long, due: true, need: 2, want: 7}, // 3 events in the horizon
		{used: 51, stock: 2, sights: 2, rate: 40, left: long},
		{used: 0, stock: 0, sights: 2, rate: 1e6, left: long, due: true, need: p.room, want: p.room},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			e := entry{
				plan: p, said: answer{last: now, level: tt.used, now: now, heard: now}, stock: tt.stock,
				until: now + tt.left, sights: tt.sights, rate: tt.rate, counted: now,
			}
			var l lease
			due := e.proposeAsked(&l, p, now)
			assert.Equal(t, tt.due, due)
			assert.Equal(t, []int64{tt.need, tt.want, tt.back}, []int64{l.need, l.want, e.back})
			assert.Equal(t, tt.stock-tt.back, e.stock)
		})
	}
}
