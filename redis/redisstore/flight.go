package redisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// A flight is a batch on its way, and its context. It ends when its time is up, and then
// another flight takes its place, so that a connection that hangs holds up no others.
//
// go-redis asks a context for its deadline whenever it is about to dial, write or read, if it
// keeps deadlines. So a flight knows each step of making a connection: each has the timeout,
// however many there are, and a server that hangs is found out by the first.
type flight struct {
	batch    []*group
	led      bool // by a caller, who cannot leave
	steps    bool // the client asks for the deadline of each
	start    time.Time
	timeout  time.Duration
	patience time.Duration // for the answer, from when the batch is sent: at most the timeout
	ended    chan struct{}

	// After start:
	stepped atomic.Int64 // when the client began what it is doing now
	sent    atomic.Int64 // when the batch was sent; zero: it is not
	heard   atomic.Int64 // when there was an answer; zero: there is none
}

func newFlight(batch []*group, led bool, start time.Time, timeout time.Duration) *flight {
	return &flight{batch: batch, led: led, start: start, timeout: timeout, patience: timeout, ended: make(chan struct{})}
}

// again is for a batch that is about to be sent again, as the answer was no decision.
func (f *flight) again() {
	f.stepped.Store(int64(time.Since(f.start)))
	f.sent.Store(0)
}

// send is for a batch that is sent at this moment. If the client sends it again by itself,
// the answer has no more time for that.
func (f *flight) send() { f.sent.CompareAndSwap(0, max(1, int64(time.Since(f.start)))) }

// hear is for the answer.
func (f *flight) hear() { f.heard.Store(int64(time.Since(f.start))) }

func (f *flight) isSent() bool { return f.sent.Load() != 0 }

// took is how long the round trip took; zero if it is not known.
func (f *flight) took() time.Duration {
	heard, sent := f.heard.Load(), f.sent.Load()
	if heard == 0 || sent == 0 {
		return 0
	}
	return time.Duration(max(1, heard-sent))
}

// isOverdue tells whether to wait for f no more. A batch that is not sent has as long as the
// client is seen to get on, or the patience of callers.
func (f *flight) isOverdue(now time.Time, patience time.Duration) bool {
	passed := now.Sub(f.start)
	if sent := time.Duration(f.sent.Load()); sent != 0 {
		return passed >= sent+f.patience
	}
	if f.steps {
		return passed >= time.Duration(f.stepped.Load())+f.timeout || passed >= (1+setup)*f.timeout
	}
	return passed >= patience
}

// Deadline, Done, Err and Value make a flight a context.
func (f *flight) Deadline() (time.Time, bool) {
	sent := time.Duration(f.sent.Load())
	switch {
	case sent != 0 && f.led:
		return f.start.Add(sent + f.patience), true
	case sent != 0: // a late answer is nobody's, and yet the connection need not be made anew
		return f.start.Add(max(settling*f.timeout, sent+f.timeout)), true
	}
	now := time.Now()
	f.stepped.Store(int64(now.Sub(f.start)))
	if f.led {
		return now.Add(f.timeout), true
	}
	return f.start.Add(settling * f.timeout), true
}

func (f *flight) Done() <-chan struct{} { return f.ended }
func (f *flight) Value(any) any         { return nil }

func (f *flight) Err() error {
	select {
	case <-f.ended:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
