package failover

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// few is how many Local charges are decided without allocating.
const few = 8

// applyPolicies decides on charges without the server. taken reports whether their events may happen.
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

// localCost is what c takes of its share: no more than that has, where c is a reservation that is
// to be settled, as else it could never be taken in an outage.
func (s *Store) localCost(c *limiter.Charge) int64 {
	if !c.Quota.Settles || c.Cost > c.Quota.Capacity() {
		return c.Cost
	}
	return min(c.Cost, s.share(c.Quota).Capacity())
}

// countPolicies counts a batch that was decided by policy.
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

// localShares appends to room what the charges of Local rules are in this process.
func (s *Store) localShares(room, charges []limiter.Charge) []limiter.Charge {
	for _, c := range charges {
		if c.Quota.OnOutage == limiter.FailOpen || c.Quota.OnOutage == limiter.FailClosed {
			continue
		}
		c.Cost = s.localCost(&c)
		c.Quota = s.share(c.Quota)
		room = append(room, c)
	}
	return room
}
