package leasestore

import (
	"context"

	"github.com/weirgo/weir/limiter"
)

// How charges are decided on together: the Synchronized ones first, which cost nothing to
// undo, then those that can be paid for with units in hand, and then the rest, by Redis.

// A part is what decideAll knows of one charge.
type part struct {
	plan    *plan // nil: it is exact
	verdict verdict
	hand    hand
}

// decideAll implements [limiter.Store.Decide] for any batch.
func (s *Store) decideAll(ctx context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
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
	modes := [3]int{}
	for i := range charges {
		p := s.planOf(charges[i].Quota)
		if p == nil {
			modes[Exact]++
			continue
		}
		if p.err != nil {
			return p.err
		}
		parts[i].plan = p
		modes[p.mode]++
	}
	switch len(charges) {
	case modes[Exact]:
		return s.exact.Decide(ctx, charges, decisions)
	case modes[Synchronized]:
		return s.synced.Decide(ctx, charges, decisions)
	}
	b := batch{s, charges, decisions, parts}
	return b.decide(ctx)
}

// A batch is charges of which some are Leased, or of several modes.
type batch struct {
	*Store
	charges   []limiter.Charge
	decisions []limiter.Decision
	parts     []part
}

func (b *batch) decide(ctx context.Context) error {
	counted := b.pick(func(p *part) bool { return p.plan != nil && p.plan.mode == Synchronized })
	if len(counted) > 0 {
		taken, err := b.decideIn(ctx, b.synced, counted, true)
		if err != nil {
			return err
		}
		if !taken {
			return b.refuse(ctx, nil)
		}
	}

	isRefused, rest := false, b.pick(func(p *part) bool { return p.plan == nil })
	for i := range b.parts {
		p := &b.parts[i]
		if p.plan == nil || p.plan.mode != Leased {
			continue
		}
		p.verdict, p.hand = b.spend(p.plan, &b.charges[i], &b.decisions[i])
		switch p.verdict {
		case refused:
			isRefused = true
		case ask:
			rest = append(rest, i)
		}
	}
	if isRefused {
		return b.refuse(ctx, counted)
	}
	if len(rest) == 0 {
		return nil
	}
	taken, err := b.decideIn(ctx, b.exact, rest, true)
	if err != nil {
		b.release()
		b.refund(counted)
		return err
	}
	if taken {
		b.settleAsked(true)
		return nil
	}
	b.settleAsked(false)
	b.look()
	return b.lookCounted(ctx, counted)
}

