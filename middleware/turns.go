package middleware

import (
	"context"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/limiter"
)

// A LeakyBucket gives each request a turn, and the request waits for it. A turn can only be refunded if no other request
// has a later one.

var turns = feature{
	quota: func(r *rule, q *limiter.Quota) error {
		const why = "a leaky-bucket cannot have it, as its requests have waited when they are answered"
		switch {
		case q.Algorithm() != limiter.LeakyBucket:
		case r.Counts.given:
			return invalid.Field("middleware", "Counts", "is %v: %s", r.Counts, why)
		case r.Counts.after:
			return invalid.Field("middleware", "Afterwards", "is set: %s", why)
		case r.Cost.settles:
			return invalid.Field("middleware", "Reserve",
				"cannot go with a leaky-bucket: a request's turn would depend on what others reserved")
		}
		return nil
	},
	family: func(f *family) (needed bool, err error) {
		for _, m := range f.rates {
			needed = needed || m.hasTurns
		}
		return needed, nil
	},
	before: askInTime,
	after:  waitForTurn,
}

// askInTime asks for no turn that would come after the request's deadline. If a limit may refuse the request by a look,
// it looks before it takes a turn.
func askInTime(v *visit) (again bool, no *refusal) {
	deadline, ok := v.request.Context().Deadline()
	takes, looks := false, false
	for i := range v.met {
		switch m := &v.met[i]; {
		case m.Optional:
		case m.hasTurns:
			if takes = true; ok {
				m.Within = max(time.Until(deadline), time.Microsecond)
			}
		default:
			looks = looks || m.Cost == 0
		}
	}
	if takes && looks && v.outcome == 0 {
		v.look()
	}
	return false, nil
}

// waitForTurn makes the request wait for its turn.
func waitForTurn(v *visit) (again bool, no *refusal) {
	switch v.outcome {
	case OutcomeRefused:
		if v.isLate() {
			v.outcome = OutcomeUndecided
		}
	case OutcomeAllowed:
		d := v.delay()
		if deadline, ok := v.request.Context().Deadline(); ok && d > 0 && time.Until(deadline) < d {
			v.refund((*met).took) // the store's answer took too long
			v.outcome = OutcomeUndecided
		} else if d > 0 && !v.limiter.delayed(v.request.Context(), d) {
			// The client has left. It could fill a queue for free if its turn were refunded.
			v.refund((*met).isOpen)
			no = v.refuse(refusal{outcome: OutcomeAllowed, status: statusClientClosedRequest}) // the rules admitted it
		}
	}
	return false, no
}

// isLate reports whether the request is refused only because its turns would come after its deadline.
func (v *visit) isLate() bool {
	for i := range v.met {
		m := &v.met[i]
		isLate := m.hasTurns && m.Within > 0 && m.Decision.Remaining >= m.Cost
		if !m.Optional && !m.Decision.Allowed && !isLate {
			return false
		}
	}
	return true
}

// delayed waits for d, and returns false as soon as the client leaves.
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
