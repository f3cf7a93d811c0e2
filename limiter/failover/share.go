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
	divided, err := s.divided(q)
	if err != nil {
		return &limiter.Quota{} // which no store counts: a test holds that this does not happen
	}
	divided.Settles = q.Settles
	known, _ := s.shares.LoadOrStore(q, divided)
	return known.(*limiter.Quota)
}

func (s *Store) divided(q *limiter.Quota) (*limiter.Quota, error) {
	replicas := int64(s.options.Replicas)
	if q.InFlight() {
		return limiter.NewConcurrency(q.Rule(), q.Tier(), Stats{Replicas: s.options.Replicas}.ShareSlots(q.Capacity()))
	}
	return limiter.NewQuota(q.Rule(), q.Tier(), divide(q.Limit(), replicas))
}

// divide returns a share of l. All shares together admit no more than l in the long run, except
// that every share admits at least one event in 366 days.
func divide(l limiter.Limit, replicas int64) limiter.Limit {
	if replicas == 1 {
		return l
	}
	bucket := l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket
	if bucket {
		l.Burst = max(1, cmp.Or(l.Burst, l.Events)/replicas)
	}
	switch {
	case !bucket && l.Events >= replicas:
		l.Events /= replicas
	case !bucket:
		l = slow(l, 1, replicas)
	case l.Per <= longest/time.Duration(replicas):
		l.Per *= time.Duration(replicas)
	default:
		// As many events as there is time for, since the more, the less is rounded away.
		fit, _ := mulDiv(l.Events, longest.Microseconds(), l.Per.Microseconds()*replicas)
		l = slow(l, max(1, fit), replicas)
	}
	return l
}

// slow returns a limit of that many events in the time in which a share of l brings them, up to
// 366 days.
func slow(l limiter.Limit, events, replicas int64) limiter.Limit {
	per, rest := mulDiv(events, l.Per.Microseconds()*replicas, l.Events)
	if rest > 0 {
		per++
	}
	// A window of a calendar is one of so long.
	return limiter.Limit{
		Events: events, Per: time.Duration(min(per, longest.Microseconds())) * time.Microsecond,
		Burst: l.Burst, Algorithm: l.Algorithm,
	}
}

// mulDiv returns a*b/c and the remainder, for positive numbers. The quotient must fit.
func mulDiv(a, b, c int64) (quotient, rest int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(c))
	return int64(q), int64(r)
}
