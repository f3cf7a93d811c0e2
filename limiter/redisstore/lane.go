package redisstore

import (
	"context"
	"sync"
	"time"
)

// A lane gathers groups into batches. Up to two batches are on their way at once, and
// those who come meanwhile leave together as the next one: the round trip in flight is
// the window, so who comes alone waits for nobody.
type lane struct {
	most    int           // charges in a batch; 1: each group leaves at once, alone
	timeout time.Duration // after which a batch is given up
	carry   func(context.Context, []*group)

	mu      sync.Mutex
	flying  int
	waiting []*group
}

const mostFlying = 2

// depart sends g on its way. It will be answered.
func (l *lane) depart(g *group) {
	l.mu.Lock()
	if l.flying >= mostFlying && l.most > 1 {
		l.waiting = append(l.waiting, g)
		l.mu.Unlock()
		return
	}
	l.flying++
	l.mu.Unlock()
	go l.fly([]*group{g})
}

// fly carries a batch, and then the next ones as long as there are any. It has a
// goroutine of its own, as Redis may answer long after the callers have left.
func (l *lane) fly(batch []*group) {
	for batch != nil {
		f := &flight{lane: l, ended: make(chan struct{}), deadline: time.Now().Add(l.timeout)}
		f.timer = time.AfterFunc(l.timeout, f.giveUp)
		l.carry(f, batch)
		if !f.land() {
			return // another flight has taken its place
		}
		batch = l.next()
	}
}

// next is a batch of those who wait, or nil, and then one flight less is on its way.
func (l *lane) next() []*group {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, charges := 0, 0
	var batch []*group
	for _, g := range l.waiting {
		if g.hasLeft() {
			g.free()
			n++
			continue
		}
		charges += len(g.items)
		if charges > l.most && batch != nil {
			break
		}
		batch = append(batch, g)
		n++
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	if batch == nil {
		l.flying--
	}
	return batch
}

// A flight is the context of a batch on its way. When its time is up another flight
// takes its place, so that a connection that hangs holds up no others.
type flight struct {
	lane     *lane
	deadline time.Time
	timer    *time.Timer
	ended    chan struct{}

	mu     sync.Mutex
	landed bool
	gaveUp bool
}

// land ends a flight; false if it was given up before.
func (f *flight) land() bool {
	f.timer.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.landed = true
	return !f.gaveUp
}

func (f *flight) giveUp() {
	f.mu.Lock()
	if f.landed {
		f.mu.Unlock()
		return
	}
	f.gaveUp = true
	f.mu.Unlock()
	close(f.ended)
	if batch := f.lane.next(); batch != nil {
		f.lane.fly(batch) // AfterFunc's goroutine
	}
}

// Deadline, Done, Err and Value make a flight a context.
func (f *flight) Deadline() (time.Time, bool) { return f.deadline, true }
func (f *flight) Done() <-chan struct{}       { return f.ended }
func (f *flight) Value(any) any               { return nil }

func (f *flight) Err() error {
	select {
	case <-f.ended:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
