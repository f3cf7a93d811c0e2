package middleware

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A Memory's times begin right, and a step of the wall clock after that is noticed within a
// second.
func TestACalendarFollowsTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calendar{runs: true}
		const ahead = 3_000_000 // of the wall clock is the store
		at := func() int64 { return time.Now().UnixMicro() + ahead }
		assert.Equal(t, time.Now().UnixMicro(), c.timeOf(at(), 0))
		time.Sleep(time.Second - time.Microsecond)
		c.distance.Add(60_000_000) // as if the clock had stepped since it was measured
		assert.Equal(t, time.Now().UnixMicro()+60_000_000, c.timeOf(at(), 0))
		time.Sleep(time.Microsecond)
		assert.Equal(t, time.Now().UnixMicro(), c.timeOf(at(), 0), "it is measured once a second")
	})
}

// The times of other stores say nothing, nor do those of no decision.
func TestACalendarAsksTheClockWhereTimesSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UnixMicro()
		assert.Equal(t, now, (&calendar{}).timeOf(now+12345, 0))
		assert.Equal(t, now, (&calendar{runs: true}).timeOf(0, 0))
		assert.Equal(t, now, (&calendar{runs: true}).timeOf(-now, 0))
	})
}
