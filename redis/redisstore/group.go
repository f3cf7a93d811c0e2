package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// An op is what a group asks for; decide.lua knows them by number.
type op uint8

const (
	take op = iota
	refund
	reset
	owe
)

// A group is charges that are decided together, and what their caller waits for. When it is
// answered it is the caller's alone, to be reused. A caller that leaves before that leaves it
// behind.
type group struct {
	op    op
	items []item
	tag   keyfunc.Digest // of all the items, where a script can reach only one
	since time.Time      // when the caller came

	state atomic.Uint32
	done  chan struct{} // gets a value when a waiting group is answered, leads or has to leave
	batch *batch        // that it leads

	answer answer
	err    error

	settlement *settlement // of which no caller waits; else nil
}

// An item is a charge and the name of its counter.
type item struct {
	name  string
	quota *limiter.Quota
	cost  int64
	at    int64 // of a refund: when it was taken, or 0
}

// The states of a group. From waiting there is one step to another, for what happens
// first; a leading group is answered in the end.
const (
	waiting uint32 = iota
	leading
	answered
	left
)

var groupPool = sync.Pool{New: func() any { return &group{done: make(chan struct{}, 1)} }}

func newGroup(op op) *group {
	g := groupPool.Get().(*group)
	g.op = op
	g.state.Store(waiting)
	return g
}

// free is for the caller of a group that was answered.
func (g *group) free() {
	clear(g.items) // to keep no key alive
	g.items, g.answer, g.err, g.settlement = g.items[:0], answer{}, nil, nil
	groupPool.Put(g)
}

func (g *group) add(name string, c *limiter.Charge) {
	g.items = append(g.items, item{name, c.Quota, c.Cost, c.At})
}

// deliver gives g its answer, if its caller still waits.
func (g *group) deliver(a answer, err error) {
	if g.hasLeft() {
		return
	}
	g.answer, g.err = a, err
	if g.settlement != nil {
		if g.state.CompareAndSwap(waiting, answered) {
			g.settlement.end(g)
			g.free()
		}
		return
	}
	if g.state.CompareAndSwap(waiting, answered) {
		g.done <- struct{}{}
	} else {
		g.state.CompareAndSwap(leading, answered)
	}
}

// hasLeft reports that g's caller does not wait any more, so that g need not be sent.
func (g *group) hasLeft() bool { return g.state.Load() == left }
