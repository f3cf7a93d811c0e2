package shed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/middleware"
)

// A gate admits requests up to the limit of its meter, and queues the others.
type gate struct {
	maxWait   time.Duration
	start     time.Time
	answer    func(p *slot, admitted bool) // ends a request's wait; called under the lock
	planSweep func()                       // sweeps after sweepEvery

	mu      sync.Mutex
	meter   meter
	queue   queue
	cut     int           // the first overloaded level; all levels after it are overloaded too
	refused time.Duration // when a request of that level was last refused
	streams int           // slots in state apart
	slow    int           // slots in state apart that wait for their clients
	counts  []Level

	flying   list // slots of requests in flight, without streams
	sweeping bool // a sweep is planned
}

const (
	// A queue is an overload if the service needs longer than patience to work it off. Shorter queues
	// occur by chance.
	patience = 5 * time.Second

	// fewWaiting requests may wait at any rate, because the rate is unknown at the start. mostWaiting
	// bounds memory.
	fewWaiting  = 64
	mostWaiting = 10_000

	// An overload of a level ends when none of its requests was refused for this time.
	calm = time.Second

	// A flushed answer is a stream once its handler has run for slowTimes the usual latency and for
	// slowTime. A request is slow once it has waited that long for its client.
	slowTimes = 4
	slowTime  = 100 * time.Millisecond

	// Slow clients have at most mostSlow times the limit, or the initial limit if it is larger, of slots
	// in state apart: all of them may need the service again at once.
	mostSlow = 4

	// sweepEvery is how often the gate looks for streams and slow requests.
	sweepEvery = 20 * time.Millisecond
)

// A slot belongs to a request in flight, or to a waiter.
type slot struct {
	gate   *gate
	level  int
	cohort uint32
	came   time.Duration // when it began to wait; once admitted, when it was admitted plus the time it waited for its client

	waits atomic.Int32 // goroutines that wait for its client
	slow  atomic.Bool  // they have waited for slowTime

	// Under the gate's lock.
	state    state
	waited   time.Duration // for its client, as sweeps saw it, before it was slow
	left     time.Duration // when its state became apart
	flushed  bool
	detached bool // it is a stream

	in           *list // the list that it is in
	older, newer *slot
	answer       chan bool // receives whether a waiter is admitted
}

type state uint8

const (
	waiting  state = iota
	inFlight       // counted
	apart          // in flight, but not counted: a stream, or a request that waits for its client
	gone
)

// Slots in the pool have no channel: a channel of one synctest bubble cannot be used in another.
var slots = sync.Pool{New: func() any { return &slot{} }}

func newGate(levels int, maxWait time.Duration) *gate {
	g := &gate{maxWait: maxWait, start: time.Now(), answer: func(p *slot, admitted bool) { p.answer <- admitted }}
	g.planSweep = func() { time.AfterFunc(sweepEvery, func() { g.sweep(g.now()) }) }
	g.queue.levels = make([]level, levels)
	g.cut = levels
	g.meter.limit = initialLimit
	g.meter.open(0)
	g.counts = make([]Level, levels)
	return g
}

func (g *gate) now() time.Duration { return time.Since(g.start) }

// admit returns the slot of a request, or nil if it is refused.
func (g *gate) admit(ctx context.Context, level int) *slot {
	p := slots.Get().(*slot)
	*p = slot{gate: g, level: level}
	if g.enter(p, g.now()) {
		return p
	}
	if !g.wait(ctx, p) {
		slots.Put(p)
		return nil
	}
	return p
}

// enter reports whether p is admitted at once. Otherwise p waits.
func (g *gate) enter(p *slot, now time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.came = now
	if g.queue.n == 0 && g.meter.inFlight < g.meter.bound() {
		g.begin(p, now)
		return true
	}
	p.state, p.answer = waiting, make(chan bool, 1)
	g.queue.push(p)
	g.trim(now)
	return false
}

// begin admits p.
func (g *gate) begin(p *slot, now time.Duration) {
	p.state, p.came = inFlight, now
	p.cohort = g.meter.enter(now)
	g.counts[p.level].Admitted++
	g.flying.push(p)
	if !g.sweeping {
		g.sweeping = true
		g.planSweep()
	}
}

// wait waits, and reports whether p is admitted.
func (g *gate) wait(ctx context.Context, p *slot) bool {
	timer := time.NewTimer(g.maxWait)
	defer timer.Stop()
	for {
		select {
		case admitted := <-p.answer:
			return admitted
		case <-ctx.Done():
			g.giveUp(p)
			return <-p.answer
		case <-timer.C:
			g.expire(p, g.now())
			timer.Reset(g.maxWait)
		}
	}
}

// expire refuses p if it still waits and its level is overloaded, or if it has waited for patience.
func (g *gate) expire(p *slot, now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.state == waiting && (p.level >= g.cut || now-p.came >= patience) {
		g.refuse(p, now)
	}
}

// giveUp drops p because its client is gone. That is no refusal.
func (g *gate) giveUp(p *slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.state == waiting {
		g.drop(p)
	}
}

