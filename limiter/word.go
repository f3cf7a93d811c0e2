package limiter

import (
	"sync/atomic"
	"time"
)

// What the algorithms decide, on states as Memory packs them: the hot path. The State
// functions say what is right, and the tests hold these to them.

// compileWord derives what the functions below use from what the algorithm compiled.
func (q *Quota) compileWord() {
	q.full = q.capacity * q.unit
	q.bursts, q.queue, q.fades = q.algorithm.bursts, q.algorithm.delay != nil, q.steps > 0
	q.byUnit, q.byRefill = newDivisor(q.unit), newDivisor(q.refill)
	q.byWindow, q.byStep, q.bySteps = newDivisor(q.window), newDivisor(q.step), newDivisor(q.steps)
}

// peek fills in the decision on a state of q's in its section of a span, which may be changing:
// then what it says is not to be believed. After is for commit. Now counts from the store's
// origin, in microseconds.
func (q *Quota) peek(now int64, b *binding, words []uint64, cost int64, d *Decision) (after uint64, o verdict) {
	d.At = now + b.memory.origin
	switch word := atomic.LoadUint64(&words[0]); {
	case q.bursts:
		if after = q.takeBucket(now, word, cost, d); after != word {
			o = changes
		}
	case b.form == inWord:
		if after = q.takeWindow(d.At, b.window, word, cost, d); after != word {
			o = changes
		}
	case b.form == inSlots:
		return q.takeSlots(now, b.memory.origin, words, cost, d)
	default:
		c := loadCounts(words)
		c.index += b.window
		if q.takeCounts(d.At, &c, cost, d) {
			o = changes
		}
	}
	return after, o
}

// commit takes what peek found to be allowed, with the cell taken.
func (q *Quota) commit(now int64, b *binding, words []uint64, cost int64, after uint64) {
	switch b.form {
	case inSlots:
		fillSlot(words, after)
		return
	case inCounts:
		var d Decision
		c := loadCounts(words)
		c.index += b.window
		q.takeCounts(now+b.memory.origin, &c, cost, &d)
		c.index -= b.window
		storeCounts(words, c)
		return
	case inLows:
		var space [MostLows + 1]Entry
		origin := b.memory.origin
		level := q.levelOf(words[0], now)
		lows := sink(loadLows(words, origin, space[:0]), level)
		if lows == nil {
			lows = space[:0]
		}
		storeLows(words, origin, addLow(lows, Entry{now + origin, level + cost*q.unit}))
	}
	atomic.StoreUint64(&words[0], after)
}

// takeWord fills in the decision on a word that was written under q's limit, or 0, and
// returns the word after it. Now counts from the store's origin, in microseconds.
func (q *Quota) takeWord(now int64, b *binding, word uint64, cost int64, d *Decision) uint64 {
	d.At = now + b.memory.origin
	if q.bursts {
		return q.takeBucket(now, word, cost, d)
	}
	return q.takeWindow(d.At, b.window, word, cost, d)
}

// takeBucket fills in the decision on a bucket's word at a time in microseconds since
// the store's origin, and returns the word after it.
func (q *Quota) takeBucket(now int64, word uint64, cost int64, d *Decision) uint64 {
	drained := now * q.refill
	level := max(0, int64(word)-drained)
	allowed := cost <= q.capacity && level+cost*q.unit <= q.full || cost == 0
	d.Allowed = allowed
	d.Limit = q.capacity
	d.Degraded, d.Overflow = false, false
	d.RetryAfter, d.NextAfter, d.ResetAfter, d.Delay = 0, 0, 0, 0
	switch {
	case allowed:
		if q.queue {
			d.Delay = micros(q.byRefill.up(level))
		}
		level += cost * q.unit
		if cost > 0 {
			word = uint64(drained + level)
		}
	case cost > q.capacity:
		d.RetryAfter = Never
	default:
		d.RetryAfter = micros(q.byRefill.up(level - (q.capacity-cost)*q.unit))
	}
	used := q.byUnit.up(level)
	d.Remaining = max(0, q.capacity-used)
	if used > 0 {
		d.NextAfter = micros(q.byRefill.up(level - (min(used, q.capacity)-1)*q.unit))
		d.ResetAfter = micros(q.byRefill.up(level))
	}
	if q.queue {
		d.At += d.ResetAfter.Microseconds()
	}
	return word
}

// takeWindow is takeBucket for a window's word, at a time in microseconds since 1970. The
// index counts from origin, the store's window at its own beginning.
func (q *Quota) takeWindow(now, origin int64, word uint64, cost int64, d *Decision) uint64 {
	c := q.countsOf(word, origin)
	if !q.takeCounts(now, &c, cost, d) {
		return word
	}
	return q.windowWord(c, origin)
}

