package middleware

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// decideObserved is decide, and tells the observer of it.
func (l *RateLimit) decideObserved(set *ruleset, r *http.Request, s *decided, charges []limiter.Charge) (status int, taken []limiter.Charge) {
	if set.Observer == nil {
		status, taken, _ = l.decide(r.Context(), set, s, charges)
		return status, taken
	}
	o := observations.Get().(*Observation)
	var began time.Time
	if l.timed(o) {
		began = time.Now()
	}
	status, taken, err := l.decide(r.Context(), set, s, charges)
	elapsed := time.Duration(0)
	if !began.IsZero() {
		elapsed = max(time.Since(began), 1)
	}
	set.observeRules(o, r, s.outcome(status), s, elapsed, err)
	return status, taken
}

// decide has the store decide on the charges, and returns 200 and what was taken, and when;
// or the status to refuse with: 503 if it could not, with the error, or if the request's turn
// comes too late.
func (l *RateLimit) decide(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge) (status int, taken []limiter.Charge, err error) {
	if err := l.ask(ctx, set, charges, s.decisions); err != nil {
		return l.undecided(ctx, set, s, err), nil, err
	}
	switch s.allowed = allAllowed(s.decisions); {
	case s.allowed:
		for i := range charges {
			charges[i].At = s.decisions[i].At
		}
	case set.hasShadowOrOverdraft:
		taken, err := l.overdraw(ctx, set, s, charges)
		if err != nil {
			return l.undecided(ctx, set, s, err), nil, err
		}
		if s.allowed {
			charges = taken
		}
	}
	if !s.allowed {
		if set.hasEscalation {
			l.escalate(ctx, set, s, charges)
		}
		return http.StatusTooManyRequests, nil, nil
	}
	if d := s.delay(); d > 0 && tooLate(ctx, d) {
		// Its place in the queue is for another request, and the client learns now.
		l.undo(ctx, set, charges)
		return http.StatusServiceUnavailable, nil, nil
	}
	return http.StatusOK, charges, nil
}

// undo returns what was just taken.
func (l *RateLimit) undo(ctx context.Context, set *ruleset, taken []limiter.Charge) {
	refunds := slices.Clone(taken)
	for i := range refunds {
		refunds[i].At = refunds[i].Quota.UndoAt(&limiter.Decision{At: refunds[i].At})
	}
	if err := l.store.Refund(ctx, refunds); err != nil {
		l.warnStoreFailure(set, err)
	}
}

// ask has the store decide. Charges and decisions stay on the stack if it is a Memory.
func (l *RateLimit) ask(ctx context.Context, set *ruleset, charges []limiter.Charge, decisions []limiter.Decision) error {
	if l.memory != nil {
		return l.memory.Decide(ctx, charges, decisions)
	}
	if set.hasEscalation {
		// A client that hangs up at once is counted all the same, or it would never be banned.
		var cancel context.CancelFunc
		ctx, cancel = uncancelled(ctx)
		defer cancel()
	}
	answers := make([]limiter.Decision, len(decisions))
	err := l.store.Decide(ctx, slices.Clone(charges), answers)
	copy(decisions, answers)
	return err
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
func (l *RateLimit) undecided(ctx context.Context, set *ruleset, s *decided, err error) int {
	if ctx.Err() == nil { // a client that went away is no outage
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
