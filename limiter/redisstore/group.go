package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// An op is what a group asks for; decide.lua knows them by number.
type op uint8

const (
	take op = iota
	giveBack
	reset
)

// A group is charges that are decided together, and the caller who waits for them.
//
// Either the caller takes the answer or it leaves before there is one. Who comes second
// to the state puts the group back into the pool.
type group struct {
	op    op
	items []item
	tag   [tagSize]byte // of all the items, where a script can reach only one

	state atomic.Uint32
	done  chan struct{} // gets a value when answered
	timer *time.Timer

	answer answer
	err    error
}

// An item is a charge and the name of its counter.
type item struct {
	name  string
	quota *limiter.Quota
	cost  int64
}

const (
	waiting uint32 = iota
	answered
	left
)

var groups = sync.Pool{New: func() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &group{done: make(chan struct{}, 1), timer: timer}
}}

func newGroup(op op) *group {
	g := groups.Get().(*group)
	g.op = op
	g.state.Store(waiting)
	return g
}

// free is for the last one to know of g.
func (g *group) free() {
	clear(g.items) // to keep no key alive
	g.items, g.answer, g.err = g.items[:0], answer{}, nil
	groups.Put(g)
}

func (g *group) add(name string, c *limiter.Charge) {
	g.items = append(g.items, item{name, c.Quota, c.Cost})
}

// await returns when g is answered. With false the caller has left, because its time was
// up or its context ended, and must not touch g again.
func (g *group) await(ctx context.Context, timeout time.Duration) bool {
	g.timer.Reset(timeout)
	select {
	case <-g.done:
		g.timer.Stop()
		return true
	case <-ctx.Done():
		g.timer.Stop()
	case <-g.timer.C:
	}
	if g.state.CompareAndSwap(waiting, left) {
		return false
	}
	<-g.done // the answer came at the same moment
	return true
}

// deliver gives g its answer, if somebody still waits for it.
func (g *group) deliver(a answer, err error) {
	if g.hasLeft() {
		g.free()
		return
	}
	g.answer, g.err = a, err
	if g.state.CompareAndSwap(waiting, answered) {
		g.done <- struct{}{}
	} else {
		g.free()
	}
}

// hasLeft tells that nobody waits for g any more, so that it need not depart.
func (g *group) hasLeft() bool { return g.state.Load() == left }