// pick is the numbers of the parts that f holds for.
func (b *batch) pick(f func(*part) bool) (numbers []int) {
	for i := range b.parts {
		if f(&b.parts[i]) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// decideIn has a store decide on some of the charges, less what was in hand for them, or
// look at them, and fills in their decisions.
func (b *batch) decideIn(ctx context.Context, store limiter.Store, numbers []int, take bool) (taken bool, _ error) {
	charges := make([]limiter.Charge, len(numbers))
	decisions := make([]limiter.Decision, len(numbers))
	for i, n := range numbers {
		charges[i] = b.charges[n]
		charges[i].Cost -= b.parts[n].hand.units
		if !take {
			charges[i].Cost = 0
		}
	}
	err := store.Decide(ctx, charges, decisions)
	taken = err == nil
	for i, n := range numbers {
		b.decisions[n] = decisions[i]
		taken = taken && decisions[i].Allowed
	}
	return taken, err
}

// settleAsked ends what Redis was asked about: what was in hand is spent or put back.
func (b *batch) settleAsked(taken bool) {
	for i := range b.parts {
		p := &b.parts[i]
		if p.plan == nil || p.plan.mode != Leased || p.verdict != ask {
			continue
		}
		cost := b.charges[i].Cost - p.hand.units
		p.hand.date(p.plan, &b.decisions[i])
		addHand(&b.decisions[i], p.plan, b.asked(p.plan, b.charges[i].Key, cost, p.hand, taken, b.decisions[i].Degraded))
	}
}

// release puts back what was taken out of hand.
func (b *batch) release() {
	for i := range b.parts {
		if p := &b.parts[i]; p.hand.units > 0 {
			b.asked(p.plan, b.charges[i].Key, 0, p.hand, false, false)
			p.hand = hand{}
		}
	}
}

// look puts back what was spent, and describes it as looked at.
func (b *batch) look() {
	for i := range b.parts {
		p := &b.parts[i]
		if p.plan == nil || p.plan.mode != Leased || p.verdict != allowed {
			continue
		}
		b.asked(p.plan, b.charges[i].Key, 0, p.hand, false, false)
		p.hand = hand{}
		c := b.charges[i]
		c.Cost = 0
		if v, _ := b.spend(p.plan, &c, &b.decisions[i]); v == ask {
			// What is known is too old; what is in hand is there at least.
			b.decisions[i].Remaining = min(b.decisions[i].Limit, b.decisions[i].Remaining+b.charges[i].Cost)
		}
	}
}

// refund undoes what counted charges took.
func (b *batch) refund(counted []int) {
	if len(counted) == 0 {
		return
	}
	charges := make([]limiter.Charge, len(counted))
	for i, n := range counted {
		charges[i] = b.charges[n]
		charges[i].At = charges[i].Quota.UndoAt(&b.decisions[n])
	}
	_ = b.synced.Refund(context.Background(), charges) // what cannot be given back stays used
}

// lookCounted is refund, and describes the charges as looked at.
func (b *batch) lookCounted(ctx context.Context, counted []int) error {
	b.refund(counted)
	if len(counted) == 0 {
		return nil
	}
	_, err := b.decideIn(ctx, b.synced, counted, false)
	return err
}

// refuse ends a batch that was refused here: charges that stand in the way are told so, all
// others are looked at. Those counted had been taken.
func (b *batch) refuse(ctx context.Context, taken []int) error {
	for i := range b.parts {
		if p := &b.parts[i]; p.verdict == ask && p.hand.units > 0 {
			b.asked(p.plan, b.charges[i].Key, 0, p.hand, false, false)
			p.hand = hand{}
		}
	}
	b.look()
	if err := b.lookCounted(ctx, taken); err != nil {
		return err
	}
	unknown := b.pick(func(p *part) bool {
		return p.plan == nil || p.plan.mode == Leased && p.verdict == ask
	})
	if len(unknown) == 0 {
		return nil
	}
	if _, err := b.decideIn(ctx, b.exact, unknown, false); err != nil {
		return err
	}
	for _, n := range unknown {
		inHand := int64(0)
		if p := &b.parts[n]; p.plan != nil {
			inHand = b.asked(p.plan, b.charges[n].Key, 0, hand{}, false, false)
			addHand(&b.decisions[n], p.plan, inHand)
		}
		if err := b.blame(ctx, n, inHand); err != nil {
			return err
		}
	}
	return nil
}

// blame finds out of a charge that was looked at whether it would stand in the way, with so
// many units in hand.
func (b *batch) blame(ctx context.Context, n int, inHand int64) error {
	c, d := b.charges[n], &b.decisions[n]
	switch {
	case c.Cost <= d.Remaining, !d.Counted():
		return nil
	case c.Cost > d.Limit:
		d.Allowed, d.RetryAfter = false, limiter.Never
	case c.Cost == d.Remaining+1:
		d.Allowed, d.RetryAfter = false, d.NextAfter
	default:
		c.Cost -= inHand
		var one [1]limiter.Decision
		if err := b.exact.Decide(ctx, []limiter.Charge{c}, one[:]); err != nil {
			return err
		}
		if one[0].Allowed { // it has become free since
			c.At = c.Quota.UndoAt(&one[0])
			return b.exact.Refund(context.Background(), []limiter.Charge{c})
		}
		*d = one[0]
		addHand(d, b.parts[n].plan, inHand)
	}
	return nil
}
