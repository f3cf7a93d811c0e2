package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weirgo/weir/limiter"
)

// admit is the fourth phase of a request. It waits for the turn in a leaky bucket, and for a slot of
// Config.Overload. If Overload refuses the request, nothing stays charged. If the client leaves while it waits
// for its turn, keepCharges applies.
func (l *RateLimit) admit(r *http.Request, v *visit, overload Overload) (no refusal) {
	ctx := r.Context()
	gone := refusal{outcome: OutcomeAllowed, status: statusClientClosedRequest} // the rules admitted it
	if d := v.delay(); d > 0 && !l.delayed(ctx, d) {
		v.keepCharges()
		no = gone
	}
	if no.status == 0 && overload != nil {
		var retry time.Duration
		switch v.slot, retry = overload.Admit(r); {
		case v.slot != nil:
		case isGone(ctx):
			no = gone
		default:
			no = refusal{outcome: OutcomeShed, status: http.StatusServiceUnavailable, retry: retry}
		}
	}
	if no.status != 0 {
		l.giveBack(ctx, v)
	}
	return no
}

// keepCharges makes giveBack return only slots, and charges that the end of the request may change. If a
// client leaves while it waits for its turn, the rest stays charged, or it could fill a queue for free.
func (v *visit) keepCharges() {
	limits, _ := v.applied()
	for i := range limits {
		limits[i].kept = !limits[i].slot && !limits[i].rule.awaitsEnd()
	}
}

// giveBack refunds the charges of a request that goes no further, also if its client is gone, and
// releases its slot of Config.Overload.
func (l *RateLimit) giveBack(ctx context.Context, v *visit) {
	if v.slot != nil {
		v.slot.Leave()
	}
	if v.outcome == OutcomeAllowed {
		l.undo(ctx, v)
	}
}

// delayed returns true after d, or false as soon as the client leaves.
func (l *RateLimit) delayed(ctx context.Context, d time.Duration) bool {
	if l.clock != nil {
		return true // the simulation adds the delay
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func keyOf(c *limiter.Charge) counterKey { return counterKey{c.Quota.Rule(), c.Quota.Tier(), c.Key} }

// queue makes a request wait for slots, in one queue at a time and holding nothing, until it is the first and all
// charges can be taken. If another slot is missing then, it goes to the end of that queue.
func (l *RateLimit) queue(ctx context.Context, v *visit) (no refusal, err error) {
	w := v.clone() // it escapes to the heap, as others call its methods
	began := l.now()
	no, err = l.wait(ctx, w)
	w.waited += l.now().Sub(began)
	*v = *w
	return no, err
}

func (l *RateLimit) wait(ctx context.Context, v *visit) (no refusal, err error) {
	began := l.now()
	at := v.occupied(&l.room)
	if at >= 0 { // others wait already, and come first
		err = l.look(ctx, v)
	} else if v.outcome != OutcomeRefused { // others waited, and have left since
		err = l.take(ctx, v)
	}
	if err != nil {
		return l.undecided(ctx, v, err), err
	}
	if at < 0 {
		at = v.missingSlot()
	}
	for ; at >= 0; at = v.missingSlot() {
		limits, charges := v.applied()
		a, c := &limits[at], &charges[at]
		got, err := l.inTurn(ctx, a, c, a.concurrency.MaxWait-v.waited-l.now().Sub(began), func() (bool, error) {
			if l.rules.Load() != v.set {
				return false, errOutdated
			}
			err := l.take(ctx, v)
			return v.outcome == OutcomeAllowed || c.Decision.Allowed || v.missingSlot() < 0, err
		})
		switch {
		case got && err == nil:
		case errors.Is(err, errOutdated):
			return no, err
		case err != nil && isGone(ctx):
			return refusal{outcome: OutcomeRefused, status: statusClientClosedRequest}, nil
		case err != nil && !errors.Is(err, ctx.Err()):
			return l.undecided(ctx, v, err), err
		default: // the queue is full, or the time is up
			v.outcome = OutcomeRefused
			if c.Decision.Allowed { // a look
				refuseLook(&c.Decision)
			}
			c.Decision.RetryAfter = l.room.Behind(keyOf(c), c.Decision.RetryAfter)
			return l.verdict(ctx, v), nil
		}
	}
	return l.verdict(ctx, v), nil
}

// inTurn waits in a's queue, and counts the request as waiting, also if the store panics.
func (l *RateLimit) inTurn(ctx context.Context, a *applied, c *limiter.Charge, patience time.Duration, ask func() (bool, error)) (bool, error) {
	a.progress.waiting.Add(1)
	defer a.progress.waiting.Add(-1)
	return l.room.Wait(ctx, keyOf(c), a.concurrency.Waiting, patience, ask)
}

// wakeWaiters wakes the requests that wait for slots which this refused request did not take: they may
// have found them taken meanwhile.
func (l *RateLimit) wakeWaiters(v *visit) {
	limits, charges := v.applied()
	for i := range limits {
		if limits[i].slot && charges[i].Decision.Allowed {
			l.room.Released(keyOf(&charges[i]))
		}
	}
}

// overloadFor returns the Overload that r needs a slot of, or nil if r has one already.
func (set *ruleset) overloadFor(r *http.Request) Overload {
	if set.Overload == nil {
		return nil
	}
	for e := endOf(r.Context()); e != nil; e = endOf(e.Context) {
		if e.slot != nil && e.set.Overload == set.Overload {
			return nil
		}
	}
	return set.Overload
}
