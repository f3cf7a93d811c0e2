package redisstore

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// holdings are the slots that this process holds ([limiter.NewConcurrency]), by key. Redis
// counts what a process last said, for the time of a lease, so the process repeats everything
// that it holds within a third of a lease. A decision on a key repeats it too, and Redis adds
// the slots that it grants. The same walk over all keys repeats messages that Redis may not
// have received.
//
// Only one message about a key is in flight at a time. So the number of slots is known exactly
// when a message begins. A message may be lost, or arrive twice: the next one corrects it.
//
// The batcher's lock guards holdings.
type holdings struct {
	of      *batcher
	process int64 // what Redis knows this one by
	lease   time.Duration

	byName map[string]*holding // of the key in Redis
	number int64               // of the latest message

	timer *time.Timer
	due   time.Time // when it runs; zero: it does not
	walk  time.Time // of the next report

	closed time.Time // from then on nothing is renewed; zero: never
}

// A holding is the slots of one key.
type holding struct {
	*batcher
	name  string
	tag   keyfunc.Digest
	quota *limiter.Quota

	held     int64   // by callers
	reported int64   // that Redis counts, if it is not in doubt
	doubted  bool    // what became of the latest message is not known
	ends     []int64 // when slots were taken that were returned since the last message

	message *message // in flight
	queued  *group   // that tells Redis, if no decision does before
	began   time.Time
	counted time.Time // the latest message that may have had Redis count a slot
}

// A message says how many slots of a key this process holds.
type message struct {
	*holding
	number  int64
	limit   int64
	held    int64
	doubted bool // so Redis is to note the number whatever it has: another may come late
	ends    []int64
	granted int64  // on top
	key     uint16 // in its request
	index   int    // in its request, from 1
}

const (
	// slotLease is how long Redis counts the slots of a process that sends nothing.
	slotLease = 10 * time.Second

	// mostEnds is how many ended events a message has, the latest ones. More would hardly
	// change the mean.
	mostEnds = 8
)

// renewEvery is when a holding is repeated, and walkEvery how often holdings are checked for
// that.
func (h *holdings) renewEvery() time.Duration { return h.lease / 4 }
func (h *holdings) walkEvery() time.Duration  { return h.lease / 32 }

func newHoldings(of *batcher, lease time.Duration) holdings {
	return holdings{of: of, process: rand.Int64N(1 << 53), lease: lease}
}

// isKnown reports whether Redis counts the slots that are held.
func (h *holding) isKnown() bool { return h.held == h.reported && !h.doubted }

// find returns the holding of an item's key, and makes it if there is none.
func (h *holdings) find(name string, tag keyfunc.Digest, q *limiter.Quota) *holding {
	found := h.byName[name]
	if found == nil {
		if h.byName == nil {
			h.byName = make(map[string]*holding)
		}
		found = &holding{batcher: h.of, name: name, tag: tag, quota: q}
		h.byName[name] = found
	}
	return found
}

// forget removes a holding without slots.
func (h *holdings) forget(of *holding) {
	delete(h.byName, of.name)
	if len(h.byName) == 0 {
		h.byName = nil // a map keeps its room
	}
}

// begin gives each key of b's groups its message.
func (h *holdings) begin(b *batch) {
	for _, g := range b.groups {
		for i := range g.items {
			it := &g.items[i]
			if !it.isSlot {
				continue
			}
			of := h.find(it.name, g.tag, it.quota)
			if !g.tells {
				of.quota = it.quota // its limit may have changed
			}
			if of.message == nil {
				h.number++
				of.message = &message{
					holding: of, number: h.number, limit: it.quota.Capacity(),
					held: of.held, doubted: of.doubted, ends: of.ends,
				}
				of.ends, of.began = nil, b.flight.Start
				b.messages = append(b.messages, of.message)
			}
			if it.cost > 0 || of.held > 0 {
				of.counted = b.flight.Start
			}
			if of.queued != nil {
				if of.queued != g {
					of.queued.state.Store(left)
				}
				of.queued = nil
			}
			it.message = of.message
		}
	}
}

// end takes in what Redis said to b.
func (h *holdings) end(b *batch) {
	for _, r := range b.requests {
		r.each(func(g *group, a answer, err error) {
			if err != nil || !g.takesSlots() || !a.isTaken(g.items) {
				return
			}
			g.acquired = !g.hasLeft()
			for i := range g.items {
				if it := &g.items[i]; it.isSlot && a.allowed(i) {
					it.message.granted += it.cost
					if g.acquired {
						it.message.holding.held += it.cost
					}
				}
			}
		})
		for _, m := range r.messages {
			h.conclude(m, r.isHeard(m))
		}
	}
}

