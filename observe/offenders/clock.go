package offenders

import (
	"sync"
	"sync/atomic"
	"time"
)

// A clock counts steps, from 1. To read a real one for each request would take longer than
// all the rest, so a timer says when the step is over: one at a time, and none while no request
// comes.
type clock struct {
	start   time.Time
	step    time.Duration
	current atomic.Int64 // 0: to be found out

	mu sync.Mutex // held to find out
}

func newClock(step time.Duration) *clock { return &clock{start: time.Now(), step: step} }

// now is the current step, or the last one where the timer is late.
func (c *clock) now() int64 {
	if step := c.current.Load(); step != 0 {
		return step
	}
	return c.wind()
}

func (c *clock) wind() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if step := c.current.Load(); step != 0 {
		return step
	}
	elapsed := time.Since(c.start)
	step := c.at(elapsed)
	c.current.Store(step)
	time.AfterFunc(c.step-elapsed%c.step, func() { c.current.Store(0) })
	return step
}

func (c *clock) at(elapsed time.Duration) int64 { return int64(elapsed/c.step) + 1 }

// exactly is the current step by the real clock.
func (c *clock) exactly() int64 { return c.at(time.Since(c.start)) }
