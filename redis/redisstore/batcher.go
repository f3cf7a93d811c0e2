package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirgo/weir/redis/internal/wire"
)

// A batcher gathers groups into batches. What is enqueued while a batch is in flight goes
// together in the next one: the round trip is the window, so a lone caller does not wait. A
// second batch does not wait for the first if it is as large. Where a round trip is long, more
// start beside those, at intervals, so that a caller does not wait for most of one.
//
// A batch has a goroutine, which may outlast its callers: it keeps a connection that it makes,
// or whose answer comes late. A caller that comes alone leads its batch in its own goroutine, if
// the client keeps deadlines and a round trip is short, as waking another goroutine costs as
// much as a round trip on the loopback interface.
//
// An answer has the timeout from when its batch is sent. What comes before that, waiting for
// other batches and making a connection, has as many measured round trips as it may take.
type batcher struct {
	led      bool
	most     int           // charges in a batch
	parallel int           // batches in flight, where a round trip is long
	timeout  time.Duration // of an answer
	long     time.Duration // longTrip, but in tests
	send     sendFunc

	mu       sync.Mutex
	waiting  []*group
	holdings holdings
	busy     map[string]struct{} // counters with a settlement or a message about slots in flight
	inFlight []*batch
	trip     time.Duration // how long a round trip takes: measured, or assumed
	measured bool
	started  time.Time   // the latest batch
	watch    *time.Timer // runs look, unless the batcher is at rest
	watched  bool
}

// A sendFunc brings a batch to Redis, calls finished when there is an answer or none to come,
// and delivers it.
type sendFunc func(b *batch, finished func())

const (
	// lateness is how much of the timeout a caller may wait beyond it, at most: an eighth.
	lateness = 8

	// setup is how many round trips may come before a batch is sent, at most: to wait for
	// another, to connect to a sentinel and ask it (4), to connect (TCP 1, TLS 2, HELLO, AUTH,
	// CLIENT SETINFO), and to hear that Redis does not know the script.
	setup = 12

	// longTrip is the round trip from which on more than two batches are in flight.
	// Below it two keep Redis busy, and fewer and larger batches cost less.
	longTrip = 8 * time.Millisecond
)

// newBatcher is a batcher of which no round trip is known. Until one is, or a batch was sent in
// vain, it is assumed to take as long as it may.
func newBatcher(led bool, most, parallel int, timeout time.Duration, send sendFunc) *batcher {
	b := &batcher{
		led: led, most: most, parallel: parallel, timeout: timeout, long: longTrip, send: send,
		trip: timeout, busy: make(map[string]struct{}),
	}
	b.holdings = newHoldings(b, slotLease)
	return b
}

// patience is how long a caller waits in all. The batcher is locked.
func (b *batcher) patience() time.Duration { return b.timeout + setup*b.trip }

// measure takes note of how long a round trip took. One that is shorter than those before is
// nearer to what the network takes, and one that is longer had to wait for work, or else is one
// of many. The batcher is locked.
func (b *batcher) measure(took time.Duration) {
	took = min(took, b.timeout)
	if !b.measured {
		b.trip, b.measured = took, true
		return
	}
	b.trip = min(took, b.trip+(took-b.trip)/256)
}

// isLong reports whether the network takes long. A round trip that is long because there is
// much to do does not count, and gets no shorter by smaller batches. The batcher is locked.
func (b *batcher) isLong() bool { return b.measured && b.trip >= b.long }

// hasLeaders reports whether callers may lead batches now. The batcher is locked.
func (b *batcher) hasLeaders() bool { return b.led && b.measured && b.trip < b.long }

// interval is that of batches where a round trip is long. The batcher is locked.
func (b *batcher) interval() time.Duration {
	return max(time.Millisecond, b.trip/time.Duration(b.parallel))
}

// enqueue sees to it that g is sent and answered.
func (b *batcher) enqueue(g *group) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admit(g, time.Now())
	b.startNext(nil)
}

