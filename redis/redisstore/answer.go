package redisstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirgo/weir/limiter"
	stores "github.com/weirgo/weir/limiter/store"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

func isLog(q *limiter.Quota) bool { return !q.InFlight() && q.Algorithm() == limiter.SlidingLog }

// An answer is the script's answer for one group: the server's time, and a record for each
// charge.
type answer struct {
	now     int64
	records string
	size    int    // of a record: the batch says which
	extra   string // of the records that say so
}

// A record has whether the charge had room, in a byte, and the key's state: after the charge if the whole
// group was taken, otherwise before it. Of a log's entries it has the times of those that have to go: for
// a unit to fit, for the charge that was refused, and for all units to be free.
//
// If another limit wrote the state, the byte has isOther too, and the answer's extra has what the charge's limit says
// about the state: the units that remain, and in how many microseconds one more does, the charge fits, all are free, and
// the event has its turn.
const (
	recordSize    = 1 + 3*8
	logRecordSize = 1 + 6*8 // of every record in a batch with a log

	isOther   = 4
	extraSize = 5 * 8
)

func recordSizeOf(q *limiter.Quota) int {
	if isLog(q) {
		return logRecordSize
	}
	return recordSize
}

// read reads the script's reply.
func (r *request) read() {
	r.reply, r.failed = r.Text()
	if r.failed != nil {
		return
	}
	records := 8 + r.size*r.charges
	if len(r.reply) >= records {
		r.extra = extraSize * others(r.reply[8:records], r.size)
	}
	if len(r.reply) != records+r.extra+recordSize*r.asks+len(r.messages) {
		r.failed = wire.ErrAnswer
	}
}

// others returns how many records are about states of other limits.
func others(records string, size int) (n int) {
	for at := 0; at < len(records); at += size {
		if records[at] >= isOther {
			n++
		}
	}
	return n
}

// each calls f for each group that asked something, with its answer or an error.
func (r *request) each(f func(g *group, a answer, err error)) {
	if r.failed != nil {
		for _, g := range r.groups {
			if !g.tells {
				f(g, answer{}, r.failed)
			}
		}
		return
	}
	now, records := counters.Number(r.reply), r.reply[8:8+r.size*r.charges]
	extra := r.reply[8+len(records):][:r.extra]
	ofSlots := r.reply[8+len(records)+r.extra:]
	for _, g := range r.groups {
		if g.tells {
			continue
		}
		slots := 0
		if r.asks > 0 {
			slots = g.slots()
		}
		a := answer{now: now, size: r.size}
		rates := r.size * (len(g.items) - slots)
		if r.extra > 0 {
			n := extraSize * others(records[:rates], r.size)
			a.extra, extra = extra[:n], extra[n:]
		}
		switch {
		case slots == 0:
			a.records = records[:rates]
		case rates == 0:
			a.records, a.size = ofSlots[:slots*recordSize], recordSize
		default:
			a.records = g.inOrder(records, ofSlots, r.size)
		}
		records, ofSlots = records[rates:], ofSlots[slots*recordSize:]
		f(g, a, nil)
	}
}

// slots is how many of g's charges are of slots.
func (g *group) slots() (n int) {
	for i := range g.items {
		if g.items[i].isSlot {
			n++
		}
	}
	return n
}

// inOrder puts records in the order of g's charges, each of that size.
func (g *group) inOrder(records, ofSlots string, size int) string {
	b := make([]byte, 0, size*len(g.items))
	for i := range g.items {
		if !g.items[i].isSlot {
			b, records = append(b, records[:size]...), records[size:]
			continue
		}
		b, ofSlots = append(b, ofSlots[:recordSize]...), ofSlots[recordSize:]
		b = append(b, make([]byte, size-recordSize)...)
	}
	return string(b)
}

// isHeard reports whether Redis accepted a message of r's.
func (r *request) isHeard(m *message) bool {
	return r.failed == nil && r.reply[len(r.reply)-len(r.messages)+m.index-1] == 0
}

// deliver gives the groups their answers. If a caller has left, its slots are released. If the
// batch was given up, no slots were acquired: later messages do not include them.
func (r *request) deliver() {
	r.groups = slices.DeleteFunc(r.groups, func(g *group) bool {
		tells := g.tells
		if tells {
			g.free()
		}
		return tells
	})
	r.each(func(g *group, a answer, err error) {
		acquired := g.acquired
		if err == nil && !acquired && g.takesSlots() && a.isTaken(g.items) {
			a, err = answer{}, context.DeadlineExceeded
		}
		if g.deliver(a, err) || !acquired {
			return
		}
		for i := range g.items {
			if it := &g.items[i]; it.isSlot && a.allowed(i) {
				it.message.batcher.release(it.name, it.cost, 0)
			}
		}
	})
}

// allowed reports whether the charge at i had room.
func (a answer) allowed(i int) bool { return a.records[i*a.size]&^isOther == 1 }

// isOther reports whether the charge at i was decided by a state of another limit.
func (a answer) isOther(i int) bool { return a.records[i*a.size] >= isOther }

// isTaken reports whether all charges were allowed that are not optional.
func (a answer) isTaken(items []item) bool {
	for i := range items {
		if !a.allowed(i) && !items[i].optional {
			return false
		}
	}
	return true
}

