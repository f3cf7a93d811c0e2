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

// admit is the fourth phase of a request. It waits for a slot of AtOnce, for the turn in a leaky bucket,
// and for a slot of Config.Overload. If Overload refuses the request, nothing stays charged. If the
// client leaves while it waits for its turn, keepCharges applies. The error is the store's, or err.
func (l *RateLimit) admit(set *ruleset, r *http.Request, s *decided, charges []limiter.Charge, overload Overload, err error) (slot Slot, waited time.Duration, no *refusal, _ error) {
	ctx := r.Context()
	if s.awaits >= 0 {
		if waited, no, err = l.queue(ctx, set, s, charges); no != nil {
			return nil, waited, no, err
		}
	}
	if d := s.delay(); d > 0 && !l.delayed(ctx, d) {
		s.keepCharges()
		no = &refusal{status: statusClientClosedRequest, outcome: OutcomeAllowed} // the rules admitted it
	}
	if no == nil && overload != nil {
		var retryAfter time.Duration
		switch slot, retryAfter = overload.Admit(r); {
		case slot != nil:
		case isGone(ctx):
			no = &refusal{status: statusClientClosedRequest, outcome: OutcomeAllowed}
		default:
			no = &refusal{status: http.StatusServiceUnavailable, outcome: OutcomeShed, retryAfter: retryAfter}
		}
	}
	if no != nil {
		l.giveBack(ctx, set, s, nil)
	}
	return slot, waited, no, err
}

// keepCharges makes giveBack return only slots, and charges that the end of the request may change. If a
// client leaves while it waits for its turn, the rest stays charged, or it could fill a queue for free.
func (s *decided) keepCharges() {
	for i := range s.policies {
		p := &s.policies[i]
		p.spared = p.spared || !p.isSlot() && !p.rule.awaitsEnd()
	}
}

// giveBack refunds the charges of a request that goes no further, also if its client is gone, and
// releases its slot of Config.Overload.
func (l *RateLimit) giveBack(ctx context.Context, set *ruleset, s *decided, slot Slot) {
	if slot != nil {
		slot.Leave()
	}
	if s.isAllowed() {
		l.undo(ctx, set, s)
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

// A slotKey names a queue for slots.
type slotKey struct{ rule, tier, key string }

func slotKeyOf(q *limiter.Quota, key string) slotKey { return slotKey{q.Rule(), q.Tier(), key} }

// queues reports whether requests may wait for a slot of p.
func (p *policy) queues() bool { return p.concurrency.Waiting > 0 && !p.shadow }

// queue makes a request wait for slots, in one queue at a time and holding nothing, until it is the
// first and all charges can be taken. If another slot is missing then, it goes to the end of that queue.
func (l *RateLimit) queue(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge) (waited time.Duration, no *refusal, err error) {
	// A copy waits, as it escapes to the heap. It has no outer, or all of s would escape.
	w := &decided{policies: slices.Clone(s.policies), decisions: slices.Clone(s.decisions), outcome: s.outcome, awaits: s.awaits, asked: s.asked, timed: s.timed}
	began := l.now()
	gone, err := l.wait(ctx, set, w, slices.Clone(charges))
	waited = l.now().Sub(began)
	copy(s.policies, w.policies)
	copy(s.decisions, w.decisions)
	s.outcome = w.outcome
	s.elapsed += w.elapsed
	switch {
	case gone:
		return waited, &refusal{status: statusClientClosedRequest, outcome: OutcomeRefused}, nil
	case err != nil:
		return waited, l.undecided(ctx, set, s, err), err
	}
	return waited, l.verdict(ctx, set, s), nil
}

// occupied returns the index of the first policy with a queue that is not empty, or -1.
func (s *decided) occupied(room *waiting.Room[slotKey]) int32 {
	for i := range s.policies {
		if a := &s.policies[i]; a.queues() && !room.IsEmpty(slotKeyOf(a.quota, a.key)) {
			return int32(i)
		}
	}
	return -1
}

// wait is queue for a copy of s. Gone says that the client has left.
func (l *RateLimit) wait(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge) (gone bool, _ error) {
	began := l.now()
	for at := s.awaits; at >= 0; at = s.missingSlot() {
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
			return s.isAllowed() || s.decisions[at].Allowed || s.missingSlot() < 0, err
		})
		switch {
		case err != nil && isGone(ctx):
			s.outcome = OutcomeRefused
			return true, nil
		case err != nil && errors.Is(err, ctx.Err()): // the application's deadline is over
			s.asked = false
			return false, l.describeFull(ctx, s, at, charges)
		case err != nil:
			return false, err
		case !got:
			return false, l.describeFull(ctx, s, at, charges)
		}
	}
	return false, nil
}

