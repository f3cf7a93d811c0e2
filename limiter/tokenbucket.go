package limiter

// The level of a bucket is its debt: an event adds unit, a microsecond pays refill
// back, and the bucket is full when another event would take it above capacity*unit.
// Nothing is divided on the way in, so nothing is rounded away.

const (
	// maxLevel bounds capacity*unit, so that it stays exact as a float64 in Lua.
	maxLevel = 1 << 52

	// maxRefill bounds refill, so that a time in units of 1/refill microseconds
	// fits a word for 17 years (see layout). It is fine enough that a rate that has
	// to be rounded is off by less than 1/1000 at ten million per second, and by
	// less than a millionth up to a thousand.
	maxRefill = 1 << 14
)

var tokenBucket = algorithm{
	name:    "token-bucket",
	aliases: []string{"gcra"},
	bursts:  true,
	layout:  bucketLayout,
	lua:     "tokenbucket.lua",
	compile: func(q *Quota) { compileBucket(q, q.limit.burst()) },

	advance: drainBucket,
	take:    fillBucket,
	refund:  emptyBucket,
	look:    lookBucket,
	wait:    waitBucket,
}

// compileBucket picks unit/refill, the microseconds an event costs: exactly if the
// reduced fraction is small enough, else rounded up, so never too fast.
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

func drainBucket(q *Quota, s State, t int64) State {
	if t-s.Last >= q.drain {
		return State{Last: t}
	}
	return State{Last: t, Level: max(0, s.Level-(t-s.Last)*q.refill)}
}

func fillBucket(q *Quota, s State, cost int64) (State, bool) {
	level := s.Level + cost*q.unit
	if level > q.capacity*q.unit {
		return s, false
	}
	s.Level = level
	return s, true
}

func emptyBucket(q *Quota, s State, n, at int64) State {
	back := n * q.unit
	if at != 0 {
		age := max(0, s.Last-at)
		if age >= q.drain {
			return s
		}
		back = max(0, back-age*q.refill) // the rest may have drained
	}
	s.Level = max(0, s.Level-back)
	return s
}

func lookBucket(q *Quota, s State) (remaining, reset int64) {
	return q.capacity - divUp(s.Level, q.unit), divUp(s.Level, q.refill)
}

func waitBucket(q *Quota, s State, cost int64) int64 {
	return divUp(max(0, s.Level-(q.capacity-cost)*q.unit), q.refill)
}

// divUp is a/b rounded up, for a not negative.
func divUp(a, b int64) int64 { return (a + b - 1) / b }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
