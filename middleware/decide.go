package middleware

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// decide is the third phase of a request. It asks the store once, and puts the decisions into s. If the
// request lacks only a slot that it may wait for, s.awaits is its index, and admit goes on.
func (l *RateLimit) decide(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge) (no *refusal, err error) {
	if set.hasQueues.Load() {
		s.awaits = s.occupied(&l.room) // others wait already, and come first
	}
	if len(charges) == 0 || s.awaits >= 0 {
		return nil, nil
	}
	if err := l.take(ctx, set, s, charges); err != nil {
		return l.undecided(ctx, set, s, err), err
	}
	if set.hasQueues.Load() {
		s.awaits = s.missingSlot()
		s.asked = s.awaits >= 0
	}
	if s.awaits >= 0 {
		return nil, nil
	}
	return l.verdict(ctx, set, s), nil
}

// verdict returns the refusal of a decided request, or nil.
func (l *RateLimit) verdict(ctx context.Context, set *ruleset, s *decided) *refusal {
	switch s.outcome {
	case OutcomeUndecided:
		return &refusal{status: http.StatusServiceUnavailable, outcome: OutcomeUndecided}
	case OutcomeRefused:
		if set.hasEscalation {
			l.escalate(ctx, set, s)
		}
		no := &refusal{status: http.StatusTooManyRequests, outcome: OutcomeRefused}
		if set.hasSlots.Load() {
			var shared bool
			if no.full, shared = s.full(); shared {
				no.status = http.StatusServiceUnavailable
			}
		}
		return no
	}
	if tooLate(ctx, s.delay()) { // others came after lookFirst
		l.undo(ctx, set, s)
		return &refusal{status: http.StatusServiceUnavailable, outcome: OutcomeUndecided}
	}
	return nil
}

// take has the store take all charges, or none, and puts the decisions into s. It takes no turn in a
// leaky bucket that the request would not use: a turn can only be refunded if no other follows it, so
// refused requests could fill the queue.
func (l *RateLimit) take(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge) error {
	if s.timed {
		began := time.Now()
		defer func() { s.elapsed += max(time.Since(began), 1) }()
	}
	if _, hasDeadline := ctx.Deadline(); (hasDeadline || slices.ContainsFunc(s.policies, mayRefuseAfter)) && slices.ContainsFunc(charges, isTurn) {
		turns := l.turns.enter(charges)
		defer l.turns.leave(turns)
		if known, err := l.lookFirst(ctx, set, s, charges, turns); known || err != nil {
			return err
		}
	}
	err := l.ask(ctx, set, charges, s.decisions)
	if err == nil && set.hasDistinct && s.hasSeen() {
		if outcomeOf(s.decisions) == OutcomeAllowed { // a look refuses nothing
			l.undo(ctx, set, s)
		}
		s.forgetSeen(charges)
		err = l.ask(ctx, set, charges, s.decisions)
	}
	if err != nil {
		return err
	}
	s.outcome = outcomeOf(s.decisions)
	if !s.isAllowed() && set.hasShadow {
		if err := l.passShadows(ctx, set, s, charges); err != nil {
			return err
		}
	}
	if set.chargesAfter && s.looksRefuse(set) && s.isAllowed() {
		l.undo(ctx, set, s)
	}
	if !s.isAllowed() && set.hasQueues.Load() {
		l.wakeWaiters(s)
	}
	return nil
}

// mayRefuseAfter reports whether p refuses a request if its look finds no unit left.
func mayRefuseAfter(p applied) bool { return p.looks && !p.ofValue && !p.shadow }

// lookFirst refuses a request if a rule that is charged afterwards has no unit left, or if a turn would
// come after the deadline.
func (l *RateLimit) lookFirst(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge, turns []inQueue) (known bool, err error) {
	looks := slices.Clone(charges)
	for i := range looks {
		looks[i].Cost = 0
	}
	if err := l.ask(ctx, set, looks, s.decisions); err != nil {
		return false, err
	}
	full, refused := false, false
	for i := range s.policies {
		p, d := &s.policies[i], &s.decisions[i]
		switch {
		case p.shadow || !d.Counted():
		case p.looks && !p.ofValue:
			refused = refused || p.lacks(d)
		default:
			full = full || d.Remaining < p.cost
		}
	}
	switch {
	case refused:
		s.outcome = OutcomeRefused
		s.looksRefuse(set)
		return true, nil
	case full: // take counts it as the refusal of a limit
		return false, nil
	case l.turns.send(ctx, s, turns):
		return false, nil
	}
	s.outcome = OutcomeUndecided
	return true, nil
}

// looksRefuse reports whether a rule that is charged afterwards has no unit left. It then refuses the
// request, though the store admits every look.
func (s *decided) looksRefuse(set *ruleset) (refuse bool) {
	for i := range s.policies {
		p, d := &s.policies[i], &s.decisions[i]
		if !p.looks || p.ofValue || !d.Counted() || !p.lacks(d) {
			continue
		}
		d.Allowed, d.RetryAfter = false, max(d.NextAfter, time.Microsecond)
		if p.cost > p.quota.Capacity() {
			d.RetryAfter = limiter.Never
		}
		if p.shadow {
			p.rule.notes.shadowed.note(set.Logger, p.info)
		}
		refuse = refuse || !p.shadow
	}
	return refuse
}

