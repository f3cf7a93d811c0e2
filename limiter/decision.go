package limiter

import (
	"math"
	"time"
)

// Never is the RetryAfter of a decision whose cost is more than the limit ever allows at once.
const Never time.Duration = math.MaxInt64

// A Decision is the answer to "may this happen now?". Its fields mean the same
// for every algorithm and store. All durations are whole microseconds.
type Decision struct {
	// Allowed says whether the event may happen. An event of cost 0 is always allowed.
	Allowed bool

	// Degraded says that the store's server gave no answer and the rule's [Outage] policy
	// decided.
	Degraded bool

	// Overflow says that the store had no room for the key and decided on a counter that several such
	// keys share. A refusal then says nothing about this key: other keys may have used the limit.
	Overflow bool

	// Limit is the most units that can ever pass at once: Events, or Burst for TokenBucket, or
	// Burst+1 for LeakyBucket. In an outage it is this process's share for [FailLocal], and 0
	// for [FailOpen]. If Limit is 0, nothing was counted, and all fields but
	// Allowed, Degraded and Receipt are zero.
	Limit int64

	// Remaining is how many units could pass right now, after this decision. If a rule has
	// several limits, the limit with the fewest units left gives Remaining, Limit, NextAfter
	// and ResetAfter.
	Remaining int64

	// RetryAfter is zero if Allowed. Otherwise it is exactly how long the same cost is refused; after
	// that the cost is admitted, if no other event comes first. It is Never for a cost above Limit, and
	// at least a microsecond for any other.
	RetryAfter time.Duration

	// NextAfter is when Remaining next grows, by one unit or more. It is zero if Remaining is
	// Limit.
	NextAfter time.Duration

	// ResetAfter is when Remaining is Limit again. It is zero if that is now.
	ResetAfter time.Duration

	// Delay is how long an allowed event must wait for its turn in a LeakyBucket. For an event of cost
	// 0, which takes nothing, it is how long another event would wait. It is zero for other algorithms.
	Delay time.Duration

	// Receipt says when and where the units were counted. A refund or a settlement needs it.
	Receipt Receipt

	// If the decision was by this process's share of the limit ([ByShare]), Window is the period of the
	// share. Otherwise it is zero.
	Window time.Duration
}

// A Receipt says when and where units were counted. The zero Receipt means that this is not
// known.
type Receipt struct {
	// At is when the units were counted, in microseconds since 1970 on the store's own clock, or
	// another number by which the store finds the units again. For a LeakyBucket it is when this event
	// and all events before it have left the queue. No other store can use it. Do not compare it with
	// time.Now: clocks of Redis and of processes differ. Zero means that it is not known.
	At int64

	// By says who counted the units.
	By Counter
}

// A Counter says who counted units. The zero value means that this is not known.
type Counter uint8

const (
	ByStore  Counter = iota + 1 // decided by the store
	ByShare                     // decided by this process, from its share of the limit ([FailLocal])
	ByNobody                    // decided by nobody: admitted uncounted ([FailOpen])
	ByMemory                    // refused by this process, which remembers that the store refused the key
)

// Counted reports whether the units were counted. They were not if the server is down and the rule is
// [FailOpen]. Remaining is then unknown: neither "none" nor "enough".
func (d *Decision) Counted() bool { return d.Limit > 0 }

// IsTighterThan reports whether d's limit is tighter than other's: whether it has fewer units left. If
// both have the same number left, the smaller limit is tighter. If the limits are equal too, the limit
// that refuses is tighter, and after that the limit whose units return later.
func (d *Decision) IsTighterThan(other *Decision) bool {
	switch {
	case d.Counted() != other.Counted():
		return d.Counted()
	case d.Remaining != other.Remaining:
		return d.Remaining < other.Remaining
	case d.isWhole() != other.isWhole():
		return d.isWhole()
	case d.Allowed != other.Allowed:
		return !d.Allowed
	case d.RetryAfter != other.RetryAfter:
		return d.RetryAfter > other.RetryAfter
	case d.NextAfter != other.NextAfter:
		return d.NextAfter > other.NextAfter
	}
	return d.ResetAfter > other.ResetAfter
}

func (d *Decision) isWhole() bool { return d.Remaining == d.Limit }

// Join combines d with the decision of another limit on the same event. The event is refused if either
// limit refuses it. Other fields come from the tighter limit.
func (d *Decision) Join(other *Decision) {
	joined := *d
	if other.IsTighterThan(d) {
		joined = *other
	}
	joined.Allowed = d.Allowed && other.Allowed
	joined.Degraded = d.Degraded || other.Degraded
	joined.RetryAfter = max(d.RetryAfter, other.RetryAfter)
	if d.Remaining == other.Remaining && !joined.isWhole() {
		joined.NextAfter = max(d.NextAfter, other.NextAfter)
	}
	*d = joined
}
