package leasestore

import (
	"context"
	"slices"

	"github.com/weirgo/weir/limiter"
)

// How charges are decided on together: first those that can be paid for with units in hand, and
// then the rest, by Redis.

// A part is what is known of one charge of a batch.
type part struct {
	plan *plan // nil: it is exact
	done bool  // decided with what was in hand
	hand hand
}

// Decide implements [limiter.Store]. While the process holds enough units, a charge takes one lock and
// one reading of the clock, and allocates nothing.
func (s *Store) Decide(ctx context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	if err := limiter.CheckDecide(charges, decisions); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var few [4]part
	parts := few[:]
	if len(charges) > len(few) {
		parts = make([]part, len(charges))
	}
	parts = parts[:len(charges)]
	isExact := true
	for i := range charges {
		p, err := s.planOf(charges[i].Quota)
		if err != nil {
			return err
		}
		parts[i].plan = p
		isExact = isExact && p == nil
	}
	if isExact {
		return s.exact.Decide(ctx, charges, decisions)
	}
	isDone := true
	for i := range parts {
		if p := &parts[i]; p.plan != nil {
			p.done, p.hand = s.spend(p.plan, &charges[i], &decisions[i])
		}
		isDone = isDone && parts[i].done
	}
	if isDone {
		return nil
	}
	b := batch{s, charges, decisions, slices.Clone(parts)}
	return b.ask(ctx)
}

// A batch is charges of which at least one is leased.
type batch struct {
	*Store
	charges   []limiter.Charge
	decisions []limiter.Decision
	parts     []part
}

// ask has Redis decide on the parts that are not done.
func (b *batch) ask(ctx context.Context) error {
	var rest []int
	for i := range b.parts {
		if !b.parts[i].done {
			rest = append(rest, i)
		}
	}
	taken, err := b.decideExactly(ctx, rest)
	if err != nil {
		b.release()
		return err
	}
	b.settleAsked(taken)
	if !taken {
		b.look()
	}
	return nil
}

// decideExactly has Redis decide on some charges, without the units in hand for them, and fills
// in their decisions.
func (b *batch) decideExactly(ctx context.Context, numbers []int) (taken bool, _ error) {
	charges := make([]limiter.Charge, len(numbers))
	decisions := make([]limiter.Decision, len(numbers))
	for i, n := range numbers {
		charges[i] = b.charges[n]
		charges[i].Cost -= b.parts[n].hand.units
	}
	err := b.exact.Decide(ctx, charges, decisions)
	taken = err == nil
	for i, n := range numbers {
		b.decisions[n] = decisions[i]
		taken = taken && decisions[i].Allowed
	}
	return taken, err
}

// settleAsked ends the parts that Redis was asked about: their units in hand are spent or put
// back.
func (b *batch) settleAsked(taken bool) {
	for i := range b.parts {
		p := &b.parts[i]
		if p.plan == nil || p.done {
			continue
		}
		cost := b.charges[i].Cost - p.hand.units
		p.hand.date(p.plan, &b.decisions[i])
		addHand(&b.decisions[i], p.plan, b.asked(p.plan, b.charges[i].Key, cost, p.hand, taken, b.decisions[i].Degraded))
	}
}

// release puts back the units that were taken out of hand.
func (b *batch) release() {
	for i := range b.parts {
		if p := &b.parts[i]; p.plan != nil {
			b.asked(p.plan, b.charges[i].Key, 0, p.hand, false, true)
			p.hand = hand{}
		}
	}
}

// look puts back the units that were spent, and describes their charges as looks.
func (b *batch) look() {
	for i := range b.parts {
		p := &b.parts[i]
		if p.plan == nil || !p.done {
			continue
		}
		b.asked(p.plan, b.charges[i].Key, 0, p.hand, false, false)
		p.hand = hand{}
		c := b.charges[i]
		c.Cost = 0
		if known, _ := b.spend(p.plan, &c, &b.decisions[i]); !known {
			// What is known is too old; what is in hand is there at least.
			b.decisions[i].Remaining = min(b.decisions[i].Limit, b.decisions[i].Remaining+b.charges[i].Cost)
		}
	}
}
