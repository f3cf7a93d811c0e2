package simulate

import (
	"context"
	"strings"

	"github.com/weirgo/weir/limiter"
)

// A Clock is the time of a simulation, in microseconds since 1970.
type Clock struct{ now int64 }

// A store counts as limiter.Memory does, at the time of a clock, for one goroutine, and
// without a cap.
type store struct {
	clock  *Clock
	turns  *turns
	keys   map[*limiter.Quota]map[string]*limiter.State // quotas are as many as the rules have, and stay
	states []limiter.State                              // room for those of one batch
}

func newStore(clock *Clock) *store {
	return &store{clock: clock, keys: map[*limiter.Quota]map[string]*limiter.State{}}
}

// Immediate says that the store waits for nothing, and keeps no slice that it is given.
func (s *store) Immediate() {}

// Decide implements limiter.Store.
func (s *store) Decide(_ context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	if err := limiter.CheckDecide(charges, decisions); err != nil {
		return err
	}
	s.states = s.states[:0]
	var room [4]*limiter.State
	found := room[:0]
	for i := range charges {
		state := s.keys[charges[i].Quota][charges[i].Key]
		found = append(found, state)
		if state == nil {
			state = &limiter.State{}
		}
		s.states = append(s.states, *state)
	}
	if !limiter.TakeAll(charges, s.states, s.clock.now, decisions) {
		return nil
	}
	for i, state := range found {
		switch {
		case charges[i].Cost == 0:
		case state != nil:
			*state = s.states[i]
		default:
			s.put(&charges[i], s.states[i])
		}
	}
	return nil
}

// put notes a key that is new. Its text may be a part of a long one, such as a log's.
func (s *store) put(c *limiter.Charge, state limiter.State) {
	keys := s.keys[c.Quota]
	if keys == nil {
		keys = map[string]*limiter.State{}
		s.keys[c.Quota] = keys
	}
	keys[strings.Clone(c.Key)] = &state
}

// Refund implements limiter.Store.
func (s *store) Refund(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	for _, c := range charges {
		if state := s.keys[c.Quota][c.Key]; state != nil {
			*state = c.Quota.Refund(*state, s.clock.now, c.Cost, c.At)
			if c.Quota.InFlight() && state.Level == 0 {
				delete(s.keys[c.Quota], c.Key) // as Memory does: it holds what is under way
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
		if state := s.keys[c.Quota][c.Key]; state != nil {
			*state = c.Quota.Owe(*state, s.clock.now, c.Cost)
		} else {
			s.put(c, c.Quota.Owe(limiter.State{}, s.clock.now, c.Cost))
		}
	}
	return nil
}

// Reset implements limiter.Store.
func (s *store) Reset(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	for _, c := range charges {
		delete(s.keys[c.Quota], c.Key)
	}
	return nil
}
