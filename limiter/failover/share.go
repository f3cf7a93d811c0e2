package failover

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/weirgo/weir/limiter"
)

// toShare turns c into the charge that this process counts, and reports whether it counts one at all.
func (s *Store) toShare(c *limiter.Charge) bool {
	if c.Quota.OnOutage == limiter.FailOpen || c.Quota.OnOutage == limiter.FailClosed {
		return false
	}
	share := s.share(c.Quota)
	// A reservation takes no more than a share has: else it could never be taken in an outage.
	if c.Quota.Settles && c.Cost <= c.Quota.Capacity() {
		c.Cost = min(c.Cost, share.Capacity())
	}
	c.Quota = share
	return true
}

// mostShares bounds the shares that are kept. A program makes any number of quotas if its clients have limits of their
// own.
const mostShares = 10_000

// share returns the quota that FailLocal counts against, under the same names. Each limit of a rule has its
// own share, because different periods can become equal.
func (s *Store) share(q *limiter.Quota) *limiter.Quota {
	if s.options.Replicas == 1 {
		return q
	}
	s.shares.Lock()
	defer s.shares.Unlock()
	share := s.shares.of[q]
	if share == nil {
		if stats := (Stats{Replicas: s.options.Replicas}); q.InFlight() {
			share, _ = limiter.NewConcurrency(q.Rule(), q.Tier(), stats.ShareSlots(q.Capacity()))
		} else {
			share, _ = limiter.NewQuota(q.Rule(), q.Tier(), stats.Share(q.Limit())) // which is valid
		}
		share.Settles = q.Settles
		if len(s.shares.of) >= mostShares { // made anew, they find their counters by name
			clear(s.shares.of)
		}
		s.shares.of[q] = share
	}
	return share
}

const longest = 366 * 24 * time.Hour // the longest period of a limit

// divide returns a share of l. All shares together admit no more than l in the long run, except
// that every share admits at least one event in 366 days.
func divide(l limiter.Limit, replicas int64) limiter.Limit {
	if replicas == 1 {
		return l
	}
	most, whole := longest.Microseconds(), l.Per.Microseconds()*replicas // a share admits l.Events in whole
	events := int64(1)
	switch {
	case l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket:
		l.Burst = max(1, cmp.Or(l.Burst, l.Events)/replicas)
		fit, _ := mulDiv(l.Events, min(most, whole), whole)
		events = max(1, fit) // as many as the longest period allows: rounding then loses least
	case l.Events >= replicas:
		l.Events /= replicas
		return l
	}
	per, rest := mulDiv(events, whole, l.Events)
	if rest > 0 {
		per++
	}
	l.Per = time.Duration(min(per, most)) * time.Microsecond
	// Of a calendar limit this is a fixed window of the same length.
	return limiter.Limit{Events: events, Per: l.Per, Burst: l.Burst, Algorithm: l.Algorithm}
}

// mulDiv returns a*b/c and the remainder, for positive numbers. The quotient must fit.
func mulDiv(a, b, c int64) (quotient, rest int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(c))
	return int64(q), int64(r)
}
