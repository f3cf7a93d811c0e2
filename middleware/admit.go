package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/internal/waiting"
	"github.com/weirgo/weir/limiter"
)

// admit is the fourth phase of a request: it waits for a slot, if it lacks one, for its turn in a
// leaky bucket, and for its place of Config.Overload. If Overload refuses it, nothing stays charged;
// if its client leaves its turn, what keepCharges says. The error is the store's, or the one given.
func (l *RateLimit) admit(set *ruleset, r *http.Request, s *decided, charges []limiter.Charge, overload Overload, err error) (slot Slot, waited time.Duration, no *refusal, _ error) {
	ctx := r.Context()
	if s.awaits >= 0 {
		if waited, no, err = l.queue(ctx, set, s, charges); no != nil {
			return nil, waited, no, err
		}
	}
	if d := s.delay(); d > 0 && !l.delayed(ctx, d) {
		s.keepCharges()
		no = &refusal{status: statusClientClosedRequest, outcome: OutcomeAllowed} // by the rules
	}
	if no == nil && overload != nil {
		var retryAfter time.Duration
		switch slot, retryAfter = overload.Admit(r); {
		case slot != nil:
		case isGone(ctx):
			no = &refusal{status: statusClientClosedRequest, outcome: OutcomeAllowed}
		default:
			no = &refusal{status: http.StatusServiceUnavailable, outcome: OutcomeShed, shed: true, retryAfter: retryAfter}
		}
	}
	if no != nil {
		l.giveBack(ctx, set, s, nil)
	}
	return slot, waited, no, err
}

// keepCharges keeps giveBack from all but slots, and what the end of the request would change. A
// client that leaves its turn has used its limits up, or it could fill a queue for nothing.
func (s *decided) keepCharges() {
	for i := range s.policies {
		p := &s.policies[i]
		p.spared = p.spared || !p.isSlot() && !p.rule.awaitsEnd()
	}
}

// giveBack returns what was charged to a request that goes no further, also if its client is gone,
// and its place of Config.Overload.
func (l *RateLimit) giveBack(ctx context.Context, set *ruleset, s *decided, slot Slot) {
	if slot != nil {
		slot.Leave()
	}
	if s.allowed {
		ctx, cancel := uncancelled(ctx)
		defer cancel()
		l.undo(ctx, set, s)
	}
}

