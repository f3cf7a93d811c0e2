package limiter

import (
	"math"
	"time"
)

// Never is the RetryAfter of a cost that is above what the limit ever allows at once.
const Never time.Duration = math.MaxInt64

// A Decision is the answer to "may this happen now?". Its fields mean the same
// for every algorithm and store. All durations are whole microseconds.
type Decision struct {
	// Allowed says whether the event may happen. A look, an event of cost 0, always may.
	Allowed bool

	// Degraded says that the store's server gave no answer, and the rule's [Outage]
	// policy decided.
	Degraded bool

	// Overflow says that the store had no room for the key, and decided on a counter that
	// such keys share. So a refusal says nothing about the key: others used up what there was.
	Overflow bool

	// Limit is the most units that can ever pass at once: Events, or Burst for
	// TokenBucket, or Burst+1 for LeakyBucket. Of a Local rule in an outage it is this
	// process's share. It is 0 if nothing was counted, as an Open rule decided in an outage:
	// then all that is known is Allowed and Degraded, and the other fields but Receipt are zero.
	Limit int64

	// Remaining is how many units could pass right now, after this decision. Of several limits
	// it is the least that one has, and Limit, NextAfter and ResetAfter are of that one.
	Remaining int64

	// RetryAfter is zero when Allowed. Otherwise the same cost is refused until
	// exactly then and admitted from then on, if nothing else comes in between.
	// It is Never for a cost above Limit, at least a microsecond for any other.
	RetryAfter time.Duration

	// NextAfter is when Remaining next grows, by a unit or more; zero when it is Limit.
	NextAfter time.Duration

	// ResetAfter is when Remaining is Limit again; zero when it is now.
	ResetAfter time.Duration

	// Delay is how long an allowed event has to wait for its turn in a LeakyBucket.
	// For a look it is how long an event would wait. Zero for the other algorithms.
	Delay time.Duration

	// Receipt says when and where the units were counted, for a refund or a settlement of them.
	Receipt Receipt

	// Window is [Quota.Window] of this process's share, if Limit is that of a share; else
	// zero.
	Window time.Duration
}

// A Receipt says when and where units were counted. The zero Receipt: it is not known.
type Receipt struct {
	// At is in microseconds since 1970 on the store's own clock, or another number by which the
	// store finds the units again: for a LeakyBucket it is when the queue ends behind the event.
	// It says nothing to another store, and is not to be compared with time.Now, as clocks
	// differ between Redis and a process. Zero: it is not known.
	At int64

	// By says who counted them.
	By Counter
}

// A Counter is who counted units. Its zero value: it is not known.
type Counter uint8

const (
	ByStore  Counter = iota + 1 // the store, as [Quota.Describe] says
	ByShare                     // this process, against its share of the limit ([FailLocal])
	ByNobody                    // nobody ([FailOpen])
)

// Counted reports whether the decision comes of a count. That of an Open rule in an outage
// does not, so what it has for Remaining is neither "none" nor "enough": it is unknown.
func (d *Decision) Counted() bool { return d.Limit > 0 }

// IsTighterThan tells which of two limits leaves less of an event that needs both: the one with fewer
// units left. If they are as many, it is the one that never has more, or the one that refuses, and
// that has them back later.
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

// Join makes d the decision on an event that needs another limit too: it is refused while either
// refuses, and the rest is of the tighter one.
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
