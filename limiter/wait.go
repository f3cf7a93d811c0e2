package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Wait takes n units for key as soon as they are there, and returns nil then. In a LeakyBucket
// callers that wait have a place each, and leave in order. For other algorithms Wait asks again
// when they may be there, in no order, so under load a large n can wait for long.
//
// If the wait would not end before ctx does, or never, Wait takes nothing and returns a
// [*WaitError] at once. If ctx ends while it waits it returns ctx.Err(), having taken nothing but a
// turn in a LeakyBucket, which is free again unless a later one is behind it. Other errors are those
// of AllowN.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.lookAhead(ctx, key, n); err != nil {
			return err
		}
		d, err := l.AllowN(ctx, key, n)
		switch {
		case err != nil:
			return err
		case d.Allowed && (n == 0 || d.Delay == 0):
			return nil
		case d.Allowed:
			return l.waitForTurn(ctx, key, n, d)
		case d.RetryAfter == Never:
			return &WaitError{l.quota.rule, Never}
		}
		least := d.RetryAfter + l.quota.queueOf(n)
		if !fits(ctx, least) {
			return &WaitError{l.quota.rule, least}
		}
		if err := sleep(ctx, jittered(ctx, d.RetryAfter)); err != nil {
			return err
		}
	}
}

// lookAhead is a [*WaitError] if the queue of a LeakyBucket is longer than ctx lasts. A turn that is
// taken in vain is lost once another one stands behind it, so many callers that cannot wait would
// fill the queue with turns that nobody uses.
func (l *Limiter) lookAhead(ctx context.Context, key string, n int64) error {
	if _, bounded := ctx.Deadline(); !bounded || n == 0 || l.quota.algorithm.delay == nil {
		return nil
	}
	d, err := l.AllowN(ctx, key, 0)
	if err == nil && !fits(ctx, d.Delay) {
		err = &WaitError{l.quota.rule, d.Delay}
	}
	return err
}

// waitForTurn waits for the Delay of d, which took n units.
func (l *Limiter) waitForTurn(ctx context.Context, key string, n int64, d Decision) (err error) {
	if !fits(ctx, d.Delay) {
		err = &WaitError{l.quota.rule, d.Delay}
	} else {
		err = sleep(ctx, d.Delay)
	}
	if err != nil {
		undo := Settlement{Charge: Charge{Quota: l.quota, Key: key, Cost: n, Receipt: l.quota.Undo(&d)}}
		ctx, end := outlive(ctx)
		defer end()
		_ = l.store.Settle(ctx, []Settlement{undo}) // else it drains
	}
	return err
}

// queueOf is how long an event of that cost has to wait that just fits.
func (q *Quota) queueOf(cost int64) time.Duration {
	if q.algorithm.delay == nil {
		return 0
	}
	return micros(q.algorithm.delay(q, State{Level: (q.capacity - cost) * q.unit}))
}

// A WaitError is why [Limiter.Wait] did not wait.
type WaitError struct {
	// Name is that of the limiter.
	Name string

	// Wait is how long it would have been at least. It is Never for more units than ever fit.
	Wait time.Duration
}

func (e *WaitError) Error() string {
	if e.Wait == Never {
		return fmt.Sprintf("limiter: wait for %q: that many units never fit", e.Name)
	}
	return fmt.Sprintf("limiter: wait for %q: it would take %v, and the context ends before", e.Name, e.Wait)
}

// fits reports whether ctx lasts longer than d.
func fits(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || d < time.Until(deadline)
}

// jittered is up to a tenth more than d, as long as it fits: those that were refused at one
// time are not to ask again at one time.
func jittered(ctx context.Context, d time.Duration) time.Duration {
	if more := d + rand.N(d/10+1); fits(ctx, more) {
		return more
	}
	return d
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
