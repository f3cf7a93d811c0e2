package simulate

import (
	"context"
	"strings"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A Clock is the time of a simulation, in microseconds since 1970.
type Clock struct{ now int64 }

// A store counts as limiter.Memory does, at the time of a clock, for one goroutine, and
// without a cap.
type store struct {
	clock  *Clock
	keys   map[*limiter.Quota]map[string]*limiter.State // quotas are as many as the rules have, and stay
	states []limiter.State                              // of one batch
}

func newStore(clock *Clock) *store {
	return &store{clock: clock, keys: map[*limiter.Quota]map[string]*limiter.State{}}
}

// of is the state of a key, or nil.
func (s *store) of(c *limiter.Charge) *limiter.State { return s.keys[c.Quota][c.Key] }

// put sets it.
func (s *store) put(c *limiter.Charge, state limiter.State) {
	if found := s.of(c); found != nil {
		*found = state
		return
	}
	if s.keys[c.Quota] == nil {
		s.keys[c.Quota] = map[string]*limiter.State{}
	}
	s.keys[c.Quota][strings.Clone(c.Key)] = &state
}

// Immediate says that the store waits for nothing, and keeps no slice that it is given.
func (s *store) Immediate() {}

// Now is the time by which middleware decides: nothing waits.
func (s *store) Now() time.Time { return time.UnixMicro(s.clock.now) }

// Check implements limiter.Checker: what has a slot releases it.
func (s *store) Check(*limiter.Quota) error { return nil }

// Decide implements limiter.Store.
func (s *store) Decide(_ context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	if err := limiter.CheckDecide(charges, decisions); err != nil {
		return err
	}
	s.states = s.states[:0]
	for i := range charges {
		state := limiter.State{}
		if found := s.of(&charges[i]); found != nil {
			state = *found
		}
		s.states = append(s.states, state)
	}
	if !limiter.TakeAll(charges, s.states, s.clock.now, decisions) {
		return nil
	}
	for i := range charges {
		if charges[i].Cost > 0 {
			s.put(&charges[i], s.states[i])
		}
	}
	return nil
}

// Refund implements limiter.Store.
func (s *store) Refund(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	for i := range charges {
		c := &charges[i]
		if found := s.of(c); found != nil {
			*found = c.Quota.Refund(*found, s.clock.now, c.Cost, c.At)
			if c.Quota.InFlight() && found.Level == 0 {
				*found = limiter.State{} // Memory too knows what is under way, and no more
			}
		}
	}
	return nil
}

// Owe implements limiter.Store.
func (s *store) Owe(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	for i := range charges {
		c := &charges[i]
		state := limiter.State{}
		if found := s.of(c); found != nil {
			state = *found
		}
		s.put(c, c.Quota.Owe(state, s.clock.now, c.Cost))
	}
	return nil
}

// Reset implements limiter.Store.
func (s *store) Reset(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	for i := range charges {
		delete(s.keys[charges[i].Quota], charges[i].Key)
	}
	return nil
}
