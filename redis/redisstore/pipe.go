package redisstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A pipe brings calls to one server, in batches. What comes while a batch is in flight goes together in the next
// one: the round trip is the window, so a lone caller does not wait. A second batch does not wait for the first
// if it is as large. Where a round trip is long, more start beside those, at intervals, so that a caller does not
// wait for most of one.
//
// A caller waits by its own clock, at most for the timeout. Until there was a first answer it may wait longer,
// because a connection is being made, unless the server refuses that; all pipes of a store together wait a second
// longer, once. A batch goes on when its callers have left:
// its connection may be made yet, or its reply come, and a new connection would wait for the same server. But it no
// longer holds up others, and after twenty timeouts it gives up its place.
//
// A caller that comes alone leads its batch in its own goroutine, if the client keeps deadlines, a connection is
// ready and a round trip is short: waking another goroutine costs as much as a round trip on the loopback interface.
type pipe struct {
	config
	send sendFunc

	mu       sync.Mutex
	waiting  []*call
	settling map[string]struct{} // counters whose settlement or release is in flight
	inFlight []*batch            // at most places
	trip     time.Duration       // how long a round trip takes; 0: not known
	healthy  bool                // the latest batch to end had an answer
	refused  bool                // the latest dial failed, and there was no answer since
	reaching bool                // whether the server can be reached is being found out
	reached  time.Time           // when that last began
	started  time.Time           // the latest batch
	watch    *time.Timer         // runs look
	due      time.Time           // when it does; zero: the pipe is at rest
}

// config is what pipes of a store have in common.
type config struct {
	leads    bool          // callers may lead batches
	idle     func() bool   // whether a connection is ready
	most     int           // charges in a batch
	parallel int           // batches in flight that callers wait for, where a round trip is long
	timeout  time.Duration // of a call
	first    time.Duration // of a call before the first answer, if the server does not refuse
	waited   *atomic.Int64 // of first, in vain, by all pipes of the store
	reach    func() error  // returns why the server cannot be reached
	long     time.Duration // longTrip, but in tests
}

// errConnecting is the error of a call whose connection is being made. The dial goes on.
var errConnecting = &connectingError{}

type connectingError struct{}

func (*connectingError) Error() string { return "the connection to Redis is not made yet" }

// OfOneKey tells package failover that it is no failure of the server.
func (*connectingError) OfOneKey() bool { return true }

// A sendFunc brings a batch to Redis, calls finished with whether there was an answer, and delivers it.
type sendFunc func(b *batch, finished func(answered bool))

const (
	// lateness is how much of the timeout a caller may wait beyond it, at most: an eighth.
	lateness = 8

	// places is how many batches may be in flight, with those whose callers have left.
	places = 8

	// unawaited is after how many timeouts a batch gives up its place.
	unawaited = 20

	// slow is when a batch holds up no others, though its callers may wait still: renewals of slots may be among
	// them.
	slow = slotLease / 8

	// longTrip is the round trip from which on more than two batches are in flight.
	// Below it two keep Redis busy, and fewer and larger batches cost less.
	longTrip = 8 * time.Millisecond
)

func newPipe(c config, send sendFunc) *pipe {
	return &pipe{config: c, send: send, settling: make(map[string]struct{})}
}

// patience is how long a caller waits. The pipe is locked.
func (p *pipe) patience() time.Duration {
	if p.trip == 0 && !p.refused {
		return max(p.timeout, p.first-time.Duration(p.waited.Load()))
	}
	return p.timeout
}

// life is how long a batch has a place. The pipe is locked.
func (p *pipe) life() time.Duration { return max(p.patience(), unawaited*p.timeout) }

// measure takes note of how long a round trip took. A shorter round trip than before is nearer to what the
// network takes. A longer one waited for work or a connection, unless many are as long. The pipe is locked.
func (p *pipe) measure(took time.Duration) {
	took = min(max(1, took), p.timeout)
	if p.trip == 0 {
		p.trip = took
		return
	}
	p.trip = min(took, p.trip+(took-p.trip)/256)
}

