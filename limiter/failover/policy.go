package failover

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
)

// decideWithout decides on a batch: the policies on the charges that have a cause, and the inner store on
// the others. All are taken or none. The policies come first, because undoing what the local counters took
// cannot fail. If a call fails, the charges that its error is about have a cause, too.
func (s *Store) decideWithout(ctx context.Context, charges []limiter.Charge, causes []error) error {
	for {
		taken, counter, err := s.applyPolicies(charges, causes)
		if err != nil {
			s.counters.closed.Add(1)
			return err
		}
		up := others(charges, causes)
		if len(up.charges) > 0 {
			if !taken {
				up.charges = looks(up.charges) // to describe them
			}
			more, err := s.call(ctx, up.charges, func(ctx context.Context) error { return s.inner.Decide(ctx, up.charges) })
			if taken && (err != nil || !store.Taken(up.charges)) {
				s.undo(charges, causes)
				taken = false
			}
			if more != nil {
				for i, cause := range more {
					causes[up.indexes[i]] = cause
				}
				continue
			}
			if err != nil {
				return err
			}
			up.putBack(charges)
		}
		s.owe(charges, causes, taken)
		counter.Add(1)
		return nil
	}
}

// A subset is copies of some charges of a batch, and their indexes in the batch.
type subset struct {
	charges []limiter.Charge
	indexes []int
}

// others returns the charges without a cause.
func others(charges []limiter.Charge, causes []error) (others subset) {
	for i := range charges {
		if causes == nil || causes[i] == nil {
			others.charges, others.indexes = append(others.charges, charges[i]), append(others.indexes, i)
		}
	}
	return others
}

// putBack copies the decisions on o's charges to the batch.
func (o subset) putBack(charges []limiter.Charge) {
	for i, index := range o.indexes {
		charges[index].Decision = o.charges[i].Decision
	}
}

// owe notes what the local counters took, or which of them refused.
func (s *Store) owe(charges []limiter.Charge, causes []error, taken bool) {
	for i, c := range charges {
		switch {
		case causes[i] == nil || !s.toShare(&c):
		case taken && c.Decision.Allowed:
			s.debts.add(&charges[i], debt{units: c.Cost, share: c.Quota, since: time.Now()})
		case !c.Decision.Allowed:
			s.debts.add(&charges[i], debt{isPressed: true, share: c.Quota})
		}
	}
}

// undo refunds what the local counters took, and describes those charges as looks.
func (s *Store) undo(charges []limiter.Charge, causes []error) {
	var undone []limiter.Settlement
	for i, c := range charges {
		if causes[i] != nil && c.Decision.Allowed && s.toShare(&c) {
			c.Decision.Receipt = charges[i].Quota.Undo(&c.Decision)
			undone = append(undone, limiter.Settlement{Charge: c})
		}
	}
	_ = s.local.Settle(context.Background(), undone) // which cannot fail
	seen := looks(charges)
	_, _, _ = s.applyPolicies(seen, causes) // which cannot fail, as it did not before
	for i := range seen {
		if causes[i] != nil && charges[i].Decision.Allowed {
			charges[i].Decision = seen[i].Decision
		}
	}
}

// applyPolicies decides on the charges that have a cause, without the server. It reports whether their
// events may happen, and which counter counts the batch.
func (s *Store) applyPolicies(charges []limiter.Charge, causes []error) (taken bool, counter *atomic.Uint64, _ error) {
	const few = 8 // so many Local charges are decided without an allocation
	var room [few]limiter.Charge
	local := room[:0]
	for i, c := range charges {
		switch q := c.Quota; {
		case causes[i] == nil:
		case q.OnOutage == limiter.FailClosed && c.Optional: // it refuses nobody
		case q.OnOutage == limiter.FailClosed:
			return false, nil, fmt.Errorf("%w, and rule %q is closed meanwhile: %w", ErrUnavailable, q.Rule(), causes[i])
		case s.toShare(&c):
			local = append(local, c)
		}
	}
	if err := s.local.Decide(context.Background(), local); err != nil {
		return false, nil, err
	}
	taken, counter = true, &s.counters.open
	for i := range charges {
		d, q := &charges[i].Decision, charges[i].Quota
		switch {
		case causes[i] == nil:
			continue
		case q.OnOutage == limiter.FailOpen:
			*d = limiter.Decision{Allowed: true, Receipt: limiter.Receipt{By: limiter.ByNobody}}
		case q.OnOutage == limiter.FailClosed:
			*d = limiter.Decision{}
		default:
			counter = &s.counters.local
			*d = local[0].Decision
			d.Receipt.By = limiter.ByShare
			if share := local[0].Quota; share != q {
				start, end := share.WindowAt(d.Receipt.At) // both are 0 for buckets and logs
				d.Window = cmp.Or(time.Duration(end-start)*time.Microsecond, share.Window())
			}
			local = local[1:]
		}
		d.Degraded = true
		taken = taken && (d.Allowed || charges[i].Optional)
	}
	return taken, counter, nil
}

// looks returns charges with cost 0.
func looks(charges []limiter.Charge) []limiter.Charge {
	looks := slices.Clone(charges)
	for i := range looks {
		looks[i].Cost = 0
	}
	return looks
}

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

const longest = 366 * 24 * time.Hour // the longest period of a limit

// mostShares bounds the shares that are kept. A program makes any number of quotas if its clients have limits of their
// own.
const mostShares = 10_000

// share returns the quota that Local counts against, under the same names. A small share is exact, even
// if the whole limit is not: otherwise each process would admit the extra unit that a counter admits
// around a boundary. Each limit of a rule has its own share, because different periods can become equal.
func (s *Store) share(q *limiter.Quota) *limiter.Quota {
	if s.options.Replicas == 1 {
		return q
	}
	if known, ok := s.shares.Load(q); ok {
		return known.(*limiter.Quota)
	}
	var divided *limiter.Quota // not nil: each share is a valid limit
	if replicas := s.options.Replicas; q.InFlight() {
		divided, _ = limiter.NewConcurrency(q.Rule(), q.Tier(), Stats{Replicas: replicas}.ShareSlots(q.Capacity()))
	} else {
		divided, _ = limiter.NewQuota(q.Rule(), q.Tier(), divide(q.Limit(), int64(replicas)))
	}
	divided.Settles = q.Settles
	if s.sharesKept.Add(1) > mostShares { // made anew, they find their counters by name
		s.shares.Clear()
		s.sharesKept.Store(1)
	}
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
