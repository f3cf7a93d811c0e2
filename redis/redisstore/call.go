package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// An op is what a call does. The scripts know ops by their numbers.
type op uint8

const (
	take op = iota
	settle
	reset
	look // decides as take does, and takes nothing

	// Ops of slots.lua.
	acquire // with cost 0 it looks
	release
	renew
	resetSlots // removes a value of another kind, and no slot
)

func (o op) ofSlots() bool { return o >= acquire }

// A call is charges that are decided together, of rates or of slots, and the result for the caller that waits.
// After the reply the caller owns the call and reuses it. If the caller leaves before the reply, nobody reuses it.
type call struct {
	op    op
	items []item
	tag   keyfunc.Digest // of all the items, where a script can reach only one
	since time.Time      // when the caller came

	state atomic.Uint32
	done  chan struct{} // gets a value when a waiting call is answered or has to leave

	reply reply
	err   error

	connects bool // the caller has left while a connection was being made

	ended func(*call) // of a call for which no caller waits: what its end calls
	late  func(*call) // what a reply calls that comes after the caller has left

	// What follows is the caller's, and no batch reads it.
	charges []limiter.Charge
	indexes []int // of the charges in the decision that was split; nil: it was not
	asked   asking
}

// linger is how long a call for which no caller waits may wait for one to travel with.
const linger = 5 * time.Millisecond

// isDue reports whether c may start a batch, and does not wait for another call to travel with.
func (c *call) isDue() bool { return c.ended == nil || time.Since(c.since) >= linger }

// An item is a charge and the name of its counter.
type item struct {
	name     string
	quota    *limiter.Quota
	cost     int64 // of a settlement: what is owed, or below 0: refunded
	at       int64 // of a settlement, and of released slots: when it was taken, or 0
	optional bool
	within   time.Duration

	first int64 // of slots: the number of the first token
	held  int64 // of slots: how many this process holds
}

// The states of a call. It leaves waiting once, for whatever happens first. A call whose caller leads its batch is
// always answered.
const (
	waiting uint32 = iota
	leading
	answered
	left
)

var callPool = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

func newCall(op op) *call {
	c := callPool.Get().(*call)
	c.op = op
	c.state.Store(waiting)
	return c
}

// free returns an answered call to the pool. Its caller calls it.
func (c *call) free() {
	clear(c.items) // to keep no key alive
	c.items, c.reply, c.err, c.ended, c.late = c.items[:0], reply{}, nil, nil, nil
	c.charges, c.indexes = nil, nil
	callPool.Put(c)
}

// deliver gives c its reply. A caller that has left gets none.
func (c *call) deliver(r reply, err error) {
	switch {
	case c.hasLeft():
		if c.late != nil && err == nil {
			c.reply = r
			c.late(c)
		}
	case c.ended != nil:
		if c.state.CompareAndSwap(waiting, answered) {
			c.reply, c.err = r, err
			c.ended(c)
			c.free()
		}
	default:
		c.reply, c.err = r, err
		if c.state.CompareAndSwap(waiting, answered) {
			c.done <- struct{}{}
		} else if !c.state.CompareAndSwap(leading, answered) && c.late != nil && err == nil {
			c.late(c)
		}
	}
}

// hasLeft reports whether c's caller has left, so c need not be sent.
func (c *call) hasLeft() bool { return c.state.Load() == left }

func (c *call) add(name string, charge *limiter.Charge) {
	c.items = append(c.items, item{
		name: name, quota: charge.Quota, cost: charge.Cost, at: charge.Decision.Receipt.At, optional: charge.Optional,
		within: charge.Within,
	})
}
