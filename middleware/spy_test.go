package middleware_test

import (
	"context"

	"github.com/weirgo/weir/limiter"
)

// A spy is a store that remembers what it was asked, and what it has taken.
type spy struct {
	store   limiter.Store
	asked   [][]limiter.Charge
	charged []limiter.Charge
	fails   func(ctx context.Context, charges []limiter.Charge) error // nil: never
}

func (s *spy) inner() limiter.Store {
	if s.store == nil {
		s.store, _ = limiter.NewMemory(limiter.MemoryOptions{})
	}
	return s.store
}

func (s *spy) Decide(ctx context.Context, charges []limiter.Charge) error {
	s.asked = append(s.asked, charges)
	if s.fails != nil {
		if err := s.fails(ctx, charges); err != nil {
			return err
		}
	}
	if err := s.inner().Decide(ctx, charges); err != nil {
		return err
	}
	for i := range charges {
		if !charges[i].Decision.Allowed {
			return nil
		}
	}
	s.charged = append(s.charged, charges...)
	return nil
}

func (s *spy) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	return s.inner().Settle(ctx, settlements)
}

func (s *spy) Reset(ctx context.Context, charges []limiter.Charge) error {
	return s.inner().Reset(ctx, charges)
}
