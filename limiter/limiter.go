package limiter

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/weirgo/weir/internal/invalid"
)

// Config is what [New] takes.
type Config struct {
	// Name says what is limited, such as "mail". It is required. Limiters that share a store
	// need different names, or they share counters.
	Name string

	// Limit is a [Limit], or [All] of several limits. It is required. For AtOnce use
	// [NewSemaphore].
	Limit Allowance

	// Settles enables [Limiter.Reserve]. It costs more memory for a TokenBucket, which then
	// records its lowest level since each reservation ([Quota.Settles]).
	Settles bool

	// Store holds the counters. Nil means a new [Memory].
	Store Store

	// OnOutage says how to decide while the store's server, if it has one, gives no answer. The
	// zero value is FailLocal.
	OnOutage Outage
}

// A Limiter decides on events by one limit, or by several together, for any key.
type Limiter struct {
	quotas []*Quota
	store  Store
	never  *Quota // of charges that never fit, for Look

	// If there is one limit: the compiler sees that nothing escapes into a Memory.
	quota  *Quota
	memory *Memory
}

// New returns a Limiter, or an error with everything that is wrong with c.
func New(c Config) (*Limiter, error) {
	quotas, err := NewQuotas(c.Name, "", c.Limit)
	if err == nil && quotas[len(quotas)-1].InFlight() {
		err = invalid.New("limiter", "Limit of %q is %v: AtOnce is for a Semaphore, which learns when an event ends", c.Name, c.Limit)
	}
	if err := errors.Join(err, c.OnOutage.Validate()); err != nil {
		return nil, err
	}
	never := compiled(quotas[0].limit).named(c.Name, "look")
	never.OnOutage = c.OnOutage
	return newLimiter(c, quotas, never)
}

// newLimiter returns a Limiter of quotas that have only their names, and tells the store about them.
func newLimiter(c Config, quotas []*Quota, never *Quota) (*Limiter, error) {
	l := &Limiter{quotas: quotas, quota: quotas[0], store: c.Store, never: never}
	if l.store == nil {
		l.store = Must(NewMemory(MemoryOptions{}))
	}
	for _, q := range quotas {
		q.OnOutage, q.Settles = c.OnOutage, c.Settles
		if err := register(l.store, q); err != nil {
			return nil, err
		}
	}
	if len(quotas) == 1 {
		l.memory, _ = l.store.(*Memory)
	}
	return l, nil
}

// register asks a store whether it can count q, and claims the rule's name.
func register(s Store, q *Quota) error {
	if err := CheckQuota(s, q); err != nil {
		return err
	}
	store, ok := As[Claimer](s)
	if !ok {
		return nil
	}
	err := store.Claim(q.rule)
	if errors.Is(err, ErrClaimed) {
		slog.Warn("weir: two limiters share a store and a name, so they share counters; rename one, or give each its own store",
			"code", "weir-shared-counter", "rule", q.rule)
		return nil
	}
	return err
}

// Must returns its first argument, and panics if [New] or [NewMemory] returned an error. Use it
// for a limiter or a store that is written in code.
func Must[T *Limiter | *Memory](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// Allow is AllowN with a cost of one.
func (l *Limiter) Allow(ctx context.Context, key string) (Decision, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN takes cost units for key if they are there. A refusal is a Decision and not an error.
// An error means that the store could not decide, or that cost is negative. Cost 0 takes
// nothing and is always allowed. To ask whether units are there, use [Limiter.Look].
//
// If the Limiter has several limits, the Decision says what all of them let pass together
// ([Decision.Join]).
func (l *Limiter) AllowN(ctx context.Context, key string, cost int64) (d Decision, err error) {
	return l.decide(ctx, key, cost, 0)
}

// decide is AllowN for an event that can wait for a Delay of at most within ([Charge]).
func (l *Limiter) decide(ctx context.Context, key string, cost int64, within time.Duration) (d Decision, err error) {
	if l.memory != nil && cost >= 0 {
		l.memory.decideOne(l.quota, key, cost, within, &d)
		return d, err
	}
	var b batch
	return b.decide(ctx, l, key, cost, within, false)
}

// Look returns a Decision as if key took n units now and gave them back at once. Allowed reports whether n
// units fit now. If not, RetryAfter is when they fit, if no other event comes first. RetryAfter is [Never] if
// n is more than the limit ever allows at once. Remaining is what is left now. Look takes nothing, so another
// event may take the units before a later AllowN. It asks the store once, and again if n does not fit. It
// returns the same errors as AllowN.
func (l *Limiter) Look(ctx context.Context, key string, n int64) (Decision, error) {
	d, err := l.AllowN(ctx, key, min(n, 0))
	if err != nil || !d.Counted() || n <= d.Remaining {
		return d, err
	}
	// Beside a charge that never fits, the store takes nothing, even if units have returned meanwhile.
	charges := make([]Charge, 0, maxLimits+1)
	for _, q := range l.quotas {
		charges = append(charges, Charge{Quota: q, Key: key, Cost: n})
	}
	charges = append(charges, Charge{Quota: l.never, Key: key, Cost: l.never.capacity + 1})
	err = l.store.Decide(ctx, charges)
	return joined(charges[:len(l.quotas)]), err
}

// Refund gives key back n of the units that d took, for events that did not happen after all. Remaining
// never exceeds the limit. For a LeakyBucket call it once for each Decision: a second call may return
// the units of another event. A store with a server may make the refund after Refund has returned, but
// before this process's next decision on key; if the server gives no answer, later or never. If the cost is known only after the event, use
// [Limiter.Reserve].
func (l *Limiter) Refund(ctx context.Context, key string, n int64, d Decision) error {
	settlements := make([]Settlement, len(l.quotas))
	for i, q := range l.quotas {
		settlements[i].Charge = Charge{Quota: q, Key: key, Cost: n, Decision: d}
	}
	return l.store.Settle(ctx, settlements)
}

// Reset makes key as if it had never been seen.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	charges := make([]Charge, len(l.quotas))
	for i, q := range l.quotas {
		charges[i] = Charge{Quota: q, Key: key}
	}
	return l.store.Reset(ctx, charges)
}

// A batch is the room for charging all limits of a limiter. It stays on the stack.
type batch [maxLimits]Charge

// decide charges each limit. If the event reserves, no limit is charged more than it can ever
// admit.
func (b *batch) decide(ctx context.Context, l *Limiter, key string, cost int64, within time.Duration, reserves bool) (Decision, error) {
	charges := b[:len(l.quotas)]
	for i, q := range l.quotas {
		charges[i] = Charge{Quota: q, Key: key, Cost: cost, Within: within}
		if reserves {
			charges[i].Cost = min(cost, q.capacity)
		}
	}
	err := decideOn(ctx, l.store, charges)
	return joined(charges), err
}

// joined returns the decision of all charges together.
func joined(charges []Charge) Decision {
	d := charges[0].Decision
	for i := range charges[1:] {
		d.Join(&charges[1+i].Decision)
	}
	return d
}

// decideOn has a store decide. Charges for a Memory stay on the stack. Other stores get a copy, because arguments of an
// interface's method escape.
func decideOn(ctx context.Context, store Store, charges []Charge) error {
	if memory, ok := store.(*Memory); ok {
		return memory.Decide(ctx, charges)
	}
	sent := slices.Clone(charges)
	err := store.Decide(ctx, sent)
	copy(charges, sent)
	return err
}
