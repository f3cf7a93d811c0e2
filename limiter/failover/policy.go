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

// decideWithout decides on a batch without asking the parts in down. Policies decide on the
// charges of these parts, and the server on the other charges: all are taken or none. The local
// counters come first, because undoing what they took cannot fail.
func (s *Store) decideWithout(ctx context.Context, down uint64, charges []limiter.Charge, cause error) error {
	ours, up := s.split(down, charges)
	taken, counter, err := s.applyPolicies(ours, charges, cause)
	if err != nil || len(up) == 0 {
		if err == nil {
			s.owe(ours, charges, taken)
		}
		counter.Add(1)
		return err
	}
	if !taken {
		up = looks(up) // to describe them
	}
	failed, err := s.call(ctx, up, func(ctx context.Context) error { return s.inner.Decide(ctx, up) })
	if taken && (err != nil || !store.Taken(up)) {
		s.undo(ours, charges)
		seen := looks(charges)
		_, _, _ = s.applyPolicies(ours, seen, cause) // which cannot fail, as it did not before
		for i := range seen {
			if charges[i].Decision.Allowed {
				charges[i].Decision = seen[i].Decision
			}
		}
		taken = false
	}
	switch {
	case failed != 0: // others are down too; at most as often as there are servers
		return s.decideWithout(ctx, down|failed, charges, err)
	case err != nil:
		return err
	}
	for i := range charges {
		if ours>>i&1 == 0 {
			charges[i].Decision, up = up[0].Decision, up[1:]
		}
	}
	s.owe(ours, charges, taken)
	counter.Add(1)
	return nil
}

// owe notes what the local counters took, or which of them refused.
func (s *Store) owe(ours uint64, charges []limiter.Charge, taken bool) {
	for i, c := range charges {
		switch {
		case ours>>i&1 == 0 || !s.toShare(&c):
		case taken && c.Decision.Allowed:
			s.debts.add(&charges[i], debt{units: c.Cost, share: c.Quota, since: time.Now()})
		case !c.Decision.Allowed:
			s.debts.add(&charges[i], debt{isPressed: true, share: c.Quota})
		}
	}
}

// undo refunds what the local counters took.
func (s *Store) undo(ours uint64, charges []limiter.Charge) {
	var undone []limiter.Settlement
	for i, c := range charges {
		if ours>>i&1 == 1 && c.Decision.Allowed && s.toShare(&c) {
			c.Decision.Receipt = charges[i].Quota.Undo(&c.Decision)
			undone = append(undone, limiter.Settlement{Charge: c})
		}
	}
	_ = s.local.Settle(context.Background(), undone) // which cannot fail
}

// applyPolicies decides on a set of charges without the server. It reports whether their events
// may happen, and which counter counts the batch.
func (s *Store) applyPolicies(
	ours uint64, charges []limiter.Charge, cause error,
) (taken bool, counter *atomic.Uint64, _ error) {
	const few = 8 // so many Local charges are decided without an allocation
	var room [few]limiter.Charge
	local := room[:0]
	for i, c := range charges {
		switch q := c.Quota; {
		case ours>>i&1 == 0:
		case q.OnOutage == limiter.FailClosed && c.Optional: // it refuses nobody
		case q.OnOutage == limiter.FailClosed:
			err := fmt.Errorf("%w, and rule %q is closed meanwhile: %w", ErrUnavailable, q.Rule(), cause)
			return false, &s.counters.closed, err
		case s.toShare(&c):
			local = append(local, c)
		}
	}
	if err := s.local.Decide(context.Background(), local); err != nil {
		return false, &s.counters.closed, err
	}

	taken, counter = true, &s.counters.open
	for i := range charges {
		d, q := &charges[i].Decision, charges[i].Quota
		switch {
		case ours>>i&1 == 0:
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

// split returns the set of charges whose counters are on these parts, and the other charges. The set
// has a bit for each charge, as [limiter.MaxCharges] is 64.
func (s *Store) split(parts uint64, charges []limiter.Charge) (set uint64, others []limiter.Charge) {
	for i := range charges {
		if parts>>s.partOf(&charges[i])&1 == 1 {
			set |= 1 << i
		} else {
			others = append(others, charges[i])
		}
	}
	return set, others
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
