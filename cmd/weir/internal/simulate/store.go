package simulate

import (
	"context"

	"github.com/weirgo/weir/limiter"
)

// A Clock is the time of a simulation, in microseconds since 1970.
type Clock struct{ now int64 }

// A store counts as limiter.Memory does, at the time of a clock, for one goroutine, and
// without a cap.
type store struct {
	clock  *Clock
	turns  *turns
	keys   map[*limiter.Quota]map[string]*cell // quotas are as many as the rules have, and stay
	caller *caller                             // of the request that is decided about
	room   []cell                              // for those to come
	states []limiter.State                     // of one batch, and where they are from
	found  []*cell
}

// A cell is what was counted for a key.
type cell struct {
	quota *limiter.Quota
	key   string
	state limiter.State
}

func newStore(clock *Clock) *store {
	return &store{clock: clock, keys: map[*limiter.Quota]map[string]*cell{}, caller: &caller{}}
}

// cell is the one of a key, or nil.
func (s *store) cell(q *limiter.Quota, key string) *cell {
	for _, c := range s.caller.cells {
		if c.quota == q && c.key == key {
			return c
		}
	}
	c := s.keys[q][key]
	if c != nil {
		s.caller.hold(c)
	}
	return c
}

// put notes a key that is new.
func (s *store) put(c *limiter.Charge, state limiter.State) {
	if len(s.room) == 0 {
		s.room = make([]cell, atOnce)
	}
	added := &s.room[0]
	s.room = s.room[1:]
	*added = cell{c.Quota, s.caller.keep(c.Key), state}
	keys := s.keys[c.Quota]
	if keys == nil {
		keys = map[string]*cell{}
		s.keys[c.Quota] = keys
	}
	keys[added.key] = added
	s.caller.hold(added)
}

// Immediate says that the store waits for nothing, and keeps no slice that it is given.
func (s *store) Immediate() {}

// Decide implements limiter.Store.
func (s *store) Decide(_ context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	if err := limiter.CheckDecide(charges, decisions); err != nil {
		return err
	}
	s.states, s.found = s.states[:0], s.found[:0]
	for i := range charges {
		c := s.cell(charges[i].Quota, charges[i].Key)
		s.found = append(s.found, c)
		if c != nil {
			s.states = append(s.states, c.state)
		} else {
			s.states = append(s.states, limiter.State{})
		}
	}
	if !limiter.TakeAll(charges, s.states, s.clock.now, decisions) {
		return nil
	}
	for i, c := range s.found {
		switch {
		case charges[i].Cost == 0:
		case c != nil:
			c.state = s.states[i]
		default:
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
	for _, c := range charges {
		if found := s.cell(c.Quota, c.Key); found != nil {
			found.state = c.Quota.Refund(found.state, s.clock.now, c.Cost, c.At)
			if c.Quota.InFlight() && found.state.Level == 0 {
				found.state = limiter.State{} // Memory too knows what is under way, and no more
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
		if found := s.cell(c.Quota, c.Key); found != nil {
			found.state = c.Quota.Owe(found.state, s.clock.now, c.Cost)
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
		if found := s.cell(c.Quota, c.Key); found != nil {
			found.state = limiter.State{} // which a key has that was never seen
		}
	}
	return nil
}
