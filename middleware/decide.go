package middleware

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// decideObserved is decide, and tells the observer of it.
func (l *RateLimit) decideObserved(set *ruleset, r *http.Request, s *scope, charges []limiter.Charge) int {
	s.decisions = s.decisions[:len(charges)]
	if set.Observer == nil {
		status, _ := l.decide(set, s, charges)
		return status
	}
	o := observations.Get().(*Observation)
	var began time.Time
	if l.timed(o) {
		began = time.Now()
	}
	status, err := l.decide(set, s, charges)
	elapsed := time.Duration(0)
	if !began.IsZero() {
		elapsed = max(time.Since(began), 1)
	}
	set.observeRules(o, r, s.outcome(status), s, elapsed, err)
	return status
}

// decide has the store decide on the charges, and returns 200, or the status to refuse
// with: 503 if it could not, with the error, or if the request's turn comes too late.
func (l *RateLimit) decide(set *ruleset, s *scope, charges []limiter.Charge) (status int, err error) {
	if err := l.ask(s, set, charges, s.decisions); err != nil {
		return l.undecided(set, s, err), err
	}
	s.allowed = allAllowed(s.decisions)
	atOnce := s.allowed
	if !s.allowed && set.hasShadowOrOverdraft {
		taken, err := l.overdraw(set, s, charges)
		if err != nil {
			return l.undecided(set, s, err), err
		}
		if s.allowed {
			charges = taken
		}
	}
	if !s.allowed {
		if set.hasEscalation {
			l.escalate(set, s, charges)
		}
		return http.StatusTooManyRequests, nil
	}
	if d := s.delay(); d > 0 && tooLate(s, d) {
		// Its place in the queue is for another request, and the client learns now.
		taken := slices.Clone(charges)
		for i := range taken {
			if atOnce { // else overdraw has noted it
				taken[i].At = taken[i].Quota.UndoAt(&s.decisions[i])
			}
		}
		if err := l.store.Refund(s, taken); err != nil {
			l.warnStoreFailure(set, err)
		}
		return http.StatusServiceUnavailable, nil
	}
	return http.StatusOK, nil
}

// ask has the store decide. Charges stay on the stack if it is a Memory.
func (l *RateLimit) ask(s *scope, set *ruleset, charges []limiter.Charge, decisions []limiter.Decision) error {
	if l.memory != nil {
		return l.memory.Decide(s.Context, charges, decisions)
	}
	ctx := s.Context
	if set.hasEscalation {
		// A client that hangs up at once is counted all the same, or it would never be banned.
		var cancel context.CancelFunc
		ctx, cancel = uncancelled(ctx)
		defer cancel()
	}
	return l.store.Decide(ctx, slices.Clone(charges), decisions)
}

// uncancelled is ctx, with its deadline, for what goes on when the client goes away.
func uncancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// undecided is the status of a request that the store could not decide about.
func (l *RateLimit) undecided(set *ruleset, s *scope, err error) int {
	if s.Err() == nil { // a client that went away is no outage
		l.warnStoreFailure(set, err)
	}
	for _, p := range s.policies {
		if !p.info.Shadow {
			return http.StatusServiceUnavailable
		}
	}
	s.allowed = true
	return http.StatusOK
}

func allAllowed(decisions []limiter.Decision) bool {
	for i := range decisions {
		if !decisions[i].Allowed {
			return false
		}
	}
	return true
}

// tooLate reports whether ctx ends before a turn that comes after d.
func tooLate(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < d
}

// wait returns after d, or at once and false when the client goes away.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
