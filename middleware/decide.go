package middleware

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
)

// decide is the third phase of a request. It asks the store once. If the request lacks only a slot, it waits for
// the slot and asks again. The error is the store's, or errOutdated.
func (l *RateLimit) decide(ctx context.Context, v *visit) (no refusal, err error) {
	if v.n == 0 {
		v.outcome = OutcomeAllowed
		return no, nil
	}
	if v.queues && v.occupied(&l.room) >= 0 {
		return l.queue(ctx, v)
	}
	if err = l.take(ctx, v); err != nil {
		return l.undecided(ctx, v, err), err
	}
	switch {
	case v.outcome == OutcomeAllowed && !v.turns:
		return no, nil
	case v.queues && v.missingSlot() >= 0:
		return l.queue(ctx, v)
	}
	return l.verdict(ctx, v), nil
}

// errOutdated says that the rules changed while the request waited: it begins anew with the rules in force.
var errOutdated = errors.New("middleware: the rules have changed")

// verdict returns the refusal of a decided request, if it is refused.
func (l *RateLimit) verdict(ctx context.Context, v *visit) (no refusal) {
	switch {
	case v.outcome == OutcomeRefused:
		if v.set.hasEscalation {
			l.escalate(ctx, v)
		}
		return v.refused()
	case v.outcome != OutcomeAllowed:
		return refusal{outcome: OutcomeUndecided, status: http.StatusServiceUnavailable}
	case tooLate(ctx, v.delay()): // others came after lookFirst
		l.undo(ctx, v)
		return refusal{outcome: OutcomeUndecided, status: http.StatusServiceUnavailable}
	}
	return no
}

// refused returns the refusal by the tightest limit that refuses. A limit explains more than a slot.
func (v *visit) refused() refusal {
	no := refusal{outcome: OutcomeRefused, status: http.StatusTooManyRequests}
	limits, charges := v.applied()
	var tightest *limiter.Decision
	slots, together := true, true
	for i := range limits {
		a, d := &limits[i], &charges[i].Decision
		if d.Allowed || charges[i].Optional {
			continue
		}
		no.retry = max(no.retry, d.RetryAfter)
		slots, together = slots && a.slot, together && a.rule.together
		if tightest == nil || d.IsTighterThan(tightest) {
			tightest, no.limit, no.rule = d, a.limit, a.rule
		}
	}
	if slots && tightest != nil {
		if no.full = tightest.Limit; together && no.full > 0 {
			no.status = http.StatusServiceUnavailable
		}
	}
	return no
}

// take has the store take all charges, or none. It takes no turn in a leaky bucket that the request would not
// use: a turn can only be refunded if no other follows it, so refused requests could fill the queue.
func (l *RateLimit) take(ctx context.Context, v *visit) error {
	// Reading the clock twice costs as much as a decision in memory.
	if v.set.Observer != nil && (!l.immediate || rand.N(64) == 0) {
		defer v.elapse(time.Now())
	}
	set := v.set
	limits, charges := v.applied()
	if v.turns {
		if _, hasDeadline := ctx.Deadline(); hasDeadline || slices.ContainsFunc(limits, mayRefuseAfter) {
			turns := l.turns.enter(limits, charges)
			defer l.turns.leave(turns)
			if known, err := l.lookFirst(ctx, v, turns); known || err != nil {
				return err
			}
		}
	}
	err := l.ask(ctx, set, charges)
	if err == nil && set.hasDistinct && v.hasSeen() {
		if store.Taken(charges) { // a look refuses nothing
			l.undo(ctx, v)
		}
		v.forgetSeen()
		err = l.ask(ctx, set, charges)
	}
	if err != nil {
		return err
	}
	if set.hasEnds {
		v.endWithOverrides()
	}
	if v.outcome = OutcomeAllowed; !store.Taken(charges) {
		v.outcome = OutcomeRefused
	}
	if set.chargesAfter && v.looksRefuse() && v.outcome == OutcomeAllowed {
		l.undo(ctx, v)
	}
	if v.queues && v.outcome != OutcomeAllowed {
		l.wakeWaiters(v)
	}
	return nil
}

func (v *visit) elapse(since time.Time) { v.elapsed += max(time.Since(since), 1) }

// mayRefuseAfter reports whether a refuses a request if its look finds no unit left.
func mayRefuseAfter(a applied) bool { return a.looks && !a.ofValue && !a.shadow }

// lookFirst refuses a request if a rule that is charged afterwards has no unit left, or if a turn would
// come after the deadline.
func (l *RateLimit) lookFirst(ctx context.Context, v *visit, turns []inQueue) (known bool, err error) {
	if err := l.look(ctx, v); err != nil {
		return false, err
	}
	limits, charges := v.applied()
	full, refused := false, false
	for i := range limits {
		a, d := &limits[i], &charges[i].Decision
		switch {
		case a.shadow || !d.Counted():
		case a.looks && !a.ofValue:
			refused = refused || a.lacks(d)
		default:
			full = full || d.Remaining < a.cost
		}
	}
	switch {
	case refused:
		v.outcome = OutcomeRefused
		v.looksRefuse()
		return true, nil
	case full: // take counts it as the refusal of a limit
		return false, nil
	case l.turns.send(ctx, charges, turns):
		return false, nil
	}
	v.outcome = OutcomeUndecided
	return true, nil
}