// delayed returns after d, or at once and false when the client goes away.
func (l *RateLimit) delayed(ctx context.Context, d time.Duration) bool {
	if l.clock != nil {
		return true // it adds the delay itself
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

// lineKey is what requests wait under for a place.
type lineKey struct{ rule, tier, key string }

func lineOf(c *limiter.Charge) lineKey { return lineKey{c.Quota.Rule(), c.Quota.Tier(), c.Key} }

func (a *applied) line() lineKey { return lineKey{a.quota.Rule(), a.quota.Tier(), a.key} }

// queues reports whether a request waits for a place of a.
func (a *applied) queues() bool { return a.concurrency.Waiting > 0 && !a.shadow }

// queue has a request wait for slots, in one line at a time and holding nothing, until it is the
// first and everything can be taken. Should it lack another slot then, it goes to the end of that
// one's line.
func (l *RateLimit) queue(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge) (waited time.Duration, no *refusal, err error) {
	// What waits is a copy, as it leaves the stack. It has no outer, or all of s would leave it.
	w := &decided{policies: slices.Clone(s.policies), decisions: slices.Clone(s.decisions), awaits: s.awaits, asked: s.asked, timed: s.timed}
	began := l.now()
	gone, err := l.wait(ctx, set, w, slices.Clone(charges))
	waited = l.now().Sub(began)
	copy(s.policies, w.policies)
	copy(s.decisions, w.decisions)
	s.allowed, s.late = w.allowed, w.late
	s.elapsed += w.elapsed
	switch {
	case gone:
		return waited, &refusal{status: statusClientClosedRequest, outcome: OutcomeRefused}, nil
	case err != nil:
		return waited, l.undecided(ctx, set, s, err), err
	}
	return waited, l.verdict(ctx, set, s), nil
}

// line is the place of the first that other requests wait for already, or -1.
func (s *decided) line(room *waiting.Room[lineKey]) int32 {
	for i := range s.policies {
		if a := &s.policies[i]; a.queues() && !room.IsEmpty(a.line()) {
			return int32(i)
		}
	}
	return -1
}

// wait is queue for a copy of s. Gone: the client has left.
func (l *RateLimit) wait(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge) (gone bool, _ error) {
	began := l.now()
	for at := s.awaits; at >= 0; at = s.lacks() {
		a := &s.policies[at]
		a.warnPatience(ctx, set)
		got, err := l.inTurn(ctx, a, a.concurrency.MaxWait-l.now().Sub(began), func() (bool, error) {
			s.asked = true
			for i := range s.policies {
				s.policies[i].spared = false
			}
			if now := l.rules.Load(); now != set {
				now.refresh(s, charges)
			}
			err := l.take(ctx, set, s, charges)
			return s.allowed || s.decisions[at].Allowed || s.lacks() < 0, err
		})
		switch {
		case err != nil && isGone(ctx):
			s.allowed = false
			return true, nil
		case err != nil && errors.Is(err, ctx.Err()): // the time that the application gives it is up
			s.asked = false
			return false, l.noTurn(ctx, s, at, charges)
		case err != nil:
			return false, err
		case !got:
			return false, l.noTurn(ctx, s, at, charges)
		}
	}
	return false, nil
}

// inTurn waits in a's line, and counts as waiting until then, should the store panic too.
func (l *RateLimit) inTurn(ctx context.Context, a *applied, patience time.Duration, ask func() (bool, error)) (bool, error) {
	a.progress.waiting.Add(1)
	defer a.progress.waiting.Add(-1)
	return l.room.Wait(ctx, a.line(), a.concurrency.Waiting, patience, ask)
}

// refresh has charges of places count by the rules in force, as they may have changed while the
// request waited: more may be allowed now, and it would stand in the way of those that came later.
func (set *ruleset) refresh(s *decided, charges []limiter.Charge) {
	for i := range charges {
		was := charges[i].Quota
		if !was.InFlight() || s.policies[i].info.Own { // whose limit is not in the rules
			continue
		}
		at := slices.IndexFunc(set.quotas, func(q *limiter.Quota) bool {
			return q.InFlight() && q.Rule() == was.Rule() && q.Tier() == was.Tier() && q.OnOutage == was.OnOutage
		})
		if at >= 0 {
			charges[i].Quota = set.quotas[at]
		}
	}
}

// lacks is the place of what a refused request is to wait for, or -1: it passes, or not for want
// of a place alone.
func (s *decided) lacks() (at int32) {
	at = -1
	if s.allowed {
		return at
	}
	for i := range s.policies {
		a := &s.policies[i]
		switch {
		case s.decisions[i].Allowed || a.shadow:
		case !a.queues():
			return -1
		case at < 0:
			at = int32(i)
		}
	}
	return at
}

// noTurn describes the refusal of a request that could not wait, or not so long, for a place.
func (l *RateLimit) noTurn(ctx context.Context, s *decided, at int32, charges []limiter.Charge) error {
	d := &s.decisions[at]
	if !s.asked { // others were before it
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
		defer cancel()
		looks := slices.Clone(charges)
		for i := range looks {
			looks[i].Cost = 0
		}
		if err := l.store.Decide(ctx, looks, s.decisions); err != nil {
			return err
		}
		s.allowed, d.Allowed, d.RetryAfter = false, false, max(time.Microsecond, d.NextAfter)
	}
	d.RetryAfter = l.room.Behind(s.policies[at].line(), d.RetryAfter)
	return nil
}

// nudge has those asked next that wait for places which this request has not taken after all:
// while it was decided on they may have found them taken.
func (l *RateLimit) nudge(s *decided) {
	for i := range s.policies {
		if a := &s.policies[i]; a.isSlot() && s.decisions[i].Allowed {
			l.room.Returned(a.line())
		}
	}
}

// warnPatience warns of a request that may wait until its server no longer lets it be answered.
func (a *applied) warnPatience(ctx context.Context, set *ruleset) {
	server, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	if !ok || server.WriteTimeout <= 0 || a.concurrency.MaxWait < server.WriteTimeout {
		return
	}
	a.rule.notes.patience.warn(set.Logger, "weir-wait-too-long",
		"weir: requests may wait for a place until their server's WriteTimeout is over, and then cannot be answered; lower MaxWait",
		slog.String("rule", a.rule.Name), slog.Duration("max_wait", a.concurrency.MaxWait), slog.Duration("write_timeout", server.WriteTimeout))
}