// lose ends the messages of a batch that is given up.
func (h *holdings) lose(b *batch) {
	for _, m := range b.messages {
		h.conclude(m, false)
	}
}

func (h *holdings) conclude(m *message, heard bool) {
	of := m.holding
	of.message = nil
	of.doubted = !heard
	if heard {
		of.reported = m.held + m.granted
	}
	if of.held == 0 && of.isKnown() {
		h.forget(of)
		return
	}
	if heard && !of.isKnown() {
		h.enqueue(of)
	}
	if h.walk.IsZero() {
		h.walk = time.Now().Add(h.walkEvery())
	}
	h.arm(h.walk)
}

// enqueue sends a message about a holding, alone after a moment or with the next batch.
func (h *holdings) enqueue(of *holding) {
	if of.queued != nil || of.message != nil {
		return
	}
	g := newGroup(take)
	g.tells, g.tag = true, of.tag
	g.add(of.name, &limiter.Charge{Quota: of.quota})
	of.queued = g
	h.of.admit(g, time.Now())
	h.arm(g.since.Add(linger))
}

// arm makes tend run at that time.
func (h *holdings) arm(at time.Time) {
	if !h.due.IsZero() && !at.Before(h.due) {
		return
	}
	h.due = at
	if wait := time.Until(at); h.timer == nil {
		h.timer = time.AfterFunc(wait, h.tend)
	} else {
		h.timer.Reset(wait)
	}
}

// tend sends messages that no decision took along, and repeats holdings that are due.
func (h *holdings) tend() {
	b := h.of
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	h.due = time.Time{}
	if !h.walk.IsZero() && !now.Before(h.walk) {
		h.walk = time.Time{}
		h.renew(now)
	}
	if !h.walk.IsZero() {
		h.arm(h.walk)
	}
	b.startNext(nil)
	if len(b.waiting) > 0 { // too late for this time, and no batch may come to take them along
		h.arm(now.Add(linger))
	}
}

// renew repeats what Redis may not have received or will forget, up to a batch of messages at
// once. After close it stops, once a lease has passed.
func (h *holdings) renew(now time.Time) {
	isClosed := !h.closed.IsZero()
	if isClosed && now.Sub(h.closed) > h.lease {
		return
	}
	room, pause := h.of.most, h.walkEvery()
	for _, of := range h.byName {
		isOld := !isClosed && now.Sub(of.began) >= h.renewEvery()
		if of.message != nil || of.queued != nil || !of.doubted && !isOld {
			continue
		}
		if of.held == 0 && now.Sub(of.counted) > 2*h.lease {
			h.forget(of) // as Redis has by now
			continue
		}
		if room == 0 {
			pause = time.Millisecond
			break
		}
		room--
		h.enqueue(of)
	}
	if len(h.byName) > 0 {
		h.walk = now.Add(pause)
	}
}

// release releases n slots that were acquired at that time on Redis's clock. The time is 0 if
// it is unknown.
func (b *batcher) release(name string, n, at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := &b.holdings
	of := h.byName[name]
	if of == nil || of.held == 0 || n == 0 {
		return
	}
	of.held = max(0, of.held-n)
	if at > 0 {
		if len(of.ends) == mostEnds {
			of.ends = append(of.ends[:0:0], of.ends[1:]...)
		}
		of.ends = append(of.ends, at)
	}
	h.enqueue(of)
}

// hold acquires slots without asking for room.
func (b *batcher) hold(name string, tag keyfunc.Digest, q *limiter.Quota, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.holdings.find(name, tag, q)
	of.held += n
	b.holdings.enqueue(of)
}

// close ends renewals, and reports whether Redis has received all releases.
func (b *batcher) close() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holdings.closed.IsZero() {
		b.holdings.closed = time.Now()
	}
	for _, of := range b.holdings.byName {
		if !of.isKnown() || of.message != nil {
			return false
		}
	}
	return true
}

// holders are the batchers of a store that have holdings.
type holders struct {
	mu sync.Mutex
	of []*batcher
}

func (h *holders) add(batchers []*batcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of = append(h.of, batchers...)
}

// close ends renewals, and reports whether Redis has received all releases.
func (h *holders) close() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	reported := true
	for _, b := range h.of {
		reported = b.close() && reported
	}
	return reported
}
