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

	advance: func(_ *Quota, s State, t int64) State {
		s.Last = t
		return s
	},
	take: func(q *Quota, s State, cost int64) (State, bool) {
		if s.Level+cost > q.capacity {
			return s, false
		}
		s.Level += cost
		return s, true
	},
	owe: func(_ *Quota, s State, n int64) State {
		s.Level += n
		return s
	},
	refund: func(_ *Quota, s State, n, at int64) State {
		if n == 0 || s.Level == 0 {
			return s
		}
		s.Level = max(0, s.Level-n)
		switch held := s.Last - at; {
		case at <= 0 || held < 0:
		case s.Prev == 0:
			s.Prev = max(1, held)
		default:
			s.Prev = max(1, s.Prev+(held-s.Prev)/heldWeight)
		}
		return s
	},
	look: func(q *Quota, s State) (used, reset int64) {
		return s.Level, s.holding()
	},
	// wait estimates: if N slots are each held for time d, one of them is released after d/N.
	wait: func(q *Quota, s State, cost int64) int64 {
		tooMany := s.Level + cost - q.capacity
		if tooMany <= 0 {
			return 0
		}
		return max(1, divUp(s.holding()*tooMany, s.Level))
	},
}

// heldWeight is the number of slots that the mean time is over.
const heldWeight = 8

// unknownHolding is the assumed time for which a slot is held, until one is released.
const unknownHolding = int64(time.Second / time.Microsecond)

func (s *State) holding() int64 {
	if s.Prev == 0 {
		return unknownHolding
	}
	return s.Prev
}

// NewConcurrency returns a quota of slots, which limits the events in flight at once to most, from 1 to
// 10^9. An event acquires its slots when it begins. When it ends, a settlement with the [Receipt] of
// its decision releases them, and the store learns how long the event took. RetryAfter and ResetAfter
// of such decisions are guesses: they assume that events take as long as others did.
//
// The store must be a [Checker]. Other stores would never release the slots of a process that died.
func NewConcurrency(rule, tier string, most int64) (*Quota, error) {
	if err := errors.Join(checkNames(rule, tier), checkMax(most)); err != nil {
		return nil, err
	}
	q := &Quota{rule: rule, tier: tier, limit: Limit{Events: most}, algorithm: &inFlight, capacity: most}
	q.salt = saltOf(rule, tier)
	return q, nil
}

// InFlight reports whether q counts slots, as a quota of [NewConcurrency] does.
func (q *Quota) InFlight() bool { return q.algorithm == &inFlight }
