package middleware

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// decide is the third phase of a request: it asks the store once. The request's parts act before and after that. A part
// may wait, and then have decide called again.
func (v *visit) decide() (again bool, no *refusal) {
	if v.outcome = 0; len(v.met) == 0 {
		v.outcome = OutcomeAllowed
	}
	if again, no = v.before(); again || no != nil {
		return again, no
	}
	if v.outcome == 0 {
		v.ask(v.charges)
	}
	if again, no = v.after(); again || no != nil {
		return again, no
	}
	if v.err != nil {
		for i := range v.charges {
			v.charges[i].Decision = limiter.Decision{} // it means nothing
		}
	}
	switch v.outcome {
	case OutcomeRefused:
		return false, v.refusedByLimit()
	case OutcomeUndecided:
		return false, v.undecided()
	}
	return false, nil
}

// before takes the steps before the store is asked.
func (v *visit) before() (again bool, no *refusal) {
	for _, f := range v.parts {
		if f.before != nil && !again && no == nil {
			again, no = f.before(v)
		}
	}
	return again, no
}

// after takes the steps after the store was asked.
func (v *visit) after() (again bool, no *refusal) {
	for _, f := range v.parts {
		if f.after != nil && !again && no == nil {
			again, no = f.after(v)
		}
	}
	return again, no
}

// ask has the store take all charges, or none.
func (v *visit) ask(charges []limiter.Charge) {
	// Reading the clock twice costs as much as a decision in memory.
	l := v.limiter
	if v.set.Observer != nil && (!l.immediate || rand.N(64) == 0) {
		defer v.elapse(time.Now())
	}
	if ctx := v.request.Context(); l.memory != nil {
		v.err = l.memory.Decide(ctx, charges)
	} else {
		if v.asks != nil {
			var cancel context.CancelFunc
			ctx, cancel = v.asks(ctx)
			defer cancel()
		}
		sent := slices.Clone(charges) // which a store may still read after an error
		v.err = l.store.Decide(ctx, sent)
		copyDecisions(charges, sent)
	}
	switch {
	case v.err != nil:
		v.failed()
	case isTaken(charges):
		v.outcome = OutcomeAllowed
	default:
		v.outcome = OutcomeRefused
	}
}

func (v *visit) elapse(since time.Time) { v.elapsed += max(time.Since(since), 1) }

// isTaken reports whether a store that has decided took the charges: all that are not Optional are allowed.
func isTaken(charges []limiter.Charge) bool {
	for i := range charges {
		if c := &charges[i]; !c.Decision.Allowed && !c.Optional {
			return false
		}
	}
	return true
}

func copyDecisions(to, from []limiter.Charge) {
	for i := range from {
		to[i].Decision = from[i].Decision
	}
}

// look asks the store what is left, and takes nothing.
func (v *visit) look() {
	looks := slices.Clone(v.charges)
	for i := range looks {
		looks[i].Cost = 0
	}
	if v.ask(looks); v.err == nil {
		v.outcome = 0
		copyDecisions(v.charges, looks)
		for _, f := range v.parts {
			if f.looked != nil {
				f.looked(v)
			}
		}
	}
}

// failed sets the outcome if the store could not decide: the request passes if all its rules are in shadow.
func (v *visit) failed() {
	v.outcome = OutcomeAllowed
	if slices.ContainsFunc(v.charges, func(c limiter.Charge) bool { return !c.Optional }) {
		v.outcome = OutcomeUndecided
	}
	switch {
	case len(v.charges) > limiter.MaxCharges: // by WithLimit: New refuses rules that have as many
		v.set.warnOnce("weir-too-many-limits", "",
			"weir: WithLimit gave a rule so many limits that a request meets more than a store can decide about; such requests are answered 503",
			slog.Int("limits", len(v.charges)), slog.Int("most", limiter.MaxCharges))
	case v.request.Context().Err() == nil: // a client that leaves is no outage
		v.set.warnStoreFailure(v.err)
	}
}

// undecided returns the refusal of a request that the store could not decide about, or whose turn comes too late.
func (v *visit) undecided() *refusal {
	no := refusal{outcome: OutcomeUndecided, status: http.StatusServiceUnavailable, retry: failureRetry}
	for i := range v.shown { // a turn comes in time when the queue is shorter
		no.retry = max(no.retry, v.met[i].Decision.RetryAfter)
	}
	if len(v.charges) > limiter.MaxCharges {
		no.retry = limiter.Never
	}
	return v.refuse(no)
}

// refuseLook makes the decision of a look a refusal until the next unit comes.
func refuseLook(d *limiter.Decision) {
	d.Allowed, d.RetryAfter = false, max(d.NextAfter, time.Microsecond)
}
