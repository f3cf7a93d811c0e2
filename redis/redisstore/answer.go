package redisstore

import (
	"slices"
	"sync"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

// An answer is what the script says about one group: the server's time, and a record for
// each of its charges.
type answer struct {
	now     int64
	records string
}

// A record is a charge's verdict and the state to describe it by: after the charge if the
// whole group was taken, before it otherwise. Of a log it has three times in place of all.
type record struct {
	allowed           bool
	last, level, prev int64

	oldest, blocking, newest int64
}

const (
	recordSize    = 1 + 3*8
	logRecordSize = 1 + 5*8
)

func isLog(q *limiter.Quota) bool { return q.Algorithm() == limiter.SlidingLog }

func sizeOf(q *limiter.Quota) int {
	if isLog(q) {
		return logRecordSize
	}
	return recordSize
}

// deliver cuts the script's reply into the groups' answers.
func (r *request) deliver() {
	var now int64
	reply, err := r.Text()
	if err == nil {
		size := 8
		for _, g := range r.groups {
			size += g.answerSize()
		}
		if len(reply) != size {
			err = wire.ErrAnswer
		} else {
			now, reply = counters.Number(reply), reply[8:]
		}
	}
	for _, g := range r.groups {
		if err != nil {
			g.deliver(answer{}, err)
			continue
		}
		size := g.answerSize()
		g.deliver(answer{now, reply[:size]}, nil)
		reply = reply[size:]
	}
}

// answerSize is how long g's records are.
func (g *group) answerSize() (size int) {
	for i := range g.items {
		size += sizeOf(g.items[i].quota)
	}
	return size
}

// next reads the record of a charge under q and what comes after it.
func next(records string, q *limiter.Quota) (record, string) {
	r := record{
		allowed: records[0] == 1,
		last:    counters.Number(records[1:]),
		level:   counters.Number(records[9:]),
	}
	if isLog(q) {
		r.level = min(max(0, r.level), q.Capacity()) // what is in Redis may be anything
		r.oldest, r.blocking, r.newest = counters.Number(records[17:]), counters.Number(records[25:]), counters.Number(records[33:])
	} else {
		r.prev = counters.Number(records[17:])
	}
	return r, records[sizeOf(q):]
}

// logs are for the times of logs, of which there may be thousands in one.
var logs = sync.Pool{New: func() any { return new([]int64) }}

// describe is the decision on c, of which r tells, as one on an event of that cost.
func (r *record) describe(c *limiter.Charge, now, cost int64, allowed bool) limiter.Decision {
	if !isLog(c.Quota) || r.level == 0 {
		return c.Quota.Describe(limiter.State{Last: r.last, Level: r.level, Prev: r.prev}, now, cost, allowed)
	}
	log := logs.Get().(*[]int64)
	*log = slices.Grow((*log)[:0], int(r.level))[:r.level]
	r.fill(*log, c)
	d := c.Quota.Describe(limiter.State{Last: r.last, Log: *log}, now, cost, allowed)
	logs.Put(log)
	return d
}

// fill makes a log that gives the same answers to c as the one of which r knows three
// times: of the others none is asked for.
func (r *record) fill(log []int64, c *limiter.Charge) {
	blocking := max(0, r.level+c.Cost-c.Quota.Capacity()-1)
	for i := range log {
		if int64(i) < blocking {
			log[i] = r.oldest
		} else {
			log[i] = r.blocking
		}
	}
	log[len(log)-1] = r.newest
}

// foreign is the name of a counter of g's that holds something else, or empty. Then nothing
// was decided.
func (g *group) foreign() string {
	records := g.answer.records
	for i := range g.items {
		if records[0] == 2 {
			return g.items[i].name
		}
		records = records[sizeOf(g.items[i].quota):]
	}
	return ""
}

// decide fills in the decisions on a group, and returns whether it was taken.
func (a answer) decide(charges []limiter.Charge, decisions []limiter.Decision) (taken bool) {
	taken = true
	records := a.records
	for i := range charges {
		taken = taken && records[0] == 1
		records = records[sizeOf(charges[i].Quota):]
	}
	records = a.records
	for i := range charges {
		c := &charges[i]
		var r record
		r, records = next(records, c.Quota)
		cost := c.Cost
		if !taken && r.allowed {
			cost = 0 // it was only looked at
		}
		decisions[i] = r.describe(c, a.now, cost, r.allowed)
	}
	return taken
}

// look describes the charges of a group as they stand after it.
func (a answer) look(charges []limiter.Charge, decisions []limiter.Decision) {
	records := a.records
	for i := range charges {
		c := &charges[i]
		var r record
		r, records = next(records, c.Quota)
		decisions[i] = r.describe(c, a.now, 0, true)
	}
}
