package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A lane gathers groups into batches. Those who come while one is on its way leave together
// as the next: the round trip in flight is the window, so who comes alone waits for nobody.
// A second batch does not wait for the first if it is as large. Where a round trip is long,
// more leave beside those, at intervals, so that nobody waits for most of one.
//
// Where the client keeps deadlines and the way is short, a batch is led by one of the callers
// whose groups are in it, in its own goroutine, as waking another one costs as much as a round
// trip on the loopback interface. Elsewhere a batch has a goroutine, which may outlast the
// callers: what it connects is kept however late, and so is a connection whose answer is late.
//
// An answer has the timeout from when its batch is sent. What comes before that, waiting for
// other batches and making a connection, has as many measured round trips as it may take.
type lane struct {
	led      bool
	most     int           // charges in a batch; 1: each group leaves at once, alone
	parallel int           // flights, where a round trip is long
	timeout  time.Duration // of an answer
	long     time.Duration // longTrip, but in tests
	carry    carry

	mu       sync.Mutex
	waiting  []*group
	flights  []*flight     // on their way
	lone     []*flight     // given up by their callers, still making a connection
	trip     time.Duration // how long the way there and back takes: measured, or assumed
	measured bool
	tookOff  time.Time   // the latest flight
	watch    *time.Timer // runs look, unless the lane is at rest
	watched  bool
}

// A carry brings a batch to Redis, calls landed when there is an answer or none to come,
// and delivers it.
type carry func(f *flight, landed func())

const (
	// lateness is how much of the timeout a caller may wait beyond it, at most: an eighth.
	lateness = 8

	// setup is how many round trips may come before a batch is sent, at most: to wait for
	// another, to connect to a sentinel and ask it (4), to connect (TCP 1, TLS 2, HELLO, AUTH,
	// CLIENT SETINFO), and to hear that Redis does not know the script.
	setup = 12

	// settling is how many timeouts a connection may take that no caller waits for any more.
	settling = 20

	// longTrip is the round trip from which on more than two batches are in flight.
	// Below it two keep Redis busy, and fewer and larger batches cost less.
	longTrip = 8 * time.Millisecond
)

// newLane is a lane of which no round trip is known. Until one is, or a flight was in vain,
// it is assumed to take as long as it may.
func newLane(led bool, most, parallel int, timeout time.Duration, carry carry) *lane {
	return &lane{led: led, most: most, parallel: parallel, timeout: timeout, long: longTrip, carry: carry, trip: timeout}
}

// patience is how long a caller waits in all. The lane is locked.
func (l *lane) patience() time.Duration { return l.timeout + setup*l.trip }

// measure takes note of how long a round trip took. One that is shorter than those before is
// nearer to what the way takes, and one that is longer had to wait for work, or else is one of
// many. The lane is locked.
func (l *lane) measure(took time.Duration) {
	took = min(took, l.timeout)
	if !l.measured {
		l.trip, l.measured = took, true
		return
	}
	l.trip = min(took, l.trip+(took-l.trip)/256)
}

// isLong tells that the way to Redis is. A round trip that is long because there is much to do
// is not, and gets no shorter by smaller batches. The lane is locked.
func (l *lane) isLong() bool { return l.measured && l.trip >= l.long }

// hasLeaders tells whether callers lead batches now. The lane is locked.
func (l *lane) hasLeaders() bool { return l.led && l.measured && l.trip < l.long }

// interval is that of flights where a round trip is long. The lane is locked.
func (l *lane) interval() time.Duration {
	return max(time.Millisecond, l.trip/time.Duration(l.parallel))
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
	l.carry(f, func() {
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
		l.carry(f, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.land(f) {
				if batch := l.next(); batch != nil {
					next = l.takeOff(batch, false, time.Now())
				}
			}
		})
		f = next
	}
}

