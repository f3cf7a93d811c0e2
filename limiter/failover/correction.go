package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// How what was taken is corrected: on the counters that it was taken from.

// Refund implements [limiter.Store]. Units that were counted locally return to the local
// counters, during the outage and after it, and those of an Open rule to none. Units that the
// server counted stay taken while it is down, and the error wraps [ErrUnavailable]. Where it
// is not known when they were taken, it is taken to be now.
func (s *Store) Refund(ctx context.Context, charges []limiter.Charge) error {
	return s.correct(ctx, charges, s.local.Refund, s.inner.Refund)
}

// Owe implements [limiter.Store]. Unlike other stores it goes by the charges' receipts: what is owed
// for an event that was counted locally is owed there, up to one share more, and for one of an
// Open rule nowhere. What is owed to a server that is down is forgiven, and the error wraps
// [ErrUnavailable]. Where it is not known when the event was counted, it is taken to be now.
func (s *Store) Owe(ctx context.Context, charges []limiter.Charge) error {
	return s.correct(ctx, charges, s.local.Owe, s.inner.Owe)
}

// Settle implements [limiter.Settler]. The inner store settles later, if it is a Settler, what
// its server counted, as long as that is known to be up. All else is settled at once, as Refund
// and Owe say. A reservation that was counted locally took one share at most.
func (s *Store) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil {
		return err
	}
	isHere := func(c limiter.Settlement) bool { return c.Receipt.By > limiter.ByStore }
	if s.settle != nil && s.trouble.Load() == 0 && !slices.ContainsFunc(settlements, isHere) { // as a rule
		return s.settleLater(ctx, settlements)
	}
	down, _ := s.outage(settled(settlements))
	var now, later []limiter.Settlement
	for _, c := range settlements {
		at := s.placeOf(&c.Charge, down)
		if at == onServer && s.settle != nil {
			later = append(later, c)
			continue
		}
		if at == here {
			c.Cost = s.localCost(&c.Charge)
		}
		now = append(now, c)
	}
	refunds, debts := limiter.Corrections(now)
	err := errors.Join(s.Refund(ctx, refunds), s.Owe(ctx, debts))
	return errors.Join(err, s.settleLater(ctx, later))
}

// settleLater has the inner store settle. No error is no sign of life: the store has only noted it.
func (s *Store) settleLater(ctx context.Context, settlements []limiter.Settlement) error {
	if len(settlements) == 0 {
		return nil
	}
	began := time.Now()
	limited, cancel := s.limited(ctx)
	defer cancel()
	err := s.settle(limited, settlements)
	if err != nil {
		_, err = s.note(ctx, began, settled(settlements), err)
	}
	return err
}

// settled is the charges of settlements.
func settled(settlements []limiter.Settlement) []limiter.Charge {
	charges := make([]limiter.Charge, len(settlements))
	for i := range settlements {
		charges[i] = settlements[i].Charge
	}
	return charges
}

// A place is where a charge was counted.
type place uint8

const (
	onServer place = iota
	here           // in this process
	lost           // on a server that is down
)

func (s *Store) placeOf(c *limiter.Charge, down uint64) place {
	isDown := down != 0 && down&(1<<s.partNumber(c)) != 0
	switch {
	case c.Receipt.By > limiter.ByStore, c.Receipt.By == 0 && isDown:
		return here
	case isDown && !hasEnded(c):
		return lost
	}
	return onServer
}

// hasEnded tells an event that was in progress, of whose end the inner store tells its server in
// time, without a caller that waits for one that is down.
func hasEnded(c *limiter.Charge) bool { return c.Receipt.By == limiter.ByStore && c.Quota.InFlight() }

// correct has units refunded, or owed, by the local counters and by the inner store.
func (s *Store) correct(ctx context.Context, charges []limiter.Charge, local, inner func(context.Context, []limiter.Charge) error) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	down, cause := s.outage(charges)
	var ours, servers []limiter.Charge
	var ended []limiter.Settlement
	var err error
	for _, c := range charges {
		switch at := s.placeOf(&c, down); {
		case at == here:
			ours = append(ours, c)
		case at == lost:
			err = fmt.Errorf("%w, so what it counted could not be corrected: %w", ErrUnavailable, cause)
		case s.settle != nil && s.trouble.Load() != 0 && hasEnded(&c):
			ended = append(ended, limiter.Settlement{Charge: c})
		default:
			servers = append(servers, c)
		}
	}
	if err := local(ctx, s.localShares(nil, ours)); err != nil {
		return err
	}
	if len(servers) > 0 {
		_, failed := s.call(ctx, servers, func(ctx context.Context) error { return inner(ctx, servers) })
		err = errors.Join(err, failed)
	}
	return errors.Join(err, s.settleLater(ctx, ended))
}