// lacks reports whether a look finds no unit left, or a cost that the limit never allows at once.
func (a *applied) lacks(d *limiter.Decision) bool {
	return d.Remaining <= 0 || a.cost > a.quota.Capacity()
}

// undo refunds what was just taken. The decisions are then those of looks.
func (l *RateLimit) undo(ctx context.Context, set *ruleset, s *decided) {
	var taken []limiter.Settlement
	for i := range s.decisions {
		d := &s.decisions[i]
		c, ok := s.took(i)
		if !ok || c.Cost == 0 {
			continue
		}
		if c.Decision.Receipt = c.Quota.Undo(d); c.Quota.InFlight() {
			l.releaseSlot(ctx, set, c)
		} else {
			taken = append(taken, limiter.Settlement{Charge: c})
		}
		if d.Remaining = min(d.Remaining+c.Cost, d.Limit); d.Remaining == d.Limit {
			d.NextAfter, d.ResetAfter = 0, 0
		}
		d.Receipt = limiter.Receipt{} // nothing is left to refund
	}
	s.outcome = OutcomeRefused
	if len(taken) == 0 {
		return
	}
	if err := l.settle(ctx, taken); err != nil {
		l.warnStoreFailure(set, err)
	}
}

// took returns what the request was charged by a policy, if it was.
func (s *decided) took(rule int) (limiter.Charge, bool) {
	p, d := &s.policies[rule], &s.decisions[rule]
	c := limiter.Charge{Quota: p.quota, Key: p.key, Cost: p.cost, Decision: *d}
	if p.looks {
		c.Cost = 0
	}
	return c, d.Allowed && d.Counted() && !p.spared // in an outage, a rule with FailOpen takes nothing
}

// ask calls the store, and puts the charges' decisions into decisions. If the store is a Memory, the charges
// stay on the stack.
func (l *RateLimit) ask(ctx context.Context, set *ruleset, charges []limiter.Charge, decisions []limiter.Decision) error {
	if l.memory != nil {
		err := l.memory.Decide(ctx, charges)
		copyDecisions(decisions, charges)
		return err
	}
	if set.hasEscalation {
		// A client that disconnects at once must be counted too, or it would never be banned.
		deadline, ok := ctx.Deadline()
		if ctx = context.WithoutCancel(ctx); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
	}
	sent := slices.Clone(charges)
	err := l.store.Decide(ctx, sent)
	copyDecisions(decisions, sent)
	return err
}

func copyDecisions(to []limiter.Decision, from []limiter.Charge) {
	for i := range from {
		to[i] = from[i].Decision
	}
}

// undecided returns the refusal of a request that the store could not decide about, or nil if all rules
// are in shadow.
func (l *RateLimit) undecided(ctx context.Context, set *ruleset, s *decided, err error) *refusal {
	if ctx.Err() == nil { // a client that leaves is no outage
		l.warnStoreFailure(set, err)
	}
	for _, p := range s.policies {
		if !p.shadow {
			return &refusal{status: http.StatusServiceUnavailable, outcome: OutcomeUndecided, retryAfter: time.Second}
		}
	}
	s.outcome = OutcomeAllowed
	return nil
}

func outcomeOf(decisions []limiter.Decision) Outcome {
	for i := range decisions {
		if !decisions[i].Allowed {
			return OutcomeRefused
		}
	}
	return OutcomeAllowed
}

// tooLate reports whether ctx ends before d is over.
func tooLate(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && d > 0 && time.Until(deadline) < d
}

// A decided has the decisions of one limiter about a request. It stays on the stack of begin, with the
// arrays behind its slices, until the request passes. So it has no context, which others may keep: if
// one field of a struct escapes, the compiler lets all escape.
type decided struct {
	outer *scope // of the limiter further out; nil: there is none

	// Both have an element for each policy that applied.
	policies  []applied
	decisions []limiter.Decision

	outcome Outcome       // OutcomeAllowed, OutcomeRefused by a limit, or OutcomeUndecided
	asked   bool          // the store was asked, for a request that waits for a slot
	timed   bool          // the observer wants elapsed
	awaits  int32         // index of the policy that it waits for a slot of; -1: none
	elapsed time.Duration // in the store
}

// isAllowed reports whether all rules allow the request.
func (s *decided) isAllowed() bool { return s.outcome == OutcomeAllowed }

// delay returns how long the request must wait for its turn.
func (s *decided) delay() (d time.Duration) {
	for i := range s.decisions {
		if !s.policies[i].shadow {
			d = max(d, s.decisions[i].Delay)
		}
	}
	return d
}

// fewRules is how many policies fit a workspace.
const fewRules = 4

// full returns how many requests may be in progress at once, if only slots are missing for a refused
// request, and whether all clients share these slots.
func (s *decided) full() (most int64, shared bool) {
	shared = true
	for i := range s.policies {
		a, d := &s.policies[i], &s.decisions[i]
		switch {
		case d.Allowed || a.shadow:
		case !a.isSlot():
			return 0, false
		default:
			most = d.Limit
			shared = shared && a.rule.together
		}
	}
	return most, shared && most > 0
}

// isTimed reports whether to measure the time of a decision for the observer. Reading the clock twice
// costs as much as a decision in memory.
func (set *ruleset) isTimed(l *RateLimit) bool {
	return set.Observer != nil && (!l.immediate || rand.N(64) == 0)
}
