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
	if store, ok := store.(limiter.Bounded); ok {
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
	ctx, cancel := context.WithTimeout(ctx, t.deadline)
	defer cancel()
	return t.Store.Refund(ctx, charges)
}

func (t *timed) Owe(ctx context.Context, charges []limiter.Charge) error {
	ctx, cancel := context.WithTimeout(ctx, t.deadline)
	defer cancel()
	return t.Store.Owe(ctx, charges)
}

func (t *timed) Reset(ctx context.Context, charges []limiter.Charge) error {
	ctx, cancel := context.WithTimeout(ctx, t.deadline)
	defer cancel()
	return t.Store.Reset(ctx, charges)
}

// writer is the inner store's TryWrite, under the deadline, or nil.
func (s *Store) writer() func(context.Context, []limiter.Charge) error {
	store, ok := limiter.As[limiter.Writer](s.inner)
	if !ok {
		return nil
	}
	return underDeadline(s, store.TryWrite)
}

// settler is the inner store's Settle, under the deadline, or nil.
func (s *Store) settler() func(context.Context, []limiter.Settlement) error {
	store, ok := limiter.As[limiter.Settler](s.inner)
	if !ok {
		return nil
	}
	return underDeadline(s, store.Settle)
}

// underDeadline is a method that As found, and so without what a timed store around it does.
func underDeadline[T any](s *Store, call func(context.Context, T) error) func(context.Context, T) error {
	if _, isTimed := s.inner.(*timed); !isTimed {
		return call
	}
	return func(ctx context.Context, of T) error {
		ctx, cancel := context.WithTimeout(ctx, s.options.Deadline)
		defer cancel()
		return call(ctx, of)
	}
}
