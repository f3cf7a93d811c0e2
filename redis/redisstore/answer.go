package redisstore

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

func isLog(q *limiter.Quota) bool { return !q.InFlight() && q.Algorithm() == limiter.SlidingLog }

// isLong reports whether q's entries are not read as a whole.
func isLong(q *limiter.Quota) bool { return isLog(q) && q.Capacity() > 10 }

// hasLows reports whether q's buckets remember how low they were.
func hasLows(q *limiter.Quota) bool {
	return q.Settles && q.Algorithm() == limiter.TokenBucket
}

// An answer is the script's answer for one group: the server's time, and a record for each
// charge.
type answer struct {
	now     int64
	records string
	size    int // of a record: the batch says which
}

// A record is the verdict on a charge and the state for its decision: after the charge if the
// whole group was taken, otherwise before it.
type record struct {
	allowed           bool
	last, level, prev int64

	// Of a log's entries the times of those that have to go: for a unit to fit, for the charge
	// that was refused, and for all units to be free.
	one, event, all int64
}

const (
	recordSize    = 1 + 3*8
	logRecordSize = 1 + 6*8 // of every record in a batch with a log
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
	if r.failed == nil && len(r.reply) != 8+r.size*r.charges+recordSize*r.asks+len(r.messages) {
		r.failed = wire.ErrAnswer
	}
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
	ofSlots := r.reply[8+len(records):]
	for _, g := range r.groups {
		if g.tells {
			continue
		}
		slots := 0
		if r.asks > 0 {
			slots = g.slots()
		}
		a := answer{now: now, size: r.size}
		others := r.size * (len(g.items) - slots)
		switch {
		case slots == 0:
			a.records = records[:others]
		case others == 0:
			a.records, a.size = ofSlots[:slots*recordSize], recordSize
		default:
			a.records = g.inOrder(records, ofSlots, r.size)
		}
		records, ofSlots = records[others:], ofSlots[slots*recordSize:]
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
func (a answer) allowed(i int) bool { return a.records[i*a.size] == 1 }

// isTaken reports whether all charges were allowed that are not optional.
func (a answer) isTaken(items []item) bool {
	for i := range items {
		if !a.allowed(i) && !items[i].optional {
			return false
		}
	}
	return true
}

// record returns the record of the charge at i, under q.
func (a answer) record(i int, q *limiter.Quota) record {
	text := a.records[i*a.size:]
	r := record{
		allowed: text[0] == 1,
		last:    counters.Number(text[1:]),
		level:   counters.Number(text[9:]),
		prev:    counters.Number(text[17:]),
	}
	if isLog(q) {
		r.level = min(max(0, r.level), 2*q.Capacity()) // what is in Redis may be anything
		r.prev = min(max(0, r.prev), r.level/2)
		r.one, r.event, r.all = counters.Number(text[25:]), counters.Number(text[33:]), counters.Number(text[41:])
	}
	return r
}

// logs are for the entries that describe needs.
var logs = sync.Pool{New: func() any { return new([4]limiter.Entry) }}

// describe returns the decision on c that r describes, for an event of that cost.
func (r *record) describe(c *limiter.Charge, now, cost int64, allowed bool) limiter.Decision {
	s := limiter.State{Last: r.last, Level: r.level, Prev: r.prev}
	if !isLog(c.Quota) || r.level == 0 {
		return c.Quota.Describe(s, now, cost, allowed)
	}
	entries := logs.Get().(*[4]limiter.Entry)
	s.Log = r.log(entries[:0], c)
	d := c.Quota.Describe(s, now, cost, allowed)
	logs.Put(entries)
	return d
}

// log returns a log that gives the same answers to c as the stored log. It needs no more than
// the three times in r.
func (r *record) log(log []limiter.Entry, c *limiter.Charge) []limiter.Entry {
	capacity, inEntries := c.Quota.Capacity(), r.level-r.prev
	type point struct{ unit, time int64 }
	points := [3]point{{max(1, r.level+1-capacity), r.one}, {r.level, r.all}, {r.level + c.Cost - capacity, r.event}}
	known := points[:2]
	if !r.allowed && c.Cost <= capacity {
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

// foreign returns the name of a key of g's that holds no counter, or an empty string. If there
// is one, nothing was decided.
func (g *group) foreign() string {
	for i := range g.items {
		if g.answer.records[i*g.answer.size] == 2 {
			return g.items[i].name
		}
	}
	return ""
}

// decide fills in the decisions on a group, and reports whether it was taken.
func (a answer) decide(charges []limiter.Charge) (taken bool) {
	for i := range charges {
		charges[i].Decision.Allowed = a.allowed(i)
	}
	taken = limiter.Taken(charges)
	for i := range charges {
		c := &charges[i]
		r := a.record(i, c.Quota)
		cost := c.Cost
		if !taken && r.allowed {
			cost = 0 // it was only looked at
		}
		c.Decision = r.describe(c, a.now, cost, r.allowed)
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
		r := a.record(i, c.Quota)
		r.allowed = true
		c.Decision = r.describe(c, a.now, 0, true)
	}
}
