package leasestore

import (
	"context"
	"slices"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
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
func (s *Store) Decide(ctx context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
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
		parts[i].plan = s.planOf(charges[i].Quota)
		isExact = isExact && parts[i].plan == nil
	}
	if isExact {
		return s.exact.Decide(ctx, charges)
	}
	isDone := true
	for i := range parts {
		if p := &parts[i]; p.plan != nil {
			p.done, p.hand = s.spend(p.plan, &charges[i])
		}
		isDone = isDone && parts[i].done
	}
	if isDone {
		return nil
	}
	b := batch{s, charges, slices.Clone(parts)}
	return b.ask(ctx)
}

// A batch is charges of which at least one is leased.
type batch struct {
	*Store
	charges []limiter.Charge
	parts   []part
}

// ask has Redis decide on the parts that are not done. Then it ends all parts: units in hand that the
// batch took are spent, or put back.
func (b *batch) ask(ctx context.Context) error {
	taken, err := b.decideExactly(ctx)
	for i := range b.parts {
		p, c := &b.parts[i], &b.charges[i]
		d := &c.Decision
		switch {
		case p.plan == nil:
		case err != nil:
			b.asked(p.plan, c.Key, 0, p.hand, false, true)
		case !p.done:
			inHand := b.asked(p.plan, c.Key, c.Cost-p.hand.units, p.hand, taken && d.Allowed, d.Degraded)
			p.hand.date(p.plan, d)
			addHand(d, p.plan, inHand)
		case !taken:
			b.asked(p.plan, c.Key, 0, p.hand, false, false)
			b.look(p.plan, c)
		}
	}
	return err
}

// look describes a charge whose units were put back.
func (s *Store) look(p *plan, c *limiter.Charge) {
	sh, e := s.table.lock(s.hash(p, c.Key))
	defer sh.mu.Unlock()
	if e != nil && e.plan.isOf(p) {
		e.describe(p, s.now(), &c.Decision)
	}
}

// decideExactly has Redis decide on the parts that are not done, without the units in hand for them, and
// fills in their decisions.
func (b *batch) decideExactly(ctx context.Context) (taken bool, _ error) {
	var numbers []int
	var charges []limiter.Charge
	for i := range b.parts {
		if p := &b.parts[i]; !p.done {
			c := b.charges[i]
			c.Cost -= p.hand.units
			numbers, charges = append(numbers, i), append(charges, c)
		}
	}
	err := b.exact.Decide(ctx, charges)
	for i, n := range numbers {
		b.charges[n].Decision = charges[i].Decision
	}
	return err == nil && store.Taken(charges), err
}