// inTurn waits in a's queue, and counts the request as waiting, also if the store panics.
func (l *RateLimit) inTurn(ctx context.Context, a *applied, patience time.Duration, ask func() (bool, error)) (bool, error) {
	a.progress.waiting.Add(1)
	defer a.progress.waiting.Add(-1)
	return l.room.Wait(ctx, slotKeyOf(a.quota, a.key), a.concurrency.Waiting, patience, ask)
}

// refresh makes charges of slots use the rules in force. They may have changed while the request waited:
// if more slots are allowed now, the request must not block those behind it.
func (set *ruleset) refresh(s *decided, charges []limiter.Charge) {
	for i := range charges {
		was := charges[i].Quota
		if !was.InFlight() || s.policies[i].info.Own { // the limit of a single key is not in the rules
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

// missingSlot returns the index of the policy whose slot a refused request should wait for. It returns
// -1 if the request passes, or if anything but slots is missing.
func (s *decided) missingSlot() (at int32) {
	at = -1
	if s.isAllowed() {
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

// describeFull completes the decisions for a request that got no slot: its queue is full, or it has
// waited too long.
func (l *RateLimit) describeFull(ctx context.Context, s *decided, at int32, charges []limiter.Charge) error {
	d := &s.decisions[at]
	if !s.asked { // it was never the first in the queue
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
		defer cancel()
		looks := slices.Clone(charges)
		for i := range looks {
			looks[i].Cost = 0
		}
		if err := l.store.Decide(ctx, looks); err != nil {
			return err
		}
		copyDecisions(s.decisions, looks)
		s.outcome, d.Allowed, d.RetryAfter = OutcomeRefused, false, max(time.Microsecond, d.NextAfter)
	}
	d.RetryAfter = l.room.Behind(slotKeyOf(charges[at].Quota, charges[at].Key), d.RetryAfter)
	return nil
}

// wakeWaiters wakes the requests that wait for slots which this refused request did not take: they may
// have found them taken meanwhile.
func (l *RateLimit) wakeWaiters(s *decided) {
	for i := range s.policies {
		if a := &s.policies[i]; a.isSlot() && s.decisions[i].Allowed {
			l.room.Released(slotKeyOf(a.quota, a.key))
		}
	}
}

// warnPatience warns if a request may wait longer than its server's WriteTimeout.
func (a *applied) warnPatience(ctx context.Context, set *ruleset) {
	server, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	if !ok || server.WriteTimeout <= 0 || a.concurrency.MaxWait < server.WriteTimeout {
		return
	}
	a.rule.notes.patience.warn(set.Logger, "weir-wait-too-long",
		"weir: requests may wait for a slot until their server's WriteTimeout is over, and then cannot be answered; lower MaxWait",
		slog.String("rule", a.rule.Name), slog.Duration("max_wait", a.concurrency.MaxWait), slog.Duration("write_timeout", server.WriteTimeout))
}

// overloadOf returns the Overload that r needs a slot of, or nil if r has one already.
func (set *ruleset) overloadOf(r *http.Request) Overload {
	for e := endingOf(r.Context()); e != nil; e = endingOf(e.Context) {
		if e.slot != nil && e.set.Overload == set.Overload {
			return nil
		}
	}
	return set.Overload
}
