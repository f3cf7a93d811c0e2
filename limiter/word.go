package limiter

import (
	"math/bits"
	"time"

	"github.com/weirgo/weir/limiter/internal/table"
)

// The hot path: states that Memory packs into a word, and decisions about them. Times count from the
// store's origin. The State functions define the decisions, and tests hold these functions to them. A
// word has no Last: Memory reads its clock after the word, so the time is never before the word's.

// uptime is how long a process can run before a packed time overflows.
const uptime = 15 * 366 * 24 * time.Hour

// A layout divides a window's word into the index, the previous count, and the current count, which has one
// more bit for debts. All fields are 0 if the state does not fit.
type layout struct{ index, prev, level uint }

func layoutOf(q *Quota) layout {
	if q.algorithm.bursts || q.algorithm.mostEvents > 0 || q.calendar != nil {
		return layout{}
	}
	count := uint(bits.Len64(uint64(q.capacity)))
	l := layout{index: uint(bits.Len64(uint64(uptime.Microseconds()/q.window + 1))), prev: count, level: count + 1}
	if q.algorithm == &fixedWindow {
		l.prev = 0
	}
	if l.index+l.prev+l.level > 64 {
		return layout{}
	}
	return l
}

// fitsWord reports whether q's states are packed. Settles may be set after q was made, so this is not part
// of compileWord.
func (q *Quota) fitsWord() bool {
	return q.layout.index > 0 || q.algorithm.bursts && !q.hasLows()
}

// unpack returns the state in a word.
func (q *Quota) unpack(word uint64, origin, now int64) State {
	if q.algorithm.bursts {
		return State{Last: now, Level: q.levelOf(word, now-origin)}
	}
	c := q.countsOf(word, q.byWindow.down(origin))
	return State{Last: c.index * q.window, Level: c.level, Prev: c.prev}
}

// pack returns the word of a state.
func (q *Quota) pack(s State, origin int64) uint64 {
	if q.algorithm.bursts {
		return uint64((s.Last-origin)*q.refill + s.Level)
	}
	return q.windowWord(counts{q.byWindow.down(s.Last), s.Level, s.Prev}, q.byWindow.down(origin))
}

// A bucket's word is the time when it will be empty, in units of 1/refill microseconds.
func (q *Quota) levelOf(word uint64, now int64) int64 { return max(0, int64(word)-now*q.refill) }

// counts are a window's state: its index since 1970, its count, and the count of the window before.
type counts struct{ index, level, prev int64 }

// countsOf returns the counts in a window's word. The word's index counts from the window in which the store
// was made.
func (q *Quota) countsOf(word uint64, origin int64) counts {
	l := &q.layout
	return counts{
		index: int64(word>>(l.prev+l.level)) + origin,
		level: int64(word & (1<<l.level - 1)),
		prev:  int64(word >> l.level & (1<<l.prev - 1)),
	}
}

func (q *Quota) windowWord(c counts, origin int64) uint64 {
	l := &q.layout
	return uint64(c.index-origin)<<(l.prev+l.level) | uint64(c.prev)<<l.level | uint64(c.level)
}

// compileWord derives the numbers that the functions below use.
func (q *Quota) compileWord() {
	q.layout = layoutOf(q)
	q.full = q.capacity * q.unit
	q.bursts, q.queue, q.fades = q.algorithm.bursts, q.algorithm.delay != nil, q.steps > 0
	q.byUnit, q.byRefill = newDivisor(q.unit), newDivisor(q.refill)
	q.byWindow, q.byStep, q.bySteps = newDivisor(q.window), newDivisor(q.step), newDivisor(q.steps)
}

// takeWord decides about a charge, and returns the word after it. The word is of q's limit, or 0. now is in
// microseconds since the store's origin.
func (q *Quota) takeWord(now int64, b *binding, word uint64, cost int64, d *Decision) uint64 {
	d.Receipt = Receipt{now + b.memory.origin, ByStore}
	if q.bursts {
		return q.takeBucket(now, word, cost, d)
	}
	c := q.countsOf(word, b.window)
	if !q.takeCounts(d.Receipt.At, &c, cost, d) {
		return word
	}
	return q.windowWord(c, b.window)
}

