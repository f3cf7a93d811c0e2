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
	if s.settle == nil || s.trouble.Load() == 0 {
		return s.correct(ctx, charges, s.local.Refund, s.inner.Refund)
	}
	charges, ended := s.ended(charges)
	var err error
	if len(ended) > 0 {
		err = s.settle(ctx, ended)
	}
	return both(err, s.correct(ctx, charges, s.local.Refund, s.inner.Refund))
}

// ended divides charges of events that have ended, and that the server counts, from others. The
// inner store tells the server of them in time, without a caller that waits for one that is down.
func (s *Store) ended(charges []limiter.Charge) (others []limiter.Charge, ended []limiter.Settlement) {
	for _, c := range charges {
		if c.Quota != nil && c.Quota.InFlight() && c.At > 0 {
			ended = append(ended, limiter.Settlement{Charge: c})
		} else {
			others = append(others, c)
		}
	}
	return others, ended
}

// Owe implements [limiter.Store]. Unlike other stores it goes by the charges' At: what is owed
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
	now, later := s.nowAndLater(settlements)
	var err error
	if len(now) > 0 {
		refunds, debts := limiter.Corrections(s.asTaken(now))
		err = both(s.Refund(ctx, refunds), s.Owe(ctx, debts))
	}
	if len(later) == 0 {
		return err
	}
	began := time.Now()
	if failed := s.settle(ctx, later); failed != nil { // and no error is no sign of life
		_, failed = s.note(ctx, began, settled(later), failed)
		err = both(err, failed)
	}
	return err
}

// asTaken is settlements with the costs that were taken, which of those that were counted here may
// be less than was asked for.
func (s *Store) asTaken(settlements []limiter.Settlement) []limiter.Settlement {
	down := uint64(0)
	if s.trouble.Load() != 0 {
		down, _ = s.outage(settled(settlements))
	}
	settlements = slices.Clone(settlements)
	for i := range settlements {
		if c := &settlements[i].Charge; s.placeOf(c, down) == here {
			c.Cost = s.localCost(c)
		}
	}
	return settlements
}

// nowAndLater divides settlements by whether the inner store has them for later.
func (s *Store) nowAndLater(settlements []limiter.Settlement) (now, later []limiter.Settlement) {
	if s.settle == nil {
		return settlements, nil
	}
	down := uint64(0)
	if s.trouble.Load() != 0 {
		down, _ = s.outage(settled(settlements))
	}
	for i := range settlements {
		c := &settlements[i]
		isNow := s.placeOf(&c.Charge, down) != onServer
		if isNow && now == nil {
			later = slices.Clone(settlements[:i])
		}
		switch {
		case isNow:
			now = append(now, *c)
		case now != nil:
			later = append(later, *c)
		}
	}
	if now == nil { // as a rule
		return nil, settlements
	}
	return now, later
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
	case c.At < 0:
		return here
	case c.At > 0 && c.Quota.InFlight(): // what it is told of events that have ended, the store tells its server in time
		return onServer
	case c.At == 0 && isDown:
		return here
	case isDown:
		return lost
	}
	return onServer
}

// correct has units refunded, or owed, by the local counters and by the inner store.
func (s *Store) correct(ctx context.Context, charges []limiter.Charge, local, inner func(context.Context, []limiter.Charge) error) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	var down uint64
	var cause, err error
	if s.trouble.Load() != 0 {
		down, cause = s.outage(charges)
	}
	var ours, servers []limiter.Charge
	for _, c := range charges {
		switch s.placeOf(&c, down) {
		case here:
			c.At = max(c.At, -c.At)
			ours = append(ours, c)
		case onServer:
			servers = append(servers, c)
		case lost:
			err = fmt.Errorf("%w, so what it counted could not be corrected: %w", ErrUnavailable, cause)
		}
	}
	if err := local(ctx, s.localShares(nil, ours)); err != nil {
		return err
	}
	if len(servers) > 0 {
		_, failed := s.note(ctx, time.Now(), servers, inner(ctx, servers))
		err = both(err, failed)
	}
	return err
}

// both is errors.Join, but for a single error, which is returned as it is.
func both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}
