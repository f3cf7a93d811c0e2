package simulate

import (
	"context"
	"strings"
	"time"

	"github.com/weirgo/weir/limiter"
	stores "github.com/weirgo/weir/limiter/store"
)

// A Clock is a simulation's time, in microseconds since 1970.
type Clock struct{ now int64 }

// A store counts like limiter.Memory, with a Clock, for one goroutine and without a cap.
type store struct {
	clock  *Clock
	keys   map[counter]limiter.State
	states []limiter.State // of one batch
}

// A counter names a state. Overrides of a rule count in the rule's counters, as in every store.
type counter struct{ rule, tier, key string }

func counterOf(c *limiter.Charge) counter { return counter{c.Quota.Rule(), c.Quota.Tier(), c.Key} }

func newStore(clock *Clock) *store { return &store{clock: clock, keys: map[counter]limiter.State{}} }

func (s *store) get(c *limiter.Charge) limiter.State { return s.keys[counterOf(c)] }

func (s *store) put(c *limiter.Charge, state limiter.State) {
	of := counterOf(c)
	of.key = strings.Clone(c.Key) // it is part of the log's line
	s.keys[of] = state
}

// Now returns the Clock's time for package middleware, which then never waits.
func (s *store) Now() time.Time { return time.UnixMicro(s.clock.now) }

// Check implements Checker of package limiter/store: slots are always released.
func (s *store) Check(*limiter.Quota) error { return nil }

// Decide implements limiter.Store.
func (s *store) Decide(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	s.states = s.states[:0]
	for i := range charges {
		s.states = append(s.states, s.get(&charges[i]))
	}
	if stores.TakeAll(charges, s.states, s.clock.now) {
		for i := range charges {
			if charges[i].Cost > 0 {
				s.put(&charges[i], s.states[i])
			}
		}
	}
	return nil
}

// Settle implements limiter.Store.
func (s *store) Settle(_ context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil {
		return err
	}
	for i := range settlements {
		c := &settlements[i]
		state := c.Quota.Settle(s.get(&c.Charge), s.clock.now, *c)
		if c.Quota.InFlight() && state.Level == 0 {
			state = limiter.State{} // as in Memory, idle slots have no state
		}
		s.put(&c.Charge, state)
	}
	return nil
}

// Reset implements limiter.Store.
func (s *store) Reset(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	for i := range charges {
		if c := &charges[i]; !c.Quota.InFlight() { // events in flight keep their slots
			delete(s.keys, counterOf(c))
		}
	}
	return nil
}