// look sets the decisions of charges that take nothing.
func (l *RateLimit) look(ctx context.Context, v *visit) error {
	_, charges := v.applied()
	looks := slices.Clone(charges)
	for i := range looks {
		looks[i].Cost = 0
	}
	err := l.ask(ctx, v.set, looks)
	copyDecisions(charges, looks)
	if err == nil && v.set.hasEnds {
		v.endWithOverrides()
	}
	return err
}

// endWithOverrides shortens the waits of limits that end.
func (v *visit) endWithOverrides() {
	limits, charges := v.applied()
	for i := range limits {
		if limits[i].base != nil {
			limits[i].endsWithOverride(&charges[i].Decision, limits[i].cost, v.set.now())
		}
	}
}

// noteShadowed counts the rules in shadow that would have refused the request before its decision.
func (v *visit) noteShadowed() {
	for _, rule := range v.shadowed {
		rule.notes.wouldRefuse(v.set.Logger, rule.info)
	}
}

// noteShadows counts the rules in shadow that would have refused the request.
func (v *visit) noteShadows() {
	limits, charges := v.applied()
	var noted *rule // a rule counts once, also if several of its limits refuse
	for i := range limits {
		if a := &limits[i]; a.shadow && !a.ofValue && !charges[i].Decision.Allowed && a.rule != noted {
			a.rule.notes.wouldRefuse(v.set.Logger, a.info)
			noted = a.rule
		}
	}
}

// looksRefuse reports whether a rule that is charged afterwards has no unit left. It then refuses the
// request, though the store admits every look.
func (v *visit) looksRefuse() (refuse bool) {
	limits, charges := v.applied()
	for i := range limits {
		a, d := &limits[i], &charges[i].Decision
		if !a.looks || a.ofValue || !d.Counted() || !a.lacks(d) {
			continue
		}
		refuseLook(d)
		if a.cost > a.quota.Capacity() {
			d.RetryAfter = limiter.Never
		}
		refuse = refuse || !a.shadow
	}
	return refuse
}

// refuseLook makes the decision of a look a refusal until the next unit comes.
func refuseLook(d *limiter.Decision) {
	d.Allowed, d.RetryAfter = false, max(d.NextAfter, time.Microsecond)
}

// lacks reports whether a look finds no unit left, or a cost that the limit never allows at once.
func (a *applied) lacks(d *limiter.Decision) bool {
	return d.Remaining <= 0 || a.cost > a.quota.Capacity()
}

// undo refunds what was just taken. The decisions are then those of looks.
func (l *RateLimit) undo(ctx context.Context, v *visit) {
	var taken []limiter.Settlement
	_, charges := v.applied()
	for i := range charges {
		if !v.took(i) || charges[i].Cost == 0 {
			continue
		}
		c, d := charges[i], &charges[i].Decision
		if c.Decision.Receipt = c.Quota.Undo(d); c.Quota.InFlight() {
			l.releaseSlot(ctx, v.set, c)
		} else {
			taken = append(taken, limiter.Settlement{Charge: c})
		}
		if d.Remaining = min(d.Remaining+c.Cost, d.Limit); d.Remaining == d.Limit {
			d.NextAfter, d.ResetAfter = 0, 0
		}
		d.Receipt = limiter.Receipt{} // nothing is left to refund
	}
	v.outcome = OutcomeRefused
	if len(taken) == 0 {
		return
	}
	if err := l.settle(ctx, taken); err != nil {
		v.set.warnStoreFailure(err)
	}
}

// ask calls the store. If the store is a Memory, the charges stay on the stack.
func (l *RateLimit) ask(ctx context.Context, set *ruleset, charges []limiter.Charge) error {
	if l.memory != nil {
		return l.memory.Decide(ctx, charges)
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
	copyDecisions(charges, sent)
	return err
}

func copyDecisions(to, from []limiter.Charge) {
	for i := range from {
		to[i].Decision = from[i].Decision
	}
}

// undecided returns the refusal of a request that the store could not decide about, if a rule that is not in
// shadow applies.
func (l *RateLimit) undecided(ctx context.Context, v *visit, err error) refusal {
	retry := time.Second
	switch {
	case v.n > limiter.MaxCharges: // by WithLimit: New refuses rules that have as many
		retry = limiter.Never
		v.set.warnOnce("weir-too-many-limits", "",
			"weir: WithLimit gave a rule so many limits that a request meets more than a store can decide about; such requests are answered 503",
			slog.Int("limits", v.n), slog.Int("most", limiter.MaxCharges))
	case ctx.Err() == nil: // a client that leaves is no outage
		v.set.warnStoreFailure(err)
	}
	_, charges := v.applied()
	for i := range charges {
		charges[i].Decision = limiter.Decision{}
	}
	if slices.ContainsFunc(charges, func(c limiter.Charge) bool { return !c.Optional }) {
		v.outcome = OutcomeUndecided
		return refusal{outcome: OutcomeUndecided, status: http.StatusServiceUnavailable, retry: retry}
	}
	v.outcome = OutcomeAllowed
	return refusal{}
}

// tooLate reports whether ctx ends before d is over.
func tooLate(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && d > 0 && time.Until(deadline) < d
}
