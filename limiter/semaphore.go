package limiter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/waiting"
)

// SemaphoreConfig is what [NewSemaphore] takes.
type SemaphoreConfig struct {
	// Name says what is limited, such as "exports". It is required. Semaphores that share a
	// store need different names, or they share slots.
	Name string

	// Limit is how many events of a key may be in flight at once, such as AtOnce(5), or
	// AtOnce(5).Queue(20, time.Second) for a queue. It is required.
	Limit Concurrency

	// Store holds the slots. It must implement [Checker]. Nil means a new [Memory].
	Store Store

	// OnOutage says how to decide while the store's server, if it has one, gives no answer. The
	// zero value is FailLocal.
	OnOutage Outage
}

// A Semaphore limits how many events of a key are in flight at once. Use it where a rate does not help:
// an export takes a minute, or a pool has a fixed number of connections.
//
//	exports, err := limiter.NewSemaphore(limiter.SemaphoreConfig{Name: "exports", Limit: limiter.AtOnce(5)})
//
//	release, d, err := exports.Acquire(ctx, "user:42")
//	defer release()
//	if err != nil || !d.Allowed {
//		return
//	}
type Semaphore struct {
	slots   *Limiter
	most    int // that wait for a key's slot
	maxWait time.Duration
	room    waiting.Room[string]
}

// NewSemaphore returns a Semaphore, or an error with everything that is wrong with c.
func NewSemaphore(c SemaphoreConfig) (*Semaphore, error) {
	quota, err := NewConcurrency(c.Name, "", c.Limit.Max)
	if err := errors.Join(err, c.OnOutage.Validate(), c.Limit.checkQueue()); err != nil {
		return nil, err
	}
	slots, err := newLimiter(Config{Store: c.Store, OnOutage: c.OnOutage}, []*Quota{quota}, nil)
	if err != nil {
		return nil, err
	}
	s := &Semaphore{slots: slots, most: c.Limit.Waiting, maxWait: c.Limit.MaxWait}
	s.room.Shared = slots.memory == nil
	return s, nil
}

// Acquire acquires a slot for key, or says in the Decision that none is free. RetryAfter is then a
// guess: it assumes that events take as long as earlier events did. With a queue, Acquire waits for a
// slot for up to MaxWait. If ctx ends first, Acquire returns ctx.Err(). Any other error means that the
// store could not decide.
//
// Call release when the event ends; it is safe to defer release in any case. Only the first call
// releases the slot. If no slot was acquired, release does nothing.
func (s *Semaphore) Acquire(ctx context.Context, key string) (release func(), d Decision, err error) {
	if s.room.IsEmpty(key) {
		if d, err = s.slots.AllowN(ctx, key, 1); err != nil || d.Allowed {
			return s.release(ctx, key, d), d, err
		}
	}
	waited := false
	if s.most > 0 {
		_, err = s.room.Wait(ctx, key, s.most, s.maxWait, func() (bool, error) {
			waited = true
			var err error
			d, err = s.slots.AllowN(ctx, key, 1)
			return d.Allowed, err
		})
	}
	switch {
	case err != nil:
		return nothing, Decision{}, err
	case d.Allowed:
		return s.release(ctx, key, d), d, nil
	case !waited && d.Limit == 0: // others wait, and it did not ask
		if d, err = s.slots.AllowN(ctx, key, 0); err != nil {
			return nothing, d, err
		}
		d.Allowed, d.RetryAfter = false, max(time.Microsecond, d.NextAfter)
	}
	d.RetryAfter = s.room.Behind(key, d.RetryAfter)
	return nothing, d, nil
}

// nothing is the release of an event that got no slot.
func nothing() {}

// release returns what releases the slot of d, if it has one.
func (s *Semaphore) release(ctx context.Context, key string, d Decision) func() {
	if !d.Allowed {
		return nothing
	}
	return sync.OnceFunc(func() {
		ctx, end := outlive(ctx)
		defer end()
		_ = s.slots.Refund(ctx, key, 1, d) // if it fails, the store releases the slot in time
		s.room.Released(key)
	})
}
