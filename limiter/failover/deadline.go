package failover

import (
	"context"
	"time"

	"github.com/weirgo/weir/limiter"
)

// timed ends each call to a store after a time, by its context. It costs a timer and
// some allocations a call, which a store that keeps deadlines by itself can save.
type timed struct {
	limiter.Store
	deadline time.Duration
}

// within is store under a deadline.
func within(store limiter.Store, deadline time.Duration) limiter.Store {
	if store, ok := store.(Bounded); ok {
		return store.Within(deadline)
	}
	return &timed{store, deadline}
}

// Unwrap implements [limiter.Wrapper].
func (t *timed) Unwrap() limiter.Store { return t.Store }

// Within changes the deadline.
func (t *timed) Within(deadline time.Duration) limiter.Store { return within(t.Store, deadline) }

func (t *timed) Decide(ctx context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	ctx, cancel := context.WithTimeout(ctx, t.deadline)
	defer cancel()
	return t.Store.Decide(ctx, charges, decisions)
}

func (t *timed) Refund(ctx context.Context, charges []limiter.Charge) error {
	return bounded(t.deadline, t.Store.Refund)(ctx, charges)
}

func (t *timed) Owe(ctx context.Context, charges []limiter.Charge) error {
	return bounded(t.deadline, t.Store.Owe)(ctx, charges)
}

func (t *timed) Reset(ctx context.Context, charges []limiter.Charge) error {
	return bounded(t.deadline, t.Store.Reset)(ctx, charges)
}

func bounded[T any](deadline time.Duration, call func(context.Context, T) error) func(context.Context, T) error {
	return func(ctx context.Context, of T) error {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		return call(ctx, of)
	}
}

// underDeadline is a method that As found, and so without what a timed store around it does.
func underDeadline[T any](s *Store, call func(context.Context, T) error) func(context.Context, T) error {
	if _, isTimed := s.inner.(*timed); isTimed {
		return bounded(s.options.Deadline, call)
	}
	return call
}
