package limiter

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Wait takes n units for key as soon as they are there, and then returns nil. In a LeakyBucket callers
// wait in a queue and leave in order. For other algorithms Wait tries again when the units may be
// there: the first time on time, then up to 100 ms or the time of one unit later, whichever is less, so
// that callers do not all ask together. Callers are served in no particular order, so under load a
// caller with a large n can wait for long.
//
// If the wait would outlast ctx, or would never end, Wait takes nothing and returns a [*WaitError] at
// once. If ctx ends during the wait, Wait returns ctx.Err() and takes nothing. In a LeakyBucket,
// however, the units stay taken if another caller already has a later turn. Other errors are as for
// AllowN.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) error {
	for again := false; ; again = true {
		if err := ctx.Err(); err != nil {
			return err
		}
		var within time.Duration
		if deadline, ok := ctx.Deadline(); ok && l.quota.queue {
			within = max(1, time.Until(deadline)-time.Microsecond)
		}
		d, err := l.decide(ctx, key, n, within)
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
		least := d.RetryAfter + min(l.quota.queueOf(n), cmp.Or(within, Never))
		if !fits(ctx, least) {
			return &WaitError{l.quota.rule, least}
		}
		wait := d.RetryAfter
		if again { // a caller that meets no other takes its units on time
			wait = l.jittered(ctx, wait)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// waitForTurn waits for the Delay of d, which took n units.
func (l *Limiter) waitForTurn(ctx context.Context, key string, n int64, d Decision) error {
	err := sleep(ctx, d.Delay)
	if err != nil {
		undo := Settlement{Charge: Charge{Quota: l.quota, Key: key, Cost: n, Decision: Decision{Receipt: l.quota.Undo(&d)}}}
		ctx, end := outlive(ctx)
		defer end()
		_ = l.store.Settle(ctx, []Settlement{undo}) // else it drains
	}
	return err
}

// queueOf returns how long an event of that cost must wait if it just fits.
func (q *Quota) queueOf(cost int64) time.Duration {
	if !q.queue {
		return 0
	}
	return micros(q.byRefill.up((q.capacity - cost) * q.unit))
}

// A WaitError says why [Limiter.Wait] did not wait.
type WaitError struct {
	// Name is the limiter's name.
	Name string

	// Wait is the shortest time that the wait would have taken. It is Never if the units can never be
	// there.
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

// maxJitter bounds how late [Limiter.Wait] takes units that are there.
const maxJitter = 100 * time.Millisecond

// jittered returns d and up to a tenth more, if ctx lasts that long: callers that were refused
// together should not ask again together. The jitter is at most maxJitter, and at most the time in
// which the limit lets one unit pass, or a fast limit would lie idle.
func (l *Limiter) jittered(ctx context.Context, d time.Duration) time.Duration {
	most := min(d/10, maxJitter)
	for _, q := range l.quotas {
		most = min(most, q.limit.Per/time.Duration(q.limit.Events))
	}
	if more := d + rand.N(most+1); fits(ctx, more) {
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