func (g *gate) refuse(p *slot, now time.Duration) {
	if p.level == g.cut {
		g.refused = now
	}
	g.counts[p.level].Shed++
	g.drop(p)
}

// drop takes p out of the queue.
func (g *gate) drop(p *slot) {
	g.queue.remove(p)
	p.state = gone
	g.answer(p, false)
}

// trim refuses the waiters that the service cannot work off in time (Little's law). The waiters of a level
// and of all levels before it can overload the level. Later levels do not affect it.
func (g *gate) trim(now time.Duration) {
	n, most := 0, mostWaiting
	if g.meter.shrunk { // otherwise the rate is unknown
		most = min(most, max(fewWaiting, g.worth(patience)))
	}
	for i := 0; i < g.cut; i++ {
		if n += g.queue.levels[i].n(); n > most {
			g.cut, g.refused = i, now
		}
	}
	if g.cut == len(g.queue.levels) {
		return
	}
	for n, most = g.queue.n, max(1, g.worth(g.maxWait)); n > most; n-- {
		last := g.queue.last()
		if last.level < g.cut {
			return
		}
		g.refuse(last, now)
	}
}

// worth returns how many requests the service works off in d.
func (g *gate) worth(d time.Duration) int { return int(g.meter.rate * d.Seconds()) }

// fill admits waiters while there is room.
func (g *gate) fill(now time.Duration) {
	for g.queue.n > 0 && g.meter.inFlight < g.meter.bound() {
		// Under overload, next returns the newest waiter: the oldest may have given up.
		p := g.queue.next(g.cut, now-g.maxWait)
		g.queue.remove(p)
		g.begin(p, now)
		g.answer(p, true)
	}
	if g.cut < len(g.queue.levels) && now-g.refused >= calm {
		g.cut, g.refused = g.cut+1, now
	}
}

// Leave implements [middleware.Slot].
func (p *slot) Leave() {
	p.gate.leave(p, p.gate.now())
	slots.Put(p)
}

func (g *gate) leave(p *slot, now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !p.detached {
		g.flying.remove(p)
	}
	if p.state == inFlight {
		g.meter.leave(now, max(0, now-p.came), p.cohort)
	} else {
		g.streams--
		if !p.detached {
			g.slow--
		}
	}
	p.state = gone
	g.fill(now)
}

// Streams implements [middleware.Slot].
func (p *slot) Streams(detached bool) {
	g := p.gate
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	p.flushed = true
	if detached {
		g.detach(p, now)
	}
}

// Waits implements [middleware.Slot].
func (p *slot) Waits(begins bool) {
	if begins {
		p.waits.Add(1)
	} else {
		p.waits.Add(-1)
	}
	if p.slow.Load() {
		g := p.gate
		now := g.now()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.turn(p, now)
	}
}

// sweep looks for streams and slow requests among those in flight, and repeats while there are any.
func (g *gate) sweep(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	usual := time.Duration(g.meter.base * float64(time.Second))
	long := max(slowTime, slowTimes*usual)
	for p, next := g.flying.oldest, (*slot)(nil); p != nil; p = next {
		next = p.newer
		if p.waits.Load() > 0 && !p.slow.Load() {
			p.waited += sweepEvery
		}
		switch {
		case p.flushed && now-p.came >= long:
			g.detach(p, now)
		case p.waited >= long && !p.slow.Load() && g.slow < g.mostSlow():
			p.came += p.waited - sweepEvery/2 // the wait began between two sweeps
			p.waited = 0
			p.slow.Store(true)
			g.turn(p, now)
		}
	}
	if g.sweeping = g.flying.n > 0; g.sweeping {
		g.planSweep()
	}
}

// detach makes p a stream, which no longer counts.
func (g *gate) detach(p *slot, now time.Duration) {
	if !p.detached {
		p.detached = true
		g.flying.remove(p)
		if p.state == apart {
			g.slow--
		}
		g.turn(p, now)
	}
}

// mostSlow is how many slots may be set apart for slow clients. It bounds the requests in flight beside
// streams, because a request whose client comes back is counted even if there is no room.
func (g *gate) mostSlow() int { return mostSlow * max(initialLimit, int(g.meter.limit+0.5)) }

// turn updates whether p counts. A stream does not count. A slow request does not count while it waits
// for its client, and its latency excludes that time. Beyond mostSlow a request counts as before, until
// it has waited for as long again.
func (g *gate) turn(p *slot, now time.Duration) {
	away := p.detached || p.slow.Load() && p.waits.Load() > 0
	switch {
	case away && p.state == inFlight && !p.detached && g.slow >= g.mostSlow():
		p.slow.Store(false)
	case away && p.state == inFlight:
		if !p.detached {
			g.slow++
		}
		p.state, p.left = apart, now
		g.meter.forget(now, p.cohort)
		g.streams++
		g.fill(now)
	case !away && p.state == apart:
		p.state = inFlight
		p.came += now - p.left
		p.cohort = g.meter.enter(now)
		g.streams--
		g.slow--
	}
}

var _ middleware.Slot = (*slot)(nil)
