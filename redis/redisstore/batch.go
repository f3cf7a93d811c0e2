package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/redis/internal/wire"
)

// A batch is groups that are sent together, and the context of sending them. It ends when its
// time is up, and then another batch takes its place, so that a connection that hangs holds up
// no others.
//
// go-redis asks a context for its deadline whenever it is about to dial, write or read, if it
// keeps deadlines.
type batch struct {
	groups   []*group
	waited   int  // groups for which a caller waits
	led      bool // by a caller, which cannot leave
	start    time.Time
	timeout  time.Duration
	patience time.Duration // for the answer, from when the batch is sent: at most the timeout
	ended    chan struct{}

	messages []*message    // about slots
	lease    time.Duration // of them; zero: there are none
	requests []*request    // before it is finished

	// After start:
	sent  atomic.Int64 // when the batch was sent; zero: it is not
	heard atomic.Int64 // when there was an answer; zero: there is none
}

func newBatch(groups []*group, led bool, start time.Time, timeout time.Duration) *batch {
	waited := 0
	for _, g := range groups {
		if g.isAwaited() {
			waited++
		}
	}
	return &batch{groups: groups, waited: waited, led: led, start: start, timeout: timeout, patience: timeout, ended: make(chan struct{})}
}

// exclusive calls f for the counters of b's settlements, for which no caller waits, and of its slots.
func (b *batch) exclusive(f func(name string)) {
	for _, g := range b.groups {
		for i := range g.items {
			if it := &g.items[i]; it.isSlot || g.settlement != nil {
				f(it.name)
			}
		}
	}
}

// again is for a batch that is about to be sent again, as the answer was no decision.
func (b *batch) again() {
	b.sent.Store(0)
}

// send is for a batch that is sent at this moment. If the client sends it again by itself,
// the answer has no more time for that.
func (b *batch) send() { b.sent.CompareAndSwap(0, max(1, int64(time.Since(b.start)))) }

// hear is for the answer.
func (b *batch) hear() { b.heard.Store(int64(time.Since(b.start))) }

func (b *batch) isSent() bool { return b.sent.Load() != 0 }

// took is how long the round trip took; zero if it is not known.
func (b *batch) took() time.Duration {
	heard, sent := b.heard.Load(), b.sent.Load()
	if heard == 0 || sent == 0 {
		return 0
	}
	return time.Duration(max(1, heard-sent))
}

// isOverdue reports whether to wait for b no more. A batch that is not sent has the patience of
// callers. With messages about slots it has a quarter of their lease for that, and an eighth for the
// answer: so there is time for several others before a lease ends, on other connections, whatever
// the timeout is.
func (b *batch) isOverdue(now time.Time, patience time.Duration) bool {
	if sent := time.Duration(b.sent.Load()); sent != 0 {
		patience = sent + b.patience
	} else if b.lease > 0 {
		patience = min(patience, b.lease/4)
	}
	return now.Sub(b.start) >= patience
}

// Deadline, Done, Err and Value make a batch a context.
func (b *batch) Deadline() (time.Time, bool) {
	sent := time.Duration(b.sent.Load())
	switch {
	case !b.led: // no caller waits for a late answer, and yet the connection need not be made anew
		return b.start.Add(max(wire.Unawaited*b.timeout, sent+b.timeout)), true
	case sent != 0:
		return b.start.Add(sent + b.patience), true
	}
	return time.Now().Add(b.timeout), true // of each step of making a connection
}

func (b *batch) Done() <-chan struct{} { return b.ended }
func (b *batch) Value(any) any         { return nil }

func (b *batch) Err() error {
	select {
	case <-b.ended:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
