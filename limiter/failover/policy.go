package failover

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// few is how many Local charges are decided without an allocation.
const few = 8

// applyPolicies decides on charges without the server. It reports whether their events may
// happen.
func (s *Store) applyPolicies(charges []limiter.Charge, decisions []limiter.Decision, cause error) (taken bool, _ error) {
	for i := range charges {
		if q := charges[i].Quota; q.OnOutage == limiter.FailClosed {
			return false, fmt.Errorf("%w, and rule %q is closed meanwhile: %w", ErrUnavailable, q.Rule(), cause)
		}
	}

	var chargeRoom [few]limiter.Charge
	var answerRoom [few]limiter.Decision
	local, answers := s.localShares(chargeRoom[:0], charges), answerRoom[:]
	if len(local) > few {
		answers = make([]limiter.Decision, len(local))
	}
	answers = answers[:len(local)]
	if err := s.local.Decide(context.Background(), local, answers); err != nil {
		return false, err
	}

	taken = true
	next := 0 // of local
	for i := range charges {
		d := &decisions[i]
		if q := charges[i].Quota; q.OnOutage == limiter.FailOpen {
			*d = limiter.Decision{Allowed: true, Receipt: limiter.Receipt{By: limiter.ByNobody}}
		} else {
			*d = answers[next]
			if share := local[next].Quota; share != q {
				d.Window = share.Window()
				if start, end := share.WindowAt(d.Receipt.At); end > start {
					d.Window = time.Duration(end-start) * time.Microsecond
				}
			}
			d.Receipt.By = limiter.ByShare
			next++
		}
		d.Degraded = true
		taken = taken && d.Allowed
	}
	return taken, nil
}

// countPolicies counts a batch that policies decided.
func (s *Store) countPolicies(charges []limiter.Charge, err error) {
	isLocal := slices.ContainsFunc(charges, func(c limiter.Charge) bool { return c.Quota.OnOutage != limiter.FailOpen })
	switch {
	case err != nil:
		s.counters.closed.Add(1)
	case isLocal:
		s.counters.local.Add(1)
	default:
		s.counters.open.Add(1)
	}
}

// localShares appends to room the charges of Local rules, as this process counts them.
func (s *Store) localShares(room, charges []limiter.Charge) []limiter.Charge {
	for _, c := range charges {
		if s.toShare(&c) {
			room = append(room, c)
		}
	}
	return room
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