// takeCounts fills in the decision on counts, and reports whether they have changed.
func (q *Quota) takeCounts(now int64, c *counts, cost int64, d *Decision) (changed bool) {
	if q.calendar != nil {
		return q.takeCalendar(now, c, cost, d)
	}
	current := q.byWindow.down(now)
	elapsed := now - current*q.window
	switch age := current - c.index; {
	case age == 0:
	case age < 0: // only for judge, while another goroutine decides on it
		elapsed = 0
	case age == 1 && q.fades:
		c.index, c.level, c.prev = current, max(0, c.level-q.capacity), min(c.level, q.capacity)
	case age == 1:
		c.index, c.level, c.prev = current, max(0, c.level-q.capacity), 0
	case age == 2 && q.fades:
		c.index, c.level, c.prev = current, 0, max(0, c.level-q.capacity)
	default:
		c.index, c.level, c.prev = current, 0, 0
	}
	share := int64(0)
	if c.prev > 0 {
		share = q.bySteps.down(c.prev * (q.steps - q.byStep.down(elapsed)))
	}
	free := q.capacity - c.level - share
	allowed := cost <= free || cost == 0
	d.Allowed = allowed
	d.Degraded, d.Overflow = false, false
	d.Limit = q.capacity
	d.RetryAfter, d.Delay = 0, 0
	switch {
	case allowed:
		c.level += cost
		free -= cost
	case cost > q.capacity:
		d.RetryAfter = Never
	default:
		d.RetryAfter = micros(q.waitCounts(c, elapsed, cost))
	}
	free = max(0, free)
	d.Remaining = free
	d.NextAfter, d.ResetAfter = 0, 0
	if free < q.capacity {
		d.NextAfter = micros(q.waitCounts(c, elapsed, free+1))
		switch rest, owed := q.window-elapsed, c.level-q.capacity; {
		case owed > 0:
			d.ResetAfter = micros(rest + q.window)
			if q.fades {
				d.ResetAfter += micros(q.faded(owed, 0))
			}
		case c.level == 0:
			d.ResetAfter = micros(q.faded(c.prev, 0) - elapsed)
		case q.fades:
			d.ResetAfter = micros(rest + q.faded(c.level, 0))
		default:
			d.ResetAfter = micros(rest)
		}
	}
	return allowed && cost > 0
}

// waitCounts is how long a cost does not fit that does not fit now.
func (q *Quota) waitCounts(c *counts, elapsed, cost int64) int64 {
	if room := q.capacity - c.level - cost; room >= 0 {
		return q.faded(c.prev, room) - elapsed
	}
	rest, owed := q.window-elapsed, max(0, c.level-q.capacity)
	room := q.capacity - owed - cost
	switch {
	case room < 0 && q.fades:
		return rest + q.window + q.faded(owed, q.capacity-cost)
	case room < 0:
		return rest + q.window
	case q.fades:
		return rest + q.faded(min(c.level, q.capacity), room)
	}
	return rest
}

// takeCalendar is takeCounts for windows of a calendar.
func (q *Quota) takeCalendar(now int64, c *counts, cost int64, d *Decision) (changed bool) {
	w := q.calendar.at(now)
	switch {
	case c.index >= w.index: // above it only for judge, while another goroutine decides on it
	case c.index == w.before:
		c.index, c.level = w.index, max(0, c.level-q.capacity)
	default:
		c.index, c.level = w.index, 0
	}
	d.Allowed = cost <= q.capacity-c.level || cost == 0
	d.Limit, d.Degraded, d.Overflow = q.capacity, false, false
	d.RetryAfter, d.NextAfter, d.ResetAfter, d.Delay = 0, 0, 0, 0
	switch {
	case d.Allowed:
		c.level += cost
	case cost > q.capacity:
		d.RetryAfter = Never
	default:
		d.RetryAfter = w.wait(now, c.level+cost > 2*q.capacity)
	}
	d.Remaining = max(0, q.capacity-c.level)
	if c.level > 0 {
		d.NextAfter = w.wait(now, c.level >= 2*q.capacity)
		d.ResetAfter = w.wait(now, c.level > q.capacity)
	}
	return d.Allowed && cost > 0
}

// wait is how long the window lasts, or the one behind it.
func (w *calendarWindow) wait(now int64, behind bool) time.Duration {
	if behind {
		return micros(w.followedTo - now)
	}
	return micros(w.end - now)
}
