package redisstore

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/weirgo/weir/limiter"
	stores "github.com/weirgo/weir/limiter/store"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

func isLog(q *limiter.Quota) bool { return !q.InFlight() && q.Algorithm() == limiter.SlidingLog }

// A reply is what a script says to one call: the server's time, and a record for each charge.
type reply struct {
	now     int64
	records string
	size    int    // of a record: the run says which
	extra   string // of the records that say so
}

// A record has whether the charge had room, in a byte (2: the key holds no counter), and the key's state: after the
// charge if the whole call was taken, otherwise before it. The state of slots is how many are in use, and for how long
// one is held on average. Of a log's entries it has the times of those that have to go: for
// a unit to fit, for the charge that was refused, and for all units to be free.
//
// If another limit wrote the state, the byte has isOther too, and the reply's extra has what the charge's limit says
// about the state: the units that remain, and in how many microseconds one more does, the charge fits, all are free, and
// the event has its turn.
const (
	recordSize    = 1 + 3*8
	logRecordSize = 1 + 6*8 // of every record of a run with a log

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
func (r *run) read() {
	r.text, r.failed = r.Text()
	if r.failed != nil {
		return
	}
	records := 8 + r.size*r.charges
	if len(r.text) >= records {
		r.extra = extraSize * others(r.text[8:records], r.size)
	}
	if len(r.text) != records+r.extra {
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

// deliver gives the calls their replies.
func (r *run) deliver() {
	if r.failed != nil {
		for _, c := range r.calls {
			c.deliver(reply{}, r.failed)
		}
		return
	}
	now, records := counters.Number(r.text), r.text[8:8+r.size*r.charges]
	extra := r.text[8+len(records):]
	for _, c := range r.calls {
		own := reply{now: now, size: r.size, records: records[:r.size*len(c.items)]}
		records = records[len(own.records):]
		if len(extra) > 0 {
			n := extraSize * others(own.records, r.size)
			own.extra, extra = extra[:n], extra[n:]
		}
		c.deliver(own, nil)
	}
}

// allowed reports whether the charge at i had room.
func (r reply) allowed(i int) bool { return r.records[i*r.size]&^isOther == 1 }

// isOther reports whether the charge at i was decided by a state of another limit.
func (r reply) isOther(i int) bool { return r.records[i*r.size] >= isOther }

// state returns the state of the key of the charge at i, under q, without a log's entries.
func (r reply) state(i int, q *limiter.Quota) limiter.State {
	text := r.records[i*r.size+1:]
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
func (r reply) describe(i int, c *limiter.Charge, cost int64, allowed bool) limiter.Decision {
	s := r.state(i, c.Quota)
	if r.isOther(i) {
		return r.describeOther(i, c, s.Last, cost, allowed)
	}
	if !isLog(c.Quota) || s.Level == 0 {
		return stores.Describe(c, s, r.now, cost, allowed)
	}
	entries := logs.Get().(*[4]limiter.Entry)
	s.Log = r.log(entries[:0], i, s, c, allowed)
	d := c.Quota.Describe(s, r.now, cost, allowed)
	logs.Put(entries)
	return d
}

// describeOther is describe for a state of another limit, which is of time last. The script describes it.
func (r reply) describeOther(i int, c *limiter.Charge, last, cost int64, allowed bool) limiter.Decision {
	extra := r.extra[extraSize*others(r.records[:i*r.size], r.size):]
	after := func(i int) time.Duration { return time.Duration(counters.Number(extra[8*i:])) * time.Microsecond }
	d := limiter.Decision{
		Allowed: allowed, Limit: c.Quota.Capacity(), Remaining: counters.Number(extra),
		Receipt: limiter.Receipt{At: last, By: limiter.ByStore},
	}
	behind := time.Duration(last-r.now) * time.Microsecond
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
func (r reply) log(log []limiter.Entry, i int, s limiter.State, c *limiter.Charge, allowed bool) []limiter.Entry {
	times := r.records[i*r.size+recordSize:]
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

// foreign returns an error if keys of c hold no counter, or nil. If it is an error, nothing was decided.
func (c *call) foreign() *foreignError {
	var err *foreignError
	for i := range c.items {
		if c.reply.records[i*c.reply.size] != 2 {
			continue
		}
		if err == nil {
			err = &foreignError{name: c.items[i].name}
		}
		index := i
		if c.indexes != nil {
			index = c.indexes[i]
		}
		err.charges = append(err.charges, index)
	}
	return err
}

// decide fills in the decisions of a call that takes, if it can, and reports whether it has.
func (r reply) decide(charges []limiter.Charge, canTake bool) (taken bool) {
	for i := range charges {
		charges[i].Decision.Allowed = r.allowed(i)
	}
	taken = canTake && stores.Taken(charges)
	for i := range charges {
		c := &charges[i]
		cost, allowed := c.Cost, c.Decision.Allowed
		if !taken && allowed {
			cost = 0 // it was only looked at
		}
		c.Decision = r.describe(i, c, cost, allowed)
	}
	return taken
}

// look describes the charges of a call as looks after it, but for those that were refused.
func (r reply) look(charges []limiter.Charge) {
	for i := range charges {
		c := &charges[i]
		if c.Optional && !c.Decision.Allowed {
			continue
		}
		c.Decision = r.describe(i, c, 0, true)
	}
}
