package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// store decides in Redis and knows nothing of outage policies.
type store struct {
	keys     keys
	carrier  *carrier
	maxBatch int
	refusals *refusals // nil: none are remembered

	timeout time.Duration // of a decision
	lanes   []*lane       // one, or a power of two of them in a Cluster

	remembered *atomic.Uint64 // decisions
	claimed    *sync.Map      // names of rules
}

// Within is the store with that deadline on every decision.
func (s *store) Within(timeout time.Duration) limiter.Store {
	other := *s
	other.timeout = timeout
	other.lanes = make([]*lane, len(s.lanes))
	for i := range other.lanes {
		other.lanes[i] = &lane{most: s.maxBatch, timeout: timeout, carry: s.carrier.carry}
	}
	return &other
}

// lane is the way to the keys with this tag.
func (s *store) lane(tag [tagSize]byte) *lane { return s.lanes[s.part(tag)] }

// part is which of the lanes that is. In a Cluster each has a range of slots, which is
// mostly on one node, so that a node that is gone holds up its own keys only.
func (s *store) part(tag [tagSize]byte) int {
	if len(s.lanes) == 1 {
		return 0
	}
	return int(slot(tag)) * len(s.lanes) / slots
}

// Part tells package failover what fails apart from what.
func (s *store) Part(c *limiter.Charge) int {
	if len(s.lanes) == 1 {
		return 0
	}
	return s.part(s.keys.tag(c.Key))
}

// Claim notes that a limiter counts under rule.
func (s *store) Claim(rule string) error {
	if _, taken := s.claimed.LoadOrStore(rule, struct{}{}); taken {
		return limiter.ErrClaimed
	}
	return nil
}

// Decide implements [limiter.Store].
func (s *store) Decide(ctx context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	if len(decisions) != len(charges) {
		return fmt.Errorf("%w: %d charges with room for %d decisions", limiter.ErrCharges, len(charges), len(decisions))
	}
	if err := ctx.Err(); err != nil || len(charges) == 0 {
		return err
	}
	var asked time.Duration
	if s.refusals != nil {
		if s.refusals.decide(charges, decisions) {
			s.remembered.Add(1)
			return nil
		}
		asked = s.refusals.clock()
	}
	if s.carrier.split && len(charges) > 1 {
		return s.decideApart(ctx, charges, decisions, asked)
	}
	g := s.send(take, charges)
	if err := s.receive(ctx, g, s.timeout); err != nil {
		return err
	}
	s.conclude(g, charges, decisions, asked)
	return nil
}

// send departs with charges that a script can reach together.
func (s *store) send(op op, charges []limiter.Charge) *group {
	g := newGroup(op)
	for i := range charges {
		c := &charges[i]
		tag := s.keys.tag(c.Key)
		if i == 0 {
			g.tag = tag
		}
		g.add(s.keys.name(tag, c.Quota), c)
	}
	s.lane(g.tag).depart(g)
	return g
}

// receive waits until g is answered. If it returns an error, g is no longer the caller's.
func (s *store) receive(ctx context.Context, g *group, timeout time.Duration) error {
	if !g.await(ctx, timeout) {
		if err := ctx.Err(); err != nil {
			return err
		}
		return fmt.Errorf("redisstore: Redis gave no answer in %v: %w", s.timeout, context.DeadlineExceeded)
	}
	if err := g.err; err != nil {
		g.free()
		return fmt.Errorf("redisstore: %w", err)
	}
	return nil
}

// conclude makes decisions of g's answer and ends g.
func (s *store) conclude(g *group, charges []limiter.Charge, decisions []limiter.Decision, asked time.Duration) (taken bool) {
	taken = g.answer.decide(charges, decisions)
	switch {
	case s.refusals == nil:
	case taken:
		s.refusals.forget(charges) // there is less left than was seen
	default:
		s.refusals.note(charges, g.answer, asked)
	}
	g.free()
	return taken
}

// GiveBack implements [limiter.Store].
func (s *store) GiveBack(ctx context.Context, charges []limiter.Charge) error {
	return s.change(ctx, giveBack, charges)
}

// Reset implements [limiter.Store].
func (s *store) Reset(ctx context.Context, charges []limiter.Charge) error {
	return s.change(ctx, reset, charges)
}

// change is for what needs no decision.
func (s *store) change(ctx context.Context, op op, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil || len(charges) == 0 {
		return err
	}
	if s.refusals != nil {
		defer s.refusals.forget(charges)
	}
	portions := []portion{{charges: charges}}
	if s.carrier.split {
		portions = byKey(charges)
	}
	until := time.Now().Add(s.timeout)
	for i := range portions {
		portions[i].group = s.send(op, portions[i].charges)
	}
	var errs []error
	for i := range portions {
		g := portions[i].group
		if err := s.receive(ctx, g, time.Until(until)); err != nil {
			errs = append(errs, err)
		} else {
			g.free()
		}
	}
	return errors.Join(errs...)
}
