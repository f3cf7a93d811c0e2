package limiter

import (
	"math"
	"slices"
)

// The level of a bucket is a debt: an event adds unit, and a microsecond pays back refill. An event is
// refused if it would raise the level above capacity*unit. A charge needs no division, so no rounding.

const (
	// maxLevel bounds capacity*unit, so that it stays exact as a float64 in Lua.
	maxLevel = 1 << 52

	// maxRefill bounds refill, so that a time in units of 1/refill microseconds fits a word for 15
	// years (see layout). A rate that must be rounded is off by less than 1/1000 at ten million per
	// second, and by less than a millionth up to a thousand per second.
	maxRefill = 1 << 14
)

var tokenBucket = algorithm{
	name:       "token-bucket",
	aliases:    []string{"gcra"},
	isBucket:   true,
	compile:    func(q *Quota) { compileBucket(q, q.limit.burst()) },
	arithmetic: bucket,
}

var bucket = arithmetic{
	advance: advanceBucket,
	owe: func(q *Quota, u usage, log []Entry, n int64) (usage, []Entry) {
		u.n = min(u.n+n*q.unit, 2*q.full)
		return u, log
	},
	refund: func(q *Quota, u usage, log []Entry, n, at int64) (usage, []Entry) {
		if q.queue {
			return leaveQueue(q, u, n, at), nil
		}
		return refundBucket(q, u, log, n, at)
	},
	wait: func(q *Quota, u usage, _ []Entry, n int64) (fit, reset int64) {
		return q.byRefill.up(max(0, u.n-(q.capacity-n)*q.unit)), q.byRefill.up(u.n)
	},
}

// compileBucket chooses unit/refill, the microseconds that an event costs: exactly, if the
// reduced fraction is small enough. Otherwise it rounds up, so the rate is never too high.
func compileBucket(q *Quota, capacity int64) {
	per, events := q.limit.Per.Microseconds(), q.limit.Events
	q.capacity = capacity
	divisor := gcd(per, events)
	q.unit, q.refill = per/divisor, events/divisor
	if q.refill > maxRefill || q.unit > maxLevel/capacity {
		q.refill = min(maxRefill, (maxLevel-capacity)/mulDivUp(capacity, per, events))
		q.unit = mulDivUp(q.refill, per, events)
	}
	q.drain = divUp(capacity*q.unit, q.refill)
}

// advanceBucket advances to t: the level is the used amount, so passing time lowers it.
func advanceBucket(q *Quota, u usage, log []Entry, t int64) (_ usage, _ []Entry, used int64) {
	switch passed := t - u.at; {
	case passed >= 2*q.drain: // the product could overflow
		u.n = 0
	case passed > 0:
		u.n = max(0, u.n-passed*q.refill)
	}
	u.at = t
	if log != nil {
		log = sink(log, u.n)
	}
	return u, log, q.byUnit.up(u.n)
}

// refundBucket refunds up to n units that were taken at a time. Units that have drained since are not refunded: the
// refund is at most the bucket's lowest level since that time.
func refundBucket(q *Quota, u usage, log []Entry, n, at int64) (usage, []Entry) {
	back := min(n*q.unit, u.n)
	switch {
	case at == 0:
	case q.hasLows():
		i := entriesUpTo(log, at) - 1
		if i < 0 {
			return u, log
		}
		back = min(back, log[i].N)
		log = lower(log, i, back)
	default: // the lowest level is unknown: assume that the bucket drained without a pause
		age := min(max(0, u.at-at), q.drain)
		back = max(0, min(back, n*q.unit-age*q.refill))
	}
	u.n -= back
	return u, sink(log, u.n)
}

// A low is a time and the bucket's lowest level since then. Lows are sorted by time, and so by level. For a time
// between two lows, the earlier low counts; before the first low, the level is 0. The functions below change lows in
// place.

// hasLows reports whether a bucket records its lowest levels, for refunds. A leaky bucket
// returns only the last units in its queue, so it does not need them.
func (q *Quota) hasLows() bool { return q.Settles && q.isBucket && !q.queue }

// mostLows is the most entries in State.Log for a TokenBucket with [Quota.Settles]. An entry is the
// bucket's lowest Level since the entry's time. If there would be more entries, some are left out; a
// refund may then be smaller than it could be, but never larger.
const mostLows = 8

// sink returns lows after the level has fallen to level.
func sink(lows []Entry, level int64) []Entry {
	if level == 0 {
		return nil
	}
	for i := range lows {
		if lows[i].N > level {
			lows[i].N = level
			return lows[:i+1]
		}
	}
	return lows
}

// addLow appends an entry with a higher level. If there are too many entries, it drops the entry whose
// neighbors are nearest to each other. Events of the same time share an entry, because nothing drains
// between them.
func addLow(lows []Entry, low Entry) []Entry {
	n := len(lows)
	if n > 0 && lows[n-1].At == low.At {
		n--
	}
	lows = append(lows[:n], low)
	if len(lows) <= mostLows {
		return lows
	}
	least, smallest := 0, int64(math.MaxInt64)
	for i := 1; i < len(lows); i++ {
		after := lows[min(i+1, len(lows)-1)]
		if gap := after.N - lows[i-1].N; gap < smallest {
			least, smallest = i, gap
		}
	}
	return slices.Delete(lows, least, least+1)
}

// lower returns lows after a refund of back units of level, which were taken at the time of entry i.
func lower(lows []Entry, i int, back int64) []Entry {
	kept, left := lows[:0], lows[i].N-back
	for j, low := range lows {
		if j > i {
			low.N -= back
		} else {
			low.N = min(low.N, left)
		}
		if low.N > 0 && (len(kept) == 0 || low.N > kept[len(kept)-1].N) {
			kept = append(kept, low)
		}
	}
	return kept
}

// divUp returns a/b rounded up, for a >= 0.
func divUp(a, b int64) int64 { return (a + b - 1) / b }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
