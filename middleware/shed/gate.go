package shed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/middleware"
)

// A gate admits requests by one meter, and has the others wait.
type gate struct {
	maxWait time.Duration
	start   time.Time
	tell    func(p *place, admitted bool) // is called under the lock for one that waited
	later   func()                        // sweeps after sweepEvery

	mu      sync.Mutex
	meter   meter
	queue   queue
	cut     int           // the first level that is overloaded, as all after it are; their number: none
	refused time.Duration // when one of that level last was
	streams int           // those apart
	slow    int           // how many of them wait for their clients
	counts  []Level

	flying   list // those that were admitted, without streams
	sweeping bool // they will be swept
}

const (
	// A queue is no overload before it is longer than what the service does in this time.
	// Chance makes long queues in services that are well able to work them off.
	patience = 5 * time.Second

	// fewWaiting may wait whatever the rate, which is not known at the start, and mostWaiting
	// bounds memory.
	fewWaiting  = 64
	mostWaiting = 10_000

	// An overload is over for a level when none of it was refused for so long.
	calm = time.Second

	// An answer that was flushed is a stream's if its handler goes on for so many times
	// what is usual, and for so long; and a request is slow that has waited so for its client.
	slowTimes = 4
	slowTime  = 100 * time.Millisecond

	// So many times the limit are set apart for slow clients at once, and of a small limit as many as
	// of the first one: when they all have sent the rest, they are all at work.
	mostSlow = 4

	// sweepEvery is how often both are looked for.
	sweepEvery = 20 * time.Millisecond
)

// A place is of a request in flight, or one that waits.
type place struct {
	gate   *gate
	level  int
	cohort uint32
	came   time.Duration // when it was admitted, later by what it waited for its client; of one that waits for a place, when it began to

	waits atomic.Int32 // goroutines that wait for its client
	slow  atomic.Bool  // it has waited for long

	// Under the gate's lock.
	state    state
	waited   time.Duration // for its client, as was seen, since it was not slow
	left     time.Duration // when it was set apart
	flushed  bool
	detached bool // it is a stream

	in           *list // where it is, between
	older, newer *place
	told         chan bool // whether it is admitted; used by those that wait
}

type state uint8

const (
	waiting  state = iota
	inFlight       // and counted
	apart          // in flight, and not counted: a stream, or one whose client keeps it waiting
	gone
)

// The places in the pool have no channel: one made in a test's bubble is of no use to another.
var places = sync.Pool{New: func() any { return &place{} }}

func newGate(levels int, maxWait time.Duration) *gate {
	g := &gate{maxWait: maxWait, start: time.Now(), tell: func(p *place, admitted bool) { p.told <- admitted }}
	g.later = func() { time.AfterFunc(sweepEvery, func() { g.sweep(g.now()) }) }
	g.queue.levels = make([]level, levels)
	g.cut = levels
	g.meter.limit = initialLimit
	g.meter.open(0)
	g.counts = make([]Level, levels)
	return g
}

func (g *gate) now() time.Duration { return time.Since(g.start) }

// admit returns the place of a request, or nil.
func (g *gate) admit(ctx context.Context, level int) *place {
	p := places.Get().(*place)
	*p = place{gate: g, level: level}
	if g.enter(p, g.now()) {
		return p
	}
	if !g.wait(ctx, p) {
		places.Put(p)
		return nil
	}
	return p
}

// enter reports whether p is admitted at once. If not, it is told.
func (g *gate) enter(p *place, now time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.came = now
	if g.queue.n == 0 && g.meter.inFlight < g.meter.bound() {
		g.begin(p, now)
		return true
	}
	p.state, p.told = waiting, make(chan bool, 1)
	g.queue.push(p)
	g.trim(now)
	return false
}

// begin makes p one of those in flight.
func (g *gate) begin(p *place, now time.Duration) {
	p.state, p.came = inFlight, now
	p.cohort = g.meter.enter(now)
	g.counts[p.level].Admitted++
	g.flying.push(p)
	if !g.sweeping {
		g.sweeping = true
		g.later()
	}
}

