package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// Settle implements [limiter.Store]. It settles an event where it was counted: on the server, or in the
// local counters, during the outage and after it. In the local counters a debt is at most one share.
// Events of Open rules are not settled.
//
// While the server is down, Settle leaves what the server counted as it is and returns an error that
// wraps [ErrUnavailable]. Slots are an exception: the inner store tells its server later that they are
// released. If it is unknown who counted an event, Settle assumes whoever counts now.
func (s *Store) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil {
		return err
	}
	isLocal := func(c limiter.Settlement) bool { return c.Receipt.By > limiter.ByStore }
	if s.open.Load() == 0 && !slices.ContainsFunc(settlements, isLocal) { // as a rule
		return s.settleInner(ctx, settlements)
	}
	charges := chargesOf(settlements)
	down, cause := s.outage(charges)
	unreachable := s.chargesOn(down, charges)
	var local, inner []limiter.Settlement
	var err error
	for i, c := range settlements {
		isDown := unreachable>>i&1 == 1
		switch {
		case c.Actual == c.Cost:
		case isLocal(c), c.Receipt.By == 0 && isDown && c.Quota.OnOutage != limiter.FailClosed: // which only the server counts
			if s.toShare(&c.Charge) {
				local = append(local, c)
			}
		case isDown && !c.Quota.InFlight():
			err = fmt.Errorf("%w, so what it counted could not be corrected: %w", ErrUnavailable, cause)
		default:
			inner = append(inner, c)
		}
	}
	return errors.Join(err, s.local.Settle(ctx, local), s.settleInner(ctx, inner))
}

// settleInner has the inner store settle. No error is no sign of life: the store may settle later.
func (s *Store) settleInner(ctx context.Context, settlements []limiter.Settlement) error {
	if len(settlements) == 0 {
		return nil
	}
	began := time.Now()
	err := s.timed(ctx, func(ctx context.Context) error { return s.inner.Settle(ctx, settlements) })
	if err != nil {
		_, err = s.blame(ctx, began, chargesOf(settlements), err)
	}
	return err
}

func chargesOf(settlements []limiter.Settlement) []limiter.Charge {
	charges := make([]limiter.Charge, len(settlements))
	for i := range settlements {
		charges[i] = settlements[i].Charge
	}
	return charges
}
