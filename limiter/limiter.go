package limiter

import (
	"context"
	"errors"
	"log/slog"
)

// Config is what [New] takes.
type Config struct {
	// Name says what is limited, such as "mail". Required: limiters that share a
	// store count apart by their names.
	Name string

	// Limit is required.
	Limit Limit

	// Store holds the counters. Nil: a [Memory] of its own.
	Store Store

	// OnOutage says what happens while the store's server gives no answer, if it has
	// one. Zero: Local.
	OnOutage Outage
}

// A Limiter answers for one limit, under any key.
type Limiter struct {
	quota  *Quota
	store  Store
	memory *Memory // the store, if it is one: the compiler then sees that nothing escapes
}

// New returns a Limiter, or everything that is wrong with c.
func New(c Config) (*Limiter, error) {
	quota, err := NewQuota(c.Name, "", c.Limit)
	if err := errors.Join(err, c.OnOutage.Validate()); err != nil {
		return nil, err
	}
	quota.OnOutage = c.OnOutage
	if c.Store == nil {
		if c.Store, err = NewMemory(MemoryOptions{}); err != nil {
			return nil, err
		}
	}
	if store, ok := As[Claimer](c.Store); ok {
		err := store.Claim(c.Name)
		if err != nil && !errors.Is(err, ErrClaimed) {
			return nil, err
		}
		if err != nil {
			slog.Warn("weir: two limiters share a store and a name, so they share counters; rename one, or give each its own store",
				"code", "weir-shared-counter", "rule", c.Name)
		}
	}
	if store, ok := As[Checker](c.Store); ok {
		if err := store.Check(quota); err != nil {
			return nil, err
		}
	}
	l := &Limiter{quota: quota, store: c.Store}
	l.memory, _ = c.Store.(*Memory)
	return l, nil
}

// Must is for a limiter or a store that is written in code: it panics where [New] or
// [NewMemory] returns an error.
func Must[T *Limiter | *Memory](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// Allow is AllowN with a cost of one.
func (l *Limiter) Allow(ctx context.Context, key string) (d Decision, err error) {
	if l.memory == nil {
		return l.AllowN(ctx, key, 1)
	}
	err = l.memory.decideOne(l.quota, key, 1, &d)
	return d, err
}

// AllowN takes cost units for key if they are there. A refusal is a Decision, not
// an error; an error means that the store could not decide, or that cost is negative.
// Cost 0 looks without taking.
func (l *Limiter) AllowN(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if l.memory == nil || cost < 0 {
		return decideElsewhere(ctx, l.store, Charge{Quota: l.quota, Key: key, Cost: cost})
	}
	err = l.memory.decideOne(l.quota, key, cost, &d)
	return d, err
}

// decideElsewhere is apart from AllowN because what it passes to an interface escapes.
func decideElsewhere(ctx context.Context, store Store, c Charge) (Decision, error) {
	decisions := make([]Decision, 1)
	err := store.Decide(ctx, []Charge{c}, decisions)
	return decisions[0], err
}

// Refund returns n units to key, for events that did not happen after all: of those that d
// took, which is the Decision on them. Never more than the limit remain.
func (l *Limiter) Refund(ctx context.Context, key string, n int64, d Decision) error {
	return l.store.Refund(ctx, []Charge{{Quota: l.quota, Key: key, Cost: n, At: d.At}})
}

// Reset makes key as if it had never been seen.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	return l.store.Reset(ctx, []Charge{{Quota: l.quota, Key: key}})
}