// launch puts a batch of those who wait on its way, if there is one. If it is led, then by
// the last of them to come, which has most time left; to me it is returned. The lane is locked.
func (l *lane) launch(me *group) *flight {
	for batch := l.next(); batch != nil; batch = l.next() {
		if !l.hasLeaders() {
			go l.fly(l.takeOff(batch, false, time.Now()))
			return nil
		}
		for _, g := range slices.Backward(batch) {
			if !g.state.CompareAndSwap(waiting, leading) {
				continue // it has just left
			}
			if g == me {
				return l.takeOff(batch, true, g.since)
			}
			f := l.takeOff(batch, true, time.Now())
			f.patience = min(l.timeout, max(0, l.patience()-f.start.Sub(g.since)))
			g.flight = f
			g.done <- struct{}{}
			return nil
		}
	}
	return nil
}

// isFree tells whether it is time for a batch. The lane is locked.
func (l *lane) isFree() bool {
	switch n := len(l.flights); {
	case n == 0 || l.most == 1:
		return true
	case n == 1 && len(l.waiting) >= len(l.flights[0].batch):
		return true
	case n >= l.parallel || !l.isLong():
		return false
	}
	return time.Since(l.tookOff) >= l.interval()
}

// next is a batch of those who wait, if it is time for one, or nil. The lane is locked.
func (l *lane) next() (batch []*group) {
	if !l.isFree() {
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

// takeOff puts a batch on its way. The lane is locked.
func (l *lane) takeOff(batch []*group, led bool, now time.Time) *flight {
	f := newFlight(batch, led, now, l.timeout)
	f.steps = l.led
	l.tookOff = now
	l.flights = append(l.flights, f)
	if !l.watched {
		l.watched = true
		if l.watch == nil {
			l.watch = time.AfterFunc(l.pause(), l.look)
		} else {
			l.watch.Reset(l.pause())
		}
	}
	return f
}

// pause is how long it is until the next look. The lane is locked.
func (l *lane) pause() time.Duration {
	if l.isLong() {
		return min(l.timeout/lateness, l.interval())
	}
	return l.timeout / lateness
}

// land ends a flight; false if it was given up before. The lane is locked.
func (l *lane) land(f *flight) bool {
	if i := slices.Index(l.lone, f); i >= 0 {
		l.lone = slices.Delete(l.lone, i, i+1)
		return false
	}
	i := slices.Index(l.flights, f)
	if i < 0 {
		return false
	}
	l.flights = slices.Delete(l.flights, i, i+1)
	if took := f.took(); took > 0 {
		l.measure(took)
	}
	return true
}

// look tells callers whose time is up, gives up flights, and lets others take off. One timer
// for all of them is cheaper than one for each.
func (l *lane) look() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	patience := l.patience()
	expire(l.waiting, now, patience)
	l.flights = slices.DeleteFunc(l.flights, func(f *flight) bool {
		expire(f.batch, now, patience)
		overdue := f.isOverdue(now, patience)
		switch {
		case !overdue:
		case !f.led && !f.isSent():
			expire(f.batch, now, 0)
			l.lone = append(l.lone, f) // a connection may come of it yet
		default:
			expire(f.batch, now, 0)
			close(f.ended)
		}
		if overdue && !l.measured {
			l.trip = l.timeout / setup // it may be that nobody is there
		}
		return overdue
	})
	l.lone = slices.DeleteFunc(l.lone, func(f *flight) bool {
		overdue := now.Sub(f.start) >= settling*l.timeout
		if overdue {
			close(f.ended)
		}
		return overdue
	})
	for before := -1; len(l.flights) > before && len(l.waiting) > 0; {
		before = len(l.flights)
		l.launch(nil)
	}
	l.watched = len(l.flights) > 0 || len(l.waiting) > 0 || len(l.lone) > 0
	if l.watched {
		l.watch.Reset(l.pause())
	}
}

// expire makes callers leave who have come so long ago.
func expire(groups []*group, now time.Time, patience time.Duration) {
	for _, g := range groups {
		if now.Sub(g.since) >= patience && g.state.CompareAndSwap(waiting, left) {
			g.done <- struct{}{}
		}
	}
}
