package failover

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// decideWithout decides on a batch without asking the parts in down. Policies decide on the
// charges of these parts, and the server on the other charges: all are taken or none. The local
// counters come first, because undoing what they took cannot fail.
func (s *Store) decideWithout(ctx context.Context, down uint64, charges []limiter.Charge, decisions []limiter.Decision, cause error) error {
	ours, up := s.split(down, charges)
	taken, counter, err := s.applyPolicies(ours, charges, decisions, cause)
	if err != nil || len(up) == 0 {
		counter.Add(1)
		return err
	}
	ask, answers := up, make([]limiter.Decision, len(up))
	if !taken {
		ask = looks(up) // to describe them
	}
	failed, err := s.call(ctx, up, func(ctx context.Context) error { return s.inner.Decide(ctx, ask, answers) })
	if taken && (err != nil || slices.ContainsFunc(answers, func(d limiter.Decision) bool { return !d.Allowed })) {
		s.undo(ours, charges, decisions)
		_, _, _ = s.applyPolicies(ours, looks(charges), decisions, cause) // which cannot fail, as it did not before
	}
	switch {
	case failed != 0: // others are down too; at most as often as there are servers
		return s.decideWithout(ctx, down|failed, charges, decisions, err)
	case err != nil:
		return err
	}
	for i := range charges {
		if ours>>i&1 == 0 {
			decisions[i], answers = answers[0], answers[1:]
		}
	}
	counter.Add(1)
	return nil
}

// undo refunds what the local counters took.
func (s *Store) undo(ours uint64, charges []limiter.Charge, decisions []limiter.Decision) {
	var undone []limiter.Settlement
	for i, c := range charges {
		if ours>>i&1 == 1 && s.toShare(&c) {
			c.Receipt = charges[i].Quota.Undo(&decisions[i])
			undone = append(undone, limiter.Settlement{Charge: c})
		}
	}
	_ = s.local.Settle(context.Background(), undone) // which cannot fail
}

// few is how many Local charges are decided without an allocation.
const few = 8

// applyPolicies decides on a set of charges without the server. It reports whether their events
// may happen, and which counter counts the batch.
func (s *Store) applyPolicies(ours uint64, charges []limiter.Charge, decisions []limiter.Decision, cause error) (taken bool, counter *atomic.Uint64, _ error) {
	var chargeRoom [few]limiter.Charge
	var answerRoom [few]limiter.Decision
	local := chargeRoom[:0]
	for i, c := range charges {
		switch q := c.Quota; {
		case ours>>i&1 == 0:
		case q.OnOutage == limiter.FailClosed:
			return false, &s.counters.closed, fmt.Errorf("%w, and rule %q is closed meanwhile: %w", ErrUnavailable, q.Rule(), cause)
		case s.toShare(&c):
			local = append(local, c)
		}
	}
	answers := slices.Grow(answerRoom[:0], len(local))[:len(local)]
	if err := s.local.Decide(context.Background(), local, answers); err != nil {
		return false, &s.counters.closed, err
	}

	taken, counter = true, &s.counters.open
	for i := range charges {
		d, q := &decisions[i], charges[i].Quota
		switch {
		case ours>>i&1 == 0:
			continue
		case q.OnOutage == limiter.FailOpen:
			*d = limiter.Decision{Allowed: true, Receipt: limiter.Receipt{By: limiter.ByNobody}}
		default:
			counter = &s.counters.local
			*d = answers[0]
			d.Receipt.By = limiter.ByShare
			if share := local[0].Quota; share != q {
				d.Window = share.Window()
				if start, end := share.WindowAt(d.Receipt.At); end > start {
					d.Window = time.Duration(end-start) * time.Microsecond
				}
			}
			local, answers = local[1:], answers[1:]
		}
		d.Degraded = true
		taken = taken && d.Allowed
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

// toShare turns c into the charge that this process counts, and reports whether it counts one
// at all.
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
