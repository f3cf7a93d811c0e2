package leasestore

import (
	"context"

	"github.com/weirgo/weir/limiter"
)

// How charges are decided on together: first those that can be paid for with units in hand, and
// then the rest, by Redis.

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
	isExact := true
	for i := range charges {
		p := s.planOf(charges[i].Quota)
		if p == nil {
			continue
		}
		if p.err != nil {
			return p.err
		}
		parts[i].plan, isExact = p, false
	}
	if isExact {
		return s.exact.Decide(ctx, charges, decisions)
	}
	b := batch{s, charges, decisions, parts}
	return b.decide(ctx)
}

// A batch is charges of which some are leased.
type batch struct {
	*Store
	charges   []limiter.Charge
	decisions []limiter.Decision
	parts     []part
}

func (b *batch) decide(ctx context.Context) error {
	isRefused := false
	for i := range b.parts {
		p := &b.parts[i]
		if p.plan == nil {
			continue
		}
		p.verdict, p.hand = b.spend(p.plan, &b.charges[i], &b.decisions[i])
		isRefused = isRefused || p.verdict == refused
	}
	if isRefused {
		return b.refuse(ctx)
	}
	rest := b.undecided()
	if len(rest) == 0 {
		return nil
	}
	taken, err := b.decideExactly(ctx, rest, true)
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

// undecided is the numbers of the parts that only Redis can decide on.
func (b *batch) undecided() (numbers []int) {
	for i := range b.parts {
		if p := &b.parts[i]; p.plan == nil || p.verdict == ask {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// decideExactly has Redis decide on some of the charges, less what was in hand for them, or
// look at them, and fills in their decisions.
func (b *batch) decideExactly(ctx context.Context, numbers []int, take bool) (taken bool, _ error) {
	charges := make([]limiter.Charge, len(numbers))
	decisions := make([]limiter.Decision, len(numbers))
	for i, n := range numbers {
		charges[i] = b.charges[n]
		charges[i].Cost -= b.parts[n].hand.units
		if !take {
			charges[i].Cost = 0
		}
	}
	err := b.exact.Decide(ctx, charges, decisions)
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
		if p.plan == nil || p.verdict != ask {
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
		if p.plan == nil || p.verdict != allowed {
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

// refuse ends a batch that was refused here: charges that stand in the way are told so, all
// others are looked at.
func (b *batch) refuse(ctx context.Context) error {
	for i := range b.parts {
		if p := &b.parts[i]; p.verdict == ask && p.hand.units > 0 {
			b.asked(p.plan, b.charges[i].Key, 0, p.hand, false, false)
			p.hand = hand{}
		}
	}
	b.look()
	unknown := b.undecided()
	if len(unknown) == 0 {
		return nil
	}
	if _, err := b.decideExactly(ctx, unknown, false); err != nil {
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