// takeBucket is takeWord for a bucket.
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
		d.Receipt.At += d.ResetAfter.Microseconds()
	}
	return word
}

// isWide reports whether q's states are counts that may not fit a word.
func (q *Quota) isWide() bool { return q.window > 0 && q.calendar == nil && q.algorithm != &slidingLog }

// takeWide decides about a charge, and returns the state after it.
func (q *Quota) takeWide(now int64, s State, cost int64, d *Decision) State {
	c := q.countsIn(s)
	if d.Receipt = (Receipt{now, ByStore}); q.takeCounts(now, &c, cost, d) {
		return State{Last: now, Level: c.level, Prev: c.prev}
	}
	return s
}

// takeCounts decides about a charge, and reports whether c has changed.
func (q *Quota) takeCounts(now int64, c *counts, cost int64, d *Decision) (changed bool) {
	elapsed := q.advanceCounts(now, c)
	free := q.capacity - c.level - q.shareOf(c, elapsed)
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
		d.ResetAfter = micros(q.resetCounts(c, elapsed))
	}
	return allowed && cost > 0
}

// advanceCounts brings the counts to a time, and returns how far into its window the time is.
func (q *Quota) advanceCounts(now int64, c *counts) (elapsed int64) {
	current := q.byWindow.down(now)
	switch age := current - c.index; {
	case age == 0:
	case age == 1 && q.fades:
		c.index, c.level, c.prev = current, max(0, c.level-q.capacity), min(c.level, q.capacity)
	case age == 1:
		c.index, c.level, c.prev = current, max(0, c.level-q.capacity), 0
	case age == 2 && q.fades:
		c.index, c.level, c.prev = current, 0, max(0, c.level-q.capacity)
	default:
		c.index, c.level, c.prev = current, 0, 0
	}
	return now - current*q.window
}

// shareOf returns how many units of the previous count still count.
func (q *Quota) shareOf(c *counts, elapsed int64) int64 {
	if c.prev == 0 {
		return 0
	}
	return q.bySteps.down(c.prev * (q.steps - q.byStep.down(elapsed)))
}

// resetCounts returns how long it takes until no unit counts.
func (q *Quota) resetCounts(c *counts, elapsed int64) int64 {
	switch rest, owed := q.window-elapsed, c.level-q.capacity; {
	case owed > 0 && q.fades:
		return rest + q.window + q.faded(owed, 0)
	case owed > 0:
		return rest + q.window
	case c.level == 0:
		return q.faded(c.prev, 0) - elapsed
	case q.fades:
		return rest + q.faded(c.level, 0)
	default:
		return rest
	}
}

// faded returns how far into a window the share of the previous count is at most room units.
func (q *Quota) faded(prev, room int64) int64 {
	if prev <= room {
		return 0
	}
	return min((q.steps-((room+1)*q.steps-1)/prev)*q.step, q.window)
}

// waitCounts returns how long it takes until a cost fits that does not fit now.
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

// attempts is how often decideWord tries to swap a word before it gives up.
const attempts = 6

// pause waits for half a microsecond, and twice as long after each attempt. Meanwhile another core decides
// several times with the word in its cache. Without a pause, the cores would mostly pass the cache line
// around. (The compiler keeps the empty loop.)
func pause(attempt int) {
	for range 1024 << attempt {
	}
}

// decideWord decides about one charge of a known key without the lock. It returns false if other goroutines
// kept changing the word, or if a mark must change. The clock is read after the word, so time does not go
// back from one decision to the next.
func (m *Memory) decideWord(q *Quota, b *binding, hash uint64, cost int64, d *Decision) bool {
	shard := m.shardOf(hash)
	for attempt := range attempts {
		cell, result := shard.Seek(hash)
		switch {
		case result == table.Busy:
			pause(attempt)
			continue
		case result == table.NotFound || cell.Tag() != b.tag:
			return false
		}
		after := q.takeWord(m.now()-m.origin, b, cell.State(), cost, d)
		if marksAfter(cell.Marks(), q, cost, d) != cell.Marks() {
			return false
		}
		if after == cell.State() || cell.Swap(after) {
			return true
		}
		pause(attempt)
	}
	return false
}