// isLong reports whether the network takes long. A round trip that is long because there is much to do does not
// count, and gets no shorter by smaller batches. The pipe is locked.
func (p *pipe) isLong() bool { return p.trip >= p.long }

// interval is the time between batches where a round trip is long. The pipe is locked.
func (p *pipe) interval() time.Duration {
	return max(time.Millisecond, p.trip/time.Duration(p.parallel))
}

// enqueue sees to it that c is sent and answered.
func (p *pipe) enqueue(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admit(c)
	p.startNext(nil)
}

// admit appends c to the calls that wait. The pipe is locked.
func (p *pipe) admit(c *call) {
	c.since = time.Now()
	p.waiting = append(p.waiting, c)
}

// ask enqueues c and waits for the reply. With false the caller has left.
func (p *pipe) ask(ctx context.Context, c *call) bool {
	p.mu.Lock()
	p.admit(c)
	batch := p.startNext(c)
	p.mu.Unlock()
	if batch != nil {
		p.run(batch)
		return true
	}
	return p.await(ctx, c)
}

// await returns when c is answered. With false the caller has left, because its context ended or its time was up,
// and must not touch c again.
func (p *pipe) await(ctx context.Context, c *call) bool {
	select {
	case <-c.done:
	case <-ctx.Done():
		if c.state.CompareAndSwap(waiting, left) {
			return false
		}
		<-c.done // something else happened at the same moment
	}
	return c.state.Load() == answered
}

// linger queues a call for which no caller waits. It travels with the next batch, or alone after a moment.
func (p *pipe) linger(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admit(c)
	p.watchAt(c.since.Add(linger))
}

// run sends a batch. The next one starts before the replies are read.
func (p *pipe) run(b *batch) {
	p.send(b, func(answered bool) {
		took := time.Since(b.start)
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.Index(p.inFlight, b)
		if i < 0 { // it gave up its place
			return
		}
		p.inFlight = slices.Delete(p.inFlight, i, i+1)
		b.settled(func(name string) { delete(p.settling, name) })
		if p.healthy = answered; answered {
			p.refused = false
			p.measure(took)
		}
		p.startNext(nil)
	})
}

// startNext starts a batch of the calls that wait, if it is time for one. It returns the batch that the caller of
// me has to run, if that may lead one. The pipe is locked.
func (p *pipe) startNext(me *call) *batch {
	calls := p.next()
	if calls == nil {
		return nil
	}
	b := newBatch(calls, p.life())
	p.started = b.start
	p.inFlight = append(p.inFlight, b)
	b.settled(func(name string) { p.settling[name] = struct{}{} })
	p.watchAt(b.start.Add(p.pause()))
	b.connects = !p.idle()
	if p.trip == 0 {
		p.find(b.start)
	}
	if p.leads && me != nil && calls[len(calls)-1] == me && p.healthy && !p.isLong() && !b.connects {
		me.state.Store(leading)
		b.isLed, b.deadline = true, b.start.Add(p.timeout)
		return b
	}
	go p.run(b)
	return nil
}

// find finds out whether the server refuses connections. go-redis says that only after several tries. The pipe is
// locked.
func (p *pipe) find(now time.Time) {
	if p.reaching || now.Sub(p.reached) < p.timeout {
		return
	}
	p.reaching, p.reached = true, now
	go func() {
		err := p.reach()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refused, p.reaching = err != nil, false
	}()
}

// isFree reports whether it is time for a batch. The pipe is locked.
func (p *pipe) isFree() bool {
	if len(p.inFlight) >= max(places, p.parallel) {
		return false
	}
	n, first := 0, (*batch)(nil) // batches that callers wait for
	for _, b := range p.inFlight {
		if !b.isLeft && time.Since(b.start) < slow {
			if n++; first == nil {
				first = b
			}
		}
	}
	switch {
	case n == 0:
		return true
	case n == 1 && len(p.waiting) >= first.awaited:
		return true
	case n >= p.parallel || !p.isLong():
		return false
	}
	return time.Since(p.started) >= p.interval()
}

