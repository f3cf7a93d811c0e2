package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A lane gathers groups into batches. Those who come while one is on its way leave together
// as the next: the round trip in flight is the window, so who comes alone waits for nobody.
// A second batch does not wait for the first if it is as large.
//
// Where the client keeps deadlines, a batch is led by one of the callers whose groups are
// in it, in its own goroutine, as waking another one costs as much as a round trip on the
// loopback interface. Where it does not, a batch has a goroutine, which may outlast the
// callers.
type lane struct {
	led     bool
	most    int           // charges in a batch; 1: each group leaves at once, alone
	timeout time.Duration // of a caller
	carry   carry

	mu      sync.Mutex
	waiting []*group
	flights []*flight   // on their way
	watch   *time.Timer // runs look, unless the lane is at rest
	watched bool
}

// A carry brings a batch to Redis, calls landed when there is an answer or none to come,
// and delivers it.
type carry func(ctx context.Context, batch []*group, landed func())

// lateness is how much of the timeout a caller may wait beyond it, at most: an eighth.
const lateness = 8

func newLane(led bool, most int, timeout time.Duration, carry carry) *lane {
	return &lane{led: led, most: most, timeout: timeout, carry: carry}
}

// depart sends g on its way. Unless it returns a flight, which the caller has to lead,
// g will be answered.
func (l *lane) depart(g *group) *flight {
	g.since = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, g)
	return l.launch(g)
}

// ask sends g on its way and waits for the answer. With false the caller has left.
func (l *lane) ask(ctx context.Context, g *group) bool {
	if f := l.depart(g); f != nil {
		l.lead(f)
		return true
	}
	return l.await(ctx, g)
}

// await returns when g is answered. With false the caller has left, because its context
// ended or its time was up, and must not touch g again.
func (l *lane) await(ctx context.Context, g *group) bool {
	select {
	case <-g.done:
	case <-ctx.Done():
		if g.state.CompareAndSwap(waiting, left) {
			return false
		}
		<-g.done // something else happened at the same moment
	}
	if f := g.flight; f != nil {
		g.flight = nil
		l.lead(f) // even if the context has ended: others are on board
	}
	return g.state.Load() == answered
}

// lead carries a batch in its leader's goroutine. The next one is passed on first.
func (l *lane) lead(f *flight) {
	l.carry(f, f.batch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.land(f) {
			l.launch(nil)
		}
	})
}

// fly carries a batch, and then the next ones as long as there are any.
func (l *lane) fly(f *flight) {
	for f != nil {
		var next *flight
		l.carry(f, f.batch, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.land(f) {
				if batch := l.next(); batch != nil {
					next = l.takeOff(batch, time.Now())
				}
			}
		})
		f = next
	}
}

// launch puts a batch of those who wait on its way, if there is one. It is led by the
// last of them to come, which has most time left; to me it is returned. The lane is locked.
func (l *lane) launch(me *group) *flight {
	for batch := l.next(); batch != nil; batch = l.next() {
		if !l.led {
			go l.fly(l.takeOff(batch, time.Now()))
			return nil
		}
		for _, g := range slices.Backward(batch) {
			if !g.state.CompareAndSwap(waiting, leading) {
				continue // it has just left
			}
			f := l.takeOff(batch, g.since)
			if g == me {
				return f
			}
			g.flight = f
			g.done <- struct{}{}
			return nil
		}
	}
	return nil
}

// next is a batch of those who wait, if it is time for one, or nil. The lane is locked.
func (l *lane) next() (batch []*group) {
	if l.most > 1 && len(l.flights) > 0 && (len(l.flights) > 1 || len(l.waiting) < len(l.flights[0].batch)) {
		return nil
	}
	n, charges := 0, 0
	for _, g := range l.waiting {
		if !g.hasLeft() {
			charges += len(g.items)
			if charges > l.most && batch != nil {
				break
			}
			batch = append(batch, g)
		}
		n++
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	return batch
}

// A flight is the context of a batch on its way. It ends when its time is up, and then
// another flight takes its place, so that a connection that hangs holds up no others.
type flight struct {
	batch    []*group
	deadline time.Time
	ended    chan struct{}
}

// takeOff puts a batch on its way that has a timeout from since. The lane is locked.
func (l *lane) takeOff(batch []*group, since time.Time) *flight {
	f := &flight{batch: batch, deadline: since.Add(l.timeout), ended: make(chan struct{})}
	l.flights = append(l.flights, f)
	if !l.watched {
		l.watched = true
		if l.watch == nil {
			l.watch = time.AfterFunc(l.timeout/lateness, l.look)
		} else {
			l.watch.Reset(l.timeout / lateness)
		}
	}
	return f
}

// land ends a flight; false if it was given up before. The lane is locked.
func (l *lane) land(f *flight) bool {
	i := slices.Index(l.flights, f)
	if i < 0 {
		return false
	}
	l.flights = slices.Delete(l.flights, i, i+1)
	return true
}

// look tells callers whose time is up, and gives up flights. One timer for all of them is
// cheaper than one for each.
func (l *lane) look() {
	now := time.Now()
	l.mu.Lock()
	l.expire(l.waiting, now)
	var overdue []*flight
	l.flights = slices.DeleteFunc(l.flights, func(f *flight) bool {
		l.expire(f.batch, now)
		if now.Before(f.deadline) {
			return false
		}
		overdue = append(overdue, f)
		return true
	})
	for _, f := range overdue {
		close(f.ended)
		l.launch(nil)
	}
	l.watched = len(l.flights) > 0 || len(l.waiting) > 0
	if l.watched {
		l.watch.Reset(l.timeout / lateness)
	}
	l.mu.Unlock()
}

// expire makes callers leave whose time is up.
func (l *lane) expire(groups []*group, now time.Time) {
	for _, g := range groups {
		if now.Sub(g.since) >= l.timeout && g.state.CompareAndSwap(waiting, left) {
			g.done <- struct{}{}
		}
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