// state returns the state of the key of the charge at i, under q, without a log's entries.
func (a answer) state(i int, q *limiter.Quota) limiter.State {
	text := a.records[i*a.size+1:]
	s := limiter.State{Last: counters.Number(text), Level: counters.Number(text[8:]), Prev: counters.Number(text[16:])}
	if isLog(q) {
		s.Level = min(max(0, s.Level), 2*q.Capacity()) // what is in Redis may be anything
		s.Prev = min(max(0, s.Prev), s.Level/2)
	}
	return s
}

// logs are for the entries that describe needs.
var logs = sync.Pool{New: func() any { return new([4]limiter.Entry) }}

// describe returns the decision on the charge c at i, for an event of that cost.
func (a answer) describe(i int, c *limiter.Charge, cost int64, allowed bool) limiter.Decision {
	s := a.state(i, c.Quota)
	if a.isOther(i) {
		return a.describeOther(i, c, s.Last, cost, allowed)
	}
	if !isLog(c.Quota) || s.Level == 0 {
		return stores.Describe(c, s, a.now, cost, allowed)
	}
	entries := logs.Get().(*[4]limiter.Entry)
	s.Log = a.log(entries[:0], i, s, c, allowed)
	d := c.Quota.Describe(s, a.now, cost, allowed)
	logs.Put(entries)
	return d
}

// describeOther is describe for a state of another limit, which is of time last. The script describes it.
func (a answer) describeOther(i int, c *limiter.Charge, last, cost int64, allowed bool) limiter.Decision {
	extra := a.extra[extraSize*others(a.records[:i*a.size], a.size):]
	after := func(i int) time.Duration { return time.Duration(counters.Number(extra[8*i:])) * time.Microsecond }
	d := limiter.Decision{
		Allowed: allowed, Limit: c.Quota.Capacity(), Remaining: counters.Number(extra),
		Receipt: limiter.Receipt{At: last, By: limiter.ByStore},
	}
	behind := time.Duration(last-a.now) * time.Microsecond
	if d.Remaining < d.Limit {
		if c.Quota.Algorithm() == limiter.LeakyBucket {
			d.Receipt.At += after(3).Microseconds()
		}
		d.NextAfter, d.ResetAfter = after(1)+behind, after(3)+behind
	}
	switch {
	case allowed:
		d.Delay = after(4)
	case cost > c.Quota.Capacity():
		d.RetryAfter = limiter.Never
	default:
		d.RetryAfter = max(time.Microsecond, after(2)+behind)
	}
	return d
}

// log returns a log that gives the same answers to the charge c at i as the stored log. s has the rest of
// the stored state.
func (a answer) log(log []limiter.Entry, i int, s limiter.State, c *limiter.Charge, allowed bool) []limiter.Entry {
	times := a.records[i*a.size+recordSize:]
	capacity, inEntries := c.Quota.Capacity(), s.Level-s.Prev
	type point struct{ unit, time int64 }
	points := [3]point{
		{max(1, s.Level+1-capacity), counters.Number(times)},
		{s.Level, counters.Number(times[16:])},
		{s.Level + c.Cost - capacity, counters.Number(times[8:])},
	}
	known := points[:2]
	if !allowed && c.Cost <= capacity {
		known = points[:3]
	}
	for i := range known {
		if p := &known[i]; p.unit > inEntries {
			p.unit -= inEntries // what is owed takes the room of the entries
		}
	}
	slices.SortFunc(known, func(a, b point) int { return cmp.Compare(a.unit, b.unit) })
	unit := int64(0)
	for _, p := range known {
		if p.unit > unit {
			log = append(log, limiter.Entry{At: p.time, N: p.unit - unit})
			unit = p.unit
		}
	}
	if unit < inEntries {
		log = append(log, limiter.Entry{At: log[len(log)-1].At, N: inEntries - unit})
	}
	return log
}

// foreign returns an error if keys of g hold no counter, or nil. If it is an error, nothing was decided.
func (g *group) foreign() *foreignError {
	var err *foreignError
	for i := range g.items {
		if g.answer.records[i*g.answer.size] != 2 {
			continue
		}
		if err == nil {
			err = &foreignError{name: g.items[i].name}
		}
		index := i
		if g.indexes != nil {
			index = g.indexes[i]
		}
		err.charges = append(err.charges, index)
	}
	return err
}

// decide fills in the decisions on a group, and reports whether it was taken.
func (a answer) decide(charges []limiter.Charge) (taken bool) {
	for i := range charges {
		charges[i].Decision.Allowed = a.allowed(i)
	}
	taken = stores.Taken(charges)
	for i := range charges {
		c := &charges[i]
		cost, allowed := c.Cost, c.Decision.Allowed
		if !taken && allowed {
			cost = 0 // it was only looked at
		}
		c.Decision = a.describe(i, c, cost, allowed)
	}
	return taken
}

// look describes the charges of a group as looks after it, but for those that were refused.
func (a answer) look(charges []limiter.Charge) {
	for i := range charges {
		c := &charges[i]
		if c.Optional && !c.Decision.Allowed {
			continue
		}
		c.Decision = a.describe(i, c, 0, true)
	}
}
