package failover

import (
	"context"
	"errors"

	"github.com/weirgo/weir/limiter"
)

// A half is the charges of a batch whose servers are up, or the charges whose servers are down.
type half struct {
	charges   []limiter.Charge
	decisions []limiter.Decision
	indexes   []int // in the batch
}

func (h *half) add(index int, c limiter.Charge) {
	h.charges = append(h.charges, c)
	h.decisions = append(h.decisions, limiter.Decision{})
	h.indexes = append(h.indexes, index)
}

func (h *half) putInto(decisions []limiter.Decision) {
	for i, index := range h.indexes {
		decisions[index] = h.decisions[i]
	}
}

func (h *half) isAllowed() bool {
	for i := range h.decisions {
		if !h.decisions[i].Allowed {
			return false
		}
	}
	return true
}

// looks returns h's charges with cost 0.
func (h *half) looks() []limiter.Charge {
	looks := make([]limiter.Charge, len(h.charges))
	for i, c := range h.charges {
		c.Cost = 0
		looks[i] = c
	}
	return looks
}

// split divides a batch into charges whose part is up and charges whose part is in down.
func (s *Store) split(charges []limiter.Charge, down uint64) (up, rest half) {
	for i, c := range charges {
		h := &up
		if down&(1<<s.partOf(&c)) != 0 {
			h = &rest
		}
		h.add(i, c)
	}
	return up, rest
}

// failedParts returns the parts at which a call failed: those that the error names, or all
// parts of the batch.
func (s *Store) failedParts(charges []limiter.Charge, err error) uint64 {
	all := s.partsOf(charges)
	var said interface{ Parts() uint64 }
	if errors.As(err, &said) {
		if named := said.Parts() & all; named != 0 {
			return named
		}
	}
	return all
}

// decideWithout decides on a batch without asking the parts in down. Policies decide on the
// charges of these parts, and the server on the other charges: all are taken or none. The local
// counters come first, because undoing what they took cannot fail.
func (s *Store) decideWithout(ctx context.Context, down uint64, charges []limiter.Charge, decisions []limiter.Decision, cause error) error {
	if s.partsOf(charges)&^down == 0 {
		_, err := s.applyPolicies(charges, decisions, cause)
		s.countPolicies(charges, err)
		return err
	}
	up, rest := s.split(charges, down)
	taken, err := s.applyPolicies(rest.charges, rest.decisions, cause)
	if err != nil {
		s.countPolicies(rest.charges, err)
		return err
	}
	ask := up.charges
	if !taken {
		ask = up.looks() // to describe them
	}
	failed, err := s.call(ctx, up.charges, func(ctx context.Context) error { return s.inner.Decide(ctx, ask, up.decisions) })
	if taken && (err != nil || !up.isAllowed()) {
		var undone []limiter.Settlement
		for i, c := range rest.charges {
			if c.Receipt = c.Quota.Undo(&rest.decisions[i]); s.toShare(&c) {
				undone = append(undone, limiter.Settlement{Charge: c})
			}
		}
		_ = s.local.Settle(context.Background(), undone)            // which cannot fail
		_, _ = s.applyPolicies(rest.looks(), rest.decisions, cause) // nor can this, which did not before
	}
	switch {
	case failed: // others are down too; at most as often as there are servers
		return s.decideWithout(ctx, down|s.failedParts(up.charges, err), charges, decisions, err)
	case err != nil:
		return err
	}
	up.putInto(decisions)
	rest.putInto(decisions)
	s.countPolicies(rest.charges, nil)
	return nil
}
