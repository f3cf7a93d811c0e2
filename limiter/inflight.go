package limiter

import (
	"errors"
	"time"
)

// inFlight counts events that have begun and not ended: an event acquires slots, and a
// settlement releases them. Time releases nothing. Level is how many slots are held. Prev is
// how long a slot is held on average, in microseconds, or 0 if none was released yet.
var inFlight = algorithm{
	name: "in-flight",

	arithmetic: arithmetic{
		advance: func(_ *Quota, u usage, _ []Entry, t int64) (_ usage, _ []Entry, used int64) {
			u.at = t
			return u, nil, u.n
		},
		owe: func(_ *Quota, u usage, _ []Entry, n int64) (usage, []Entry) {
			u.n += n
			return u, nil
		},
		refund: func(_ *Quota, u usage, _ []Entry, n, at int64) (usage, []Entry) { return releaseSlots(u, n, at), nil },
		// wait estimates: if N slots are each held for time d, one of them is released after d/N.
		wait: func(q *Quota, u usage, _ []Entry, n int64) (fit, reset int64) {
			return max(1, divUp(u.holding()*(u.n+n-q.capacity), u.n)), u.holding()
		},
	},
}

// releaseSlots releases up to n slots that were acquired at a time, and updates the average. A time of 0 is unknown.
func releaseSlots(u usage, n, at int64) usage {
	if n == 0 || u.n == 0 {
		return u
	}
	u.n = max(0, u.n-n)
	switch held := u.at - at; {
	case at <= 0 || held < 0:
	case u.prev == 0:
		u.prev = max(1, held)
	default:
		u.prev = max(1, u.prev+(held-u.prev)/heldWeight)
	}
	return u
}

// heldWeight is the weight of the moving average of how long slots are held: about the last 8.
const heldWeight = 8

// unknownHolding is the assumed time for which a slot is held, until one is released.
const unknownHolding = int64(time.Second / time.Microsecond)

func (u usage) holding() int64 {
	if u.prev == 0 {
		return unknownHolding
	}
	return u.prev
}

// NewConcurrency returns a quota of slots, which limits the events in flight at once to most, from 1 to
// 10^9. An event acquires its slots when it begins. When it ends, a settlement with the [Receipt] of
// its decision releases them, and the store learns how long the event took. RetryAfter and ResetAfter
// of such decisions are guesses: they assume that events take as long as others did.
//
// The store must implement [Checker]. Other stores would never release the slots of a process that died.
func NewConcurrency(rule, tier string, most int64) (*Quota, error) {
	if err := errors.Join(checkNames(rule, tier, mostName+mostSuffix), checkMax(most)); err != nil {
		return nil, err
	}
	return slots(most).named(rule, tier), nil
}

// slots returns a quota of slots without a name, for a valid number.
func slots(most int64) *Quota {
	return &Quota{limit: Limit{Events: most}, algorithm: &inFlight, capacity: most, unit: 1}
}

// InFlight reports whether q counts slots, as a quota of [NewConcurrency] does.
func (q *Quota) InFlight() bool { return q.algorithm == &inFlight }
