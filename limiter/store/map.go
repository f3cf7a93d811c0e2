package store

import (
	"context"
	"strings"

	"github.com/weirgo/weir/limiter"
)

// A Map is the simplest store: states in a map that forgets nothing. It counts slots too. It is for one goroutine, as
// in a simulation, or as what another store is compared with.
type Map struct {
	Clock func() int64 // the time in microseconds since 1970

	states map[counter]limiter.State
	batch  []limiter.State // the states of one batch
}

// A counter names a state. The key is part of it as it is: the names are never joined.
type counter struct{ rule, tier, key string }

func counterOf(c *limiter.Charge) counter { return counter{c.Quota.Rule(), c.Quota.Tier(), c.Key} }

func (m *Map) put(c *limiter.Charge, state limiter.State) {
	if m.states == nil {
		m.states = map[counter]limiter.State{}
	}
	of := counterOf(c)
	of.key = strings.Clone(c.Key) // which may be part of a longer text
	m.states[of] = state
}

// Check implements [limiter.Checker]: slots are always released.
func (m *Map) Check(*limiter.Quota) error { return nil }

// Decide implements [limiter.Store].
func (m *Map) Decide(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	m.batch = m.batch[:0]
	for i := range charges {
		m.batch = append(m.batch, m.states[counterOf(&charges[i])])
	}
	if TakeAll(charges, m.batch, m.Clock()) {
		for i := range charges {
			if charges[i].Cost > 0 {
				m.put(&charges[i], m.batch[i])
			}
		}
	}
	return nil
}

// Settle implements [limiter.Store].
func (m *Map) Settle(_ context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil {
		return err
	}
	for i := range settlements {
		c := &settlements[i]
		state := c.Quota.Settle(m.states[counterOf(&c.Charge)], m.Clock(), *c)
		if c.Quota.InFlight() && state.Level == 0 {
			state = limiter.State{} // as in a Memory, idle slots have no state
		}
		m.put(&c.Charge, state)
	}
	return nil
}

// Reset implements [limiter.Store].
func (m *Map) Reset(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	for i := range charges {
		if c := &charges[i]; !c.Quota.InFlight() { // events in flight keep their slots
			delete(m.states, counterOf(c))
		}
	}
	return nil
}