// admit appends g, whose caller came at that time, to those that wait. The batcher is locked.
func (b *batcher) admit(g *group, now time.Time) {
	g.since = now
	b.waiting = append(b.waiting, g)
}

// ask enqueues g and waits for the answer. With false the caller has left.
func (b *batcher) ask(ctx context.Context, g *group) bool {
	now := time.Now()
	b.mu.Lock()
	b.admit(g, now)
	batch := b.startNext(g)
	b.mu.Unlock()
	if batch != nil {
		b.run(batch)
		return true
	}
	return b.await(ctx, g)
}

// await returns when g is answered. With false the caller has left, because its context
// ended or its time was up, and must not touch g again.
func (b *batcher) await(ctx context.Context, g *group) bool {
	select {
	case <-g.done:
	case <-ctx.Done():
		if g.state.CompareAndSwap(waiting, left) {
			return false
		}
		<-g.done // something else happened at the same moment
	}
	return g.state.Load() == answered
}

// run sends a batch. The next one starts before the answers are read.
func (b *batcher) run(batch *batch) {
	b.send(batch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.finish(batch) {
			b.startNext(nil)
		}
	})
}

// startNext starts a batch of the groups that wait, if it is time for one. It returns the batch
// that the caller of me has to run, if that may lead one. The batcher is locked.
func (b *batcher) startNext(me *group) *batch {
	groups := b.next()
	if groups == nil {
		return nil
	}
	if me != nil && groups[len(groups)-1] == me && b.hasLeaders() {
		me.state.Store(leading)
		return b.start(groups, true, me.since)
	}
	go b.run(b.start(groups, false, time.Now()))
	return nil
}

// isFree reports whether it is time for a batch. A batch that takes very long holds up no others, as
// messages about slots may be among them. The batcher is locked.
func (b *batcher) isFree() bool {
	inFlight := b.inFlight
	for len(inFlight) > 0 && time.Since(inFlight[0].flight.Start) >= b.holdings.lease/8 {
		inFlight = inFlight[1:]
	}
	switch n := len(inFlight); {
	case n == 0:
		return true
	case n == 1 && len(b.waiting) >= inFlight[0].waited:
		return true
	case n >= b.parallel || !b.isLong():
		return false
	}
	return time.Since(b.started) >= b.interval()
}

// next is a batch of the groups that wait, in order, if it is time for one, or nil. The batcher is
// locked.
func (b *batcher) next() (groups []*group) {
	if !b.isFree() {
		return nil
	}
	b.waiting = slices.DeleteFunc(b.waiting, (*group).hasLeft)
	if !slices.ContainsFunc(b.waiting, (*group).isDue) {
		return nil
	}
	charges, isFull := 0, false
	var claimed []string
	rest := b.waiting[:0]
	for _, g := range b.waiting {
		switch {
		case isFull:
		case b.isBusy(g):
			claimed = b.claim(g, claimed)
		default:
			charges += len(g.items)
			if isFull = groups != nil && (charges > b.most || !b.goTogether(groups[0], g)); !isFull {
				groups = append(groups, g)
				continue
			}
		}
		rest = append(rest, g)
	}
	clear(b.waiting[len(rest):])
	b.waiting = rest
	for _, name := range claimed {
		delete(b.busy, name)
	}
	return groups
}

// isBusy reports whether g must wait: batches may overtake each other, and a batch in flight has
// a settlement of one of g's counters, or a message about its slots. The batcher is locked.
func (b *batcher) isBusy(g *group) bool {
	return len(b.busy) > 0 && slices.ContainsFunc(g.items, func(it item) bool {
		_, isBusy := b.busy[it.name]
		return isBusy
	})
}

// claim makes the slots of g busy for the groups behind it, and appends their names to claimed.
// Otherwise a group with several keys could be overtaken forever. The batcher is locked.
func (b *batcher) claim(g *group, claimed []string) []string {
	for i := range g.items {
		it := &g.items[i]
		if _, isBusy := b.busy[it.name]; it.isSlot && !isBusy {
			b.busy[it.name] = struct{}{}
			claimed = append(claimed, it.name)
		}
	}
	return claimed
}

