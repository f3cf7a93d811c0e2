package failover

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/weirgo/weir/limiter"
)

// longest is the longest period of a limit.
const longest = 366 * 24 * time.Hour

// share returns the quota that Local counts against, under the same names. A small share is
// exact, even if the whole limit is not: otherwise each process would admit the extra unit that
// a counter admits around a boundary. Each limit of a rule has a share of its own, because
// different periods can become equal.
func (s *Store) share(q *limiter.Quota) *limiter.Quota {
	if s.options.Replicas == 1 {
		return q
	}
	if known, ok := s.shares.Load(q); ok {
		return known.(*limiter.Quota)
	}
	var divided *limiter.Quota
	var err error
	if replicas := s.options.Replicas; q.InFlight() {
		divided, err = limiter.NewConcurrency(q.Rule(), q.Tier(), Stats{Replicas: replicas}.ShareSlots(q.Capacity()))
	} else {
		divided, err = limiter.NewQuota(q.Rule(), q.Tier(), divide(q.Limit(), int64(replicas)))
	}
	if err != nil {
		return &limiter.Quota{} // which no store counts: a test holds that this does not happen
	}
	divided.Settles = q.Settles
	known, _ := s.shares.LoadOrStore(q, divided)
	return known.(*limiter.Quota)
}

// divide returns a share of l. All shares together admit no more than l in the long run, except
// that every share admits at least one event in 366 days.
func divide(l limiter.Limit, replicas int64) limiter.Limit {
	if replicas == 1 {
		return l
	}
	events := int64(1)
	switch l.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		l.Burst = max(1, cmp.Or(l.Burst, l.Events)/replicas)
		if l.Per <= longest/time.Duration(replicas) {
			l.Per *= time.Duration(replicas)
			return l
		}
		// As many events as there is time for, since the more, the less is rounded away.
		fit, _ := mulDiv(l.Events, longest.Microseconds(), l.Per.Microseconds()*replicas)
		events = max(1, fit)
	default:
		if l.Events >= replicas {
			l.Events /= replicas
			return l
		}
	}
	// The time in which a share of l brings these events. A window of a calendar is one of so long.
	per, rest := mulDiv(events, l.Per.Microseconds()*replicas, l.Events)
	if rest > 0 {
		per++
	}
	l.Per = time.Duration(min(per, longest.Microseconds())) * time.Microsecond
	return limiter.Limit{Events: events, Per: l.Per, Burst: l.Burst, Algorithm: l.Algorithm}
}

// mulDiv returns a*b/c and the remainder, for positive numbers. The quotient must fit.
func mulDiv(a, b, c int64) (quotient, rest int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(c))
	return int64(q), int64(r)
}