// wait reports whether p is admitted in the end.
func (g *gate) wait(ctx context.Context, p *place) bool {
	timer := time.NewTimer(g.maxWait)
	defer timer.Stop()
	for {
		select {
		case admitted := <-p.told:
			return admitted
		case <-ctx.Done():
			g.giveUp(p)
			return <-p.told
		case <-timer.C:
			g.expire(p, g.now())
			timer.Reset(g.maxWait)
		}
	}
}

// expire refuses p if it still waits, and has waited for too long, as it has in an overload.
func (g *gate) expire(p *place, now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.state == waiting && (p.level >= g.cut || now-p.came >= patience) {
		g.refuse(p, now)
	}
}

// giveUp is for p's client, which is gone. That is no refusal.
func (g *gate) giveUp(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.state == waiting {
		g.drop(p)
	}
}

func (g *gate) refuse(p *place, now time.Duration) {
	if p.level == g.cut {
		g.refused = now
	}
	g.counts[p.level].Shed++
	g.drop(p)
}

// drop takes p out of the queue.
func (g *gate) drop(p *place) {
	g.queue.remove(p)
	p.state = gone
	g.tell(p, false)
}

// trim refuses those that cannot be admitted in time: by Little's law, what is more than the
// service does in that time. Each level is in overload by itself, with those that go before it:
// those of a level that the service has room for wait as ever, whatever comes behind them.
func (g *gate) trim(now time.Duration) {
	n, most := 0, mostWaiting
	if g.meter.shrunk { // or it is not known yet what the service does
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

// worth is how many requests the service does in that time.
func (g *gate) worth(d time.Duration) int { return int(g.meter.rate * d.Seconds()) }

// fill admits those that wait, as far as there is room.
func (g *gate) fill(now time.Duration) {
	for g.queue.n > 0 && g.meter.inFlight < g.meter.bound() {
		// Under overload the newest wait the least, and the oldest may have given up.
		p := g.queue.next(g.cut, now-g.maxWait)
		g.queue.remove(p)
		g.begin(p, now)
		g.tell(p, true)
	}
	if g.cut < len(g.queue.levels) && now-g.refused >= calm {
		g.cut, g.refused = g.cut+1, now
	}
}

// Leave implements [middleware.Slot].
func (p *place) Leave() {
	p.gate.leave(p, p.gate.now())
	places.Put(p)
}

func (g *gate) leave(p *place, now time.Duration) {
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
func (p *place) Streams(detached bool) {
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
func (p *place) Waits(begins bool) {
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

// sweep looks for those in flight that are streams, or wait for their clients. It does so again as
// long as there are any.
func (g *gate) sweep(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	usual := time.Duration(g.meter.base * float64(time.Second))
	long := max(slowTime, slowTimes*usual)
	for p, next := g.flying.oldest, (*place)(nil); p != nil; p = next {
		next = p.newer
		if p.waits.Load() > 0 && !p.slow.Load() {
			p.waited += sweepEvery
		}
		switch {
		case p.flushed && now-p.came >= long:
			g.detach(p, now)
		case p.waited >= long && !p.slow.Load() && g.slow < g.mostSlow():
			p.came += p.waited - sweepEvery/2 // when it began to wait is not known any better
			p.waited = 0
			p.slow.Store(true)
			g.turn(p, now)
		}
	}
	if g.sweeping = g.flying.n > 0; g.sweeping {
		g.later()
	}
}

// detach has a stream count no more.
func (g *gate) detach(p *place, now time.Duration) {
	if !p.detached {
		p.detached = true
		g.flying.remove(p)
		if p.state == apart {
			g.slow--
		}
		g.turn(p, now)
	}
}

// mostSlow is how many may be set apart for slow clients. It bounds all that are in flight beside
// streams, as a request that comes back needs no room: no more are admitted then.
func (g *gate) mostSlow() int { return mostSlow * max(initialLimit, int(g.meter.limit+0.5)) }

// turn has p count or not: a stream does not, nor a slow request while it waits for its client, and
// what it took is without that time. One too many is not slow, until it has waited for as long again.
func (g *gate) turn(p *place, now time.Duration) {
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

var _ middleware.Slot = (*place)(nil)