// next returns the calls that wait, in order, as far as a batch takes them, if it is time for one, or nil. A call
// waits while a batch in flight has a settlement of one of its counters: batches may overtake each other. The pipe is
// locked.
func (p *pipe) next() (calls []*call) {
	if !p.isFree() {
		return nil
	}
	p.waiting = slices.DeleteFunc(p.waiting, (*call).hasLeft)
	if !slices.ContainsFunc(p.waiting, (*call).isDue) {
		return nil
	}
	charges, isFull := 0, false
	rest := p.waiting[:0]
	for _, c := range p.waiting {
		if !isFull && !p.isSettling(c) {
			charges += len(c.items)
			if isFull = calls != nil && charges > p.most; !isFull {
				calls = append(calls, c)
				continue
			}
		}
		rest = append(rest, c)
	}
	clear(p.waiting[len(rest):])
	p.waiting = rest
	return calls
}

// isSettling reports whether a settlement of one of c's counters is in flight. The pipe is locked.
func (p *pipe) isSettling(c *call) bool {
	return len(p.settling) > 0 && slices.ContainsFunc(c.items, func(it item) bool {
		_, is := p.settling[it.name]
		return is
	})
}

// pause is how long it is until the next look. The pipe is locked.
func (p *pipe) pause() time.Duration {
	pause := min(p.timeout, slow) / lateness
	if p.isLong() {
		return min(pause, p.interval())
	}
	return pause
}

// watchAt makes look run at that time, or before. The pipe is locked.
func (p *pipe) watchAt(at time.Time) {
	if !p.due.IsZero() && !at.Before(p.due) {
		return
	}
	p.due = at
	if wait := time.Until(at); p.watch == nil {
		p.watch = time.AfterFunc(wait, p.look)
	} else {
		p.watch.Reset(wait)
	}
}

// look ends the calls whose time is up, and starts batches. One timer for all calls is cheaper than a timer each.
func (p *pipe) look() {
	for _, c := range p.expire(time.Now()) {
		c.ended(c)
	}
}

// expire makes callers leave whose time is up, and starts batches. It returns calls for which no caller waits, and
// that have no reply.
func (p *pipe) expire(now time.Time) (gone []*call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	patience := p.patience()
	// A dial takes as long as first, and the server may be well. If the dial before failed, it is not.
	isConnecting := p.reaching && !p.refused && now.Sub(p.reached) < p.first
	leave := func(c *call) {
		if now.Sub(c.since) < patience || !c.state.CompareAndSwap(waiting, left) {
			return
		}
		if c.ended != nil {
			c.err = context.DeadlineExceeded
			gone = append(gone, c)
		} else {
			c.connects = isConnecting
			c.done <- struct{}{}
		}
	}
	for _, c := range p.waiting {
		leave(c)
	}
	p.inFlight = slices.DeleteFunc(p.inFlight, func(b *batch) bool {
		for _, c := range b.calls {
			leave(c)
		}
		age := now.Sub(b.start)
		if b.connects && age >= p.timeout/2 && age < p.timeout {
			p.find(now)
		}
		if age >= patience && !b.isLeft {
			b.isLeft = true
			if p.trip == 0 {
				p.waited.Add(int64(age))
			}
			b.settled(func(name string) { delete(p.settling, name) })
		}
		isOver := age >= p.life()
		if isOver || b.isLed && b.isLeft {
			b.end()
		}
		return isOver
	})
	for before := -1; len(p.inFlight) > before && len(p.waiting) > 0; {
		before = len(p.inFlight)
		p.startNext(nil)
	}
	if p.due = (time.Time{}); len(p.inFlight) > 0 {
		p.watchAt(now.Add(p.pause()))
	} else if len(p.waiting) > 0 {
		p.watchAt(now.Add(linger))
	}
	return gone
}
