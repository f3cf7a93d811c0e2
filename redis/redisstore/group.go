package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// An op is what a group asks for; decide.lua knows them by number.
type op uint8

const (
	take op = iota
	refund
	reset
)

// A group is charges that are decided together, and the caller who waits for them. When
// it is answered it is the caller's alone, who may reuse it. A caller who leaves before
// that leaves it behind.
type group struct {
	op    op
	items []item
	tag   [tagSize]byte // of all the items, where a script can reach only one
	since time.Time     // when the caller came

	state  atomic.Uint32
	done   chan struct{} // gets a value when a waiting group is answered, leads or has to leave
	flight *flight       // that it leads

	answer answer
	err    error
}

// An item is a charge and the name of its counter.
type item struct {
	name  string
	quota *limiter.Quota
	cost  int64
}

// The states of a group. From waiting there is one step to another, by whoever comes
// first; a leading group is answered in the end.
const (
	waiting uint32 = iota
	leading
	answered
	left
)

var groups = sync.Pool{New: func() any { return &group{done: make(chan struct{}, 1)} }}

func newGroup(op op) *group {
	g := groups.Get().(*group)
	g.op = op
	g.state.Store(waiting)
	return g
}

// free is for the caller of a group that was answered.
func (g *group) free() {
	clear(g.items) // to keep no key alive
	g.items, g.answer, g.err = g.items[:0], answer{}, nil
	groups.Put(g)
}

func (g *group) add(name string, c *limiter.Charge) {
	g.items = append(g.items, item{name, c.Quota, c.Cost})
}

// deliver gives g its answer, if somebody still waits for it.
func (g *group) deliver(a answer, err error) {
	if g.hasLeft() {
		return
	}
	g.answer, g.err = a, err
	if g.state.CompareAndSwap(waiting, answered) {
		g.done <- struct{}{}
	} else {
		g.state.CompareAndSwap(leading, answered)
	}
}

// hasLeft tells that nobody waits for g any more, so that it need not depart.
func (g *group) hasLeft() bool { return g.state.Load() == left }