// occupy makes the counters busy that a batch has for itself, and vacate ends that. Only one
// batch in flight has a busy counter. The batcher is locked.
func (b *batcher) occupy(batch *batch) {
	batch.exclusive(func(name string) { b.busy[name] = struct{}{} })
}

func (b *batcher) vacate(batch *batch) {
	batch.exclusive(func(name string) { delete(b.busy, name) })
}

// goTogether reports whether two groups may be in one batch. Where the deadline is longer than
// messages about slots wait, they travel apart, as a batch is given up as a whole.
func (b *batcher) goTogether(one, other *group) bool {
	return b.timeout <= b.holdings.lease/8 || (one.slots() > 0) == (other.slots() > 0)
}

// start makes groups a batch in flight. The batcher is locked.
func (b *batcher) start(groups []*group, led bool, now time.Time) *batch {
	batch := newBatch(groups, led, now, b.timeout)
	b.started = now
	b.inFlight = append(b.inFlight, batch)
	b.occupy(batch)
	b.holdings.begin(batch)
	if len(batch.messages) > 0 {
		batch.lease = b.holdings.lease
		batch.flight.Patience = min(batch.flight.Patience, batch.lease/8)
	}
	if !b.watched {
		b.watched = true
		if b.watch == nil {
			b.watch = time.AfterFunc(b.pause(), b.look)
		} else {
			b.watch.Reset(b.pause())
		}
	}
	return batch
}

// pause is how long it is until the next look. The batcher is locked.
func (b *batcher) pause() time.Duration {
	pause := min(b.timeout, b.holdings.lease/8) / lateness
	if b.isLong() {
		return min(pause, b.interval())
	}
	return pause
}

// finish ends a batch; false if it was given up before. The batcher is locked.
func (b *batcher) finish(batch *batch) bool {
	i := slices.Index(b.inFlight, batch)
	if i < 0 {
		return false
	}
	b.inFlight = slices.Delete(b.inFlight, i, i+1)
	b.vacate(batch)
	b.holdings.end(batch)
	if took := batch.flight.Took(); took > 0 {
		b.measure(took)
	}
	return true
}

// look tells callers that their time is up, gives up batches, and starts others. One timer for
// all of them is cheaper than one for each.
func (b *batcher) look() {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	patience := b.patience()
	expire(b.waiting, now, patience)
	b.inFlight = slices.DeleteFunc(b.inFlight, func(batch *batch) bool {
		expire(batch.groups, now, patience)
		if !batch.isOverdue(now, patience) {
			return false
		}
		b.vacate(batch)
		b.holdings.lose(batch)
		expire(batch.groups, now, 0)
		if f := &batch.flight; !f.Led && f.Written() == 0 { // a connection may come of it yet
			time.AfterFunc(wire.Unawaited*b.timeout-now.Sub(f.Start), func() { close(f.Ended) })
		} else {
			close(f.Ended)
		}
		if !b.measured {
			b.trip = b.timeout / setup // there may be no server
		}
		return true
	})
	for before := -1; len(b.inFlight) > before && len(b.waiting) > 0; {
		before = len(b.inFlight)
		b.startNext(nil)
	}
	b.watched = len(b.inFlight) > 0 || len(b.waiting) > 0
	if b.watched {
		b.watch.Reset(b.pause())
	}
}

// expire makes callers leave that have come so long ago.
func expire(groups []*group, now time.Time, patience time.Duration) {
	for _, g := range groups {
		if g.tells || now.Sub(g.since) < patience || !g.state.CompareAndSwap(waiting, left) {
			continue
		}
		if g.ended != nil {
			g.err = context.DeadlineExceeded
			g.ended(g)
		} else {
			g.done <- struct{}{}
		}
	}
}
