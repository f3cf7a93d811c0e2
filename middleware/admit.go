package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weirgo/weir/limiter"
)

// admit is the fourth phase of a request. It waits for the turn in a leaky bucket, and for a slot of
// Config.Overload. If Overload refuses the request, or new rules ban it meanwhile, nothing stays charged. If the client
// leaves while it waits for its turn, keepCharges applies.
func (l *RateLimit) admit(r *http.Request, v *visit, overload Overload, route router) (no refusal) {
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
	if set := l.rules.Load(); no.status == 0 && set != v.set { // it was charged by the rules before
		no = refusal{outcome: OutcomeNoKey, status: http.StatusBadRequest}
		if route(set, r) == "" {
			no = set.screen(r, noKey).no
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

// queue makes a request wait for slots, in one queue at a time and holding nothing, until all charges can be taken. It
// waits only while it lacks nothing but slots. If another slot is missing in its turn, it goes to the end of that
// queue. If the rules change meanwhile, the error is errOutdated, and the request keeps its place.
func (l *RateLimit) queue(ctx context.Context, v *visit) (no refusal, err error) {
	began, before := l.now(), v.waited
	var in *progress // nil: it has not waited yet
	last := -1
	defer func() {
		v.waited = before + l.now().Sub(began)
		if in != nil {
			in.waiting.Add(-1)
		}
	}()
	for decided := v.outcome == OutcomeRefused; ; decided = false {
		at, called := v.missingSlot(), false
		if !decided {
			at, err = l.attempt(ctx, v)
		}
		switch {
		case err == nil && at < 0:
			return l.verdict(ctx, v), nil
		case err == nil:
			last, called = l.join(v, at)
		case in == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()):
			return l.undecided(ctx, v, err), err
		}
		limits, charges := v.applied()
		a, c := &limits[last], &charges[last]
		if called {
			if in != nil {
				in.waiting.Add(-1)
			}
			in = a.progress
			in.waiting.Add(1)
			called, err = v.place.Wait(ctx, a.concurrency.MaxWait-before-l.now().Sub(began))
		}
		switch {
		case called && l.rules.Load() != v.set:
			return no, errOutdated
		case called:
		case err != nil && isGone(ctx):
			return refusal{outcome: OutcomeRefused, status: statusClientClosedRequest}, nil
		default: // the queue is full, or the time is up
			v.place.Leave()
			v.outcome = OutcomeRefused
			if c.Decision.Allowed { // a look
				refuseLook(&c.Decision)
			}
			c.Decision.RetryAfter = l.room.Behind(keyOf(c), c.Decision.RetryAfter)
			return l.verdict(ctx, v), nil
		}
	}
}

// attempt takes all charges, or looks at them while others come first. It returns the slot to wait for, or -1 if the
// request is decided.
func (l *RateLimit) attempt(ctx context.Context, v *visit) (at int, err error) {
	first := v.occupied(&l.room)
	if first < 0 {
		err = l.take(ctx, v)
		return v.missingSlot(), err
	}
	if err = l.look(ctx, v); err != nil {
		return -1, err
	}
	if v.lacksMore() {
		if fits, err := l.takeRest(ctx, v); !fits {
			return -1, err
		}
	}
	_, charges := v.applied()
	return v.firstQueued(func(i int) bool { return i == first || charges[i].Decision.Remaining <= 0 }), nil
}

// takeRest decides about a request without the slots for which others wait. It keeps nothing of what fits.
func (l *RateLimit) takeRest(ctx context.Context, v *visit) (fits bool, err error) {
	limits, charges := v.applied()
	for i := range limits {
		if limits[i].queued {
			charges[i].Cost = 0
		}
	}
	if err = l.take(ctx, v); err == nil && v.outcome == OutcomeAllowed {
		fits = true
		l.undo(ctx, v)
	}
	for i := range limits {
		if limits[i].queued {
			charges[i].Cost = 1
		}
	}
	return fits, err
}

// join gives a request a place in the queue of slot at or, if its client's slots are for others in that queue, of
// that slot. It returns false if there is no place.
func (l *RateLimit) join(v *visit, at int) (_ int, ok bool) {
	limits, _ := v.applied()
	for {
		terms, of := v.terms(at), []int(nil)
		terms.Claims, of = v.claims(at)
		place, lacks := l.room.Join(terms, v.place)
		switch {
		case place != nil:
			v.place = place
			return at, true
		case lacks < 0 || !limits[of[lacks]].queued:
			return at, false
		}
		at = of[lacks]
	}
}

// wakeWaiters wakes the requests that wait for slots which this refused request did not take: they may
// have found them taken meanwhile.
func (l *RateLimit) wakeWaiters(v *visit) {
	limits, charges := v.applied()
	for i := range limits {
		if limits[i].slot && charges[i].Decision.Allowed && charges[i].Cost > 0 {
			l.room.Released(keyOf(&charges[i]))
		}
	}
}

// overloadFor returns the Overload that r needs a slot of, or nil if r has one already.
func (set *ruleset) overloadFor(r *http.Request) Overload {
	for e := endOf(r.Context()); e != nil; e = endOf(e.Context) {
		if e.slot != nil && e.set.Overload == set.Overload {
			return nil
		}
	}
	return set.Overload
}
