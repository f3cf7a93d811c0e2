package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// An op is what a group does. request.lua, state.lua and slots.lua know ops by their numbers.
type op uint8

const (
	take op = iota
	settle
	reset
)

// A group is charges that are decided together, and the result for the caller that waits. After
// the answer the caller owns the group and reuses it. If the caller leaves before the answer,
// nobody reuses it.
type group struct {
	op    op
	items []item
	tag   keyfunc.Digest // of all the items, where a script can reach only one
	since time.Time      // when the caller came

	state atomic.Uint32
	done  chan struct{} // gets a value when a waiting group is answered or has to leave

	answer answer
	err    error

	ended    func(*group) // of a settlement, for which no caller waits: what its end calls
	tells    bool         // it is a message about slots that asks for nothing: no caller waits
	acquired bool         // its slots are counted as held

	// What follows is the caller's, and no batch reads it.
	charges []limiter.Charge
	indexes []int // of the charges in the decision that was split; nil: it was not
	asked   asking
}

// isAwaited reports whether a caller waits for g.
func (g *group) isAwaited() bool { return g.ended == nil && !g.tells }

// linger is how long a settlement, or a message about slots, waits for a decision to travel
// with.
const linger = 5 * time.Millisecond

// isDue reports whether g may start a batch, and does not wait for another group to travel
// with.
func (g *group) isDue() bool { return g.isAwaited() || time.Since(g.since) >= linger }

// takesSlots reports whether g is to acquire slots.
func (g *group) takesSlots() bool {
	if g.op != take || g.tells {
		return false
	}
	for i := range g.items {
		if g.items[i].isSlot && g.items[i].cost > 0 {
			return true
		}
	}
	return false
}

// An item is a charge and the name of its counter.
type item struct {
	name  string
	quota *limiter.Quota
	cost  int64 // of a settlement: what is owed, or below 0: refunded
	at    int64 // of a settlement: when it was taken, or 0

	optional bool
	within   time.Duration

	isSlot  bool     // the quota counts slots
	message *message // about the key's slots, in the batch in flight
}

// The states of a group. It leaves waiting once, for whatever happens first. A group whose caller
// leads its batch is always answered.
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

// free returns an answered group to the pool. Its caller calls it.
func (g *group) free() {
	clear(g.items) // to keep no key alive
	g.items, g.answer, g.err, g.ended = g.items[:0], answer{}, nil, nil
	g.tells, g.acquired = false, false
	g.charges, g.indexes = nil, nil
	groupPool.Put(g)
}

func (g *group) add(name string, c *limiter.Charge) {
	g.items = append(g.items, item{
		name: name, quota: c.Quota, cost: c.Cost, at: c.Decision.Receipt.At,
		isSlot: c.Quota.InFlight(), optional: c.Optional, within: c.Within,
	})
}

// deliver gives g its answer, and reports whether the caller still waits for it.
func (g *group) deliver(a answer, err error) bool {
	if g.hasLeft() {
		return false
	}
	g.answer, g.err = a, err
	if g.ended != nil {
		if g.state.CompareAndSwap(waiting, answered) {
			g.ended(g)
			g.free()
		}
		return true
	}
	if g.state.CompareAndSwap(waiting, answered) {
		g.done <- struct{}{}
		return true
	}
	return g.state.CompareAndSwap(leading, answered)
}

// hasLeft reports whether g's caller has left, so g need not be sent.
func (g *group) hasLeft() bool { return g.state.Load() == left }
