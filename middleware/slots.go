package middleware

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/waiting"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A rule with AtOnce has slots, which requests hold until they end. With a Queue a request waits for slots in FIFO
// order, in one queue at a time and holding nothing, until all its charges can be taken. It waits only while it lacks
// nothing but slots. If the rules change meanwhile, it keeps its place.

var atOnce = feature{
	rule: func(c *compiler, at invalid.Place, r *rule) {
		_, _, err := limiter.Split(r.Limit)
		limits, _, _ := limiter.Split(r.Limit)
		alone := func(wrong bool, field string) {
			c.reject(wrong && err == nil && len(limits) == 0, at.Of(field), "needs a limit: a request always takes one slot")
		}
		alone(r.Cost.isGiven(), "Cost")
		alone(r.Counts.given, "Counts")
		alone(r.Counts.after, "Afterwards")
	},
	family: func(f *family) (needed bool, err error) {
		for _, m := range f.slots {
			m.unit, m.most, m.open = concurrentUnit, 1, true
			m.member += m.unit
		}
		if _, f.queue, _ = limiter.Split(f.info.Limit); f.rule.shadow {
			f.queue.Waiting = 0 // nobody waits
		}
		counts, _ := f.rule.notes.progress.LoadOrStore(f.info.Tier, &progress{})
		f.progress = counts.(*progress)
		return len(f.slots) > 0, nil
	},
	before: func(v *visit) (again bool, no *refusal) { return v.slots.before(v) },
	after:  func(v *visit) (again bool, no *refusal) { return v.slots.after(v) },
	undo:   func(v *visit) { v.slots.leave(v) },
	pass:   countSlots,
	end:    releaseSlots,
}

// concurrentUnit ends the member of AtOnce: "exports";q=5;qu="concurrent-requests".
const concurrentUnit = `;qu="concurrent-requests"`

// slots is what a request knows of its wait for slots.
type slots struct {
	began time.Time                   // to wait; zero: it did not
	place *waiting.Waiter[counterKey] // in the queue of a slot; nil: none
	in    *progress                   // counts the request as waiting; nil: it does not wait
	aside *met                        // the slot for which others come first, if the store is asked without slots
}

// A progress counts the requests in progress of a rule in one tier. It survives a change of the rules.
type progress struct{ requests, waiting atomic.Int64 }

// before makes the request wait if others come first. If it lacks more than slots, the store decides without these.
func (s *slots) before(v *visit) (again bool, no *refusal) {
	if s.aside != nil { // and another feature asks again
		s.aside = nil
		v.setSlotCosts(1)
	}
	first := s.occupied(v)
	if first == nil {
		return false, nil
	}
	switch v.look(); {
	case v.outcome != 0:
		return false, nil
	case v.lacksMore():
		s.aside = first
		v.setSlotCosts(0)
		return false, nil
	}
	return s.waitFor(v, v.missingBehind(first))
}

// after makes the request wait if it lacks nothing but slots.
func (s *slots) after(v *visit) (again bool, no *refusal) {
	if !s.began.IsZero() && s.place == nil { // the wait is over
		return false, nil
	}
	if v.outcome == OutcomeRefused {
		v.wakeWaiters()
	}
	if first := s.aside; first != nil {
		s.aside = nil
		v.setSlotCosts(1)
		if v.outcome == OutcomeAllowed {
			v.refund((*met).took)
			return s.waitFor(v, v.missingBehind(first))
		}
	}
	if slot := v.missingSlot(); slot != nil {
		return s.waitFor(v, slot)
	}
	if ended := v.request.Context().Err(); s.in != nil && ended != nil && errors.Is(v.err, ended) {
		return false, s.giveUp(v, v.queuedSlot(func(m *met) bool { return s.isIn(m) }), ended)
	}
	s.leave(v)
	return false, nil
}

// waitFor makes the request wait for a slot.
func (s *slots) waitFor(v *visit, slot *met) (again bool, no *refusal) {
	now := v.limiter.now()
	if s.began.IsZero() {
		s.began = now
	}
	slot, joined := s.join(v, slot)
	var err error
	if joined {
		s.countIn(slot.progress)
		if again, err = s.place.Wait(v.request.Context(), slot.queue.MaxWait-now.Sub(s.began)); again {
			return true, nil
		}
	}
	return false, s.giveUp(v, slot, err)
}

// giveUp refuses the request: its client has left, the queue is full, or the time is up.
func (s *slots) giveUp(v *visit, slot *met, err error) (no *refusal) {
	s.leave(v)
	v.outcome, v.err = OutcomeRefused, nil
	if err != nil && isGone(v.request.Context()) {
		return v.refuse(refusal{outcome: OutcomeRefused, status: statusClientClosedRequest})
	}
	d := &slot.Decision
	if d.Allowed { // a look
		refuseLook(d)
	}
	d.RetryAfter = v.limiter.room.Behind(keyOf(slot.Charge), d.RetryAfter)
	return nil
}

// countIn counts the request as waiting in a progress; nil: it no longer waits.
func (s *slots) countIn(in *progress) {
	if s.in != nil {
		s.in.waiting.Add(-1)
	}
	if s.in = in; in != nil {
		in.waiting.Add(1)
	}
}

// leave gives up the request's place.
func (s *slots) leave(v *visit) {
	if s.place.Leave(); !s.began.IsZero() && s.in != nil {
		v.waited = v.limiter.now().Sub(s.began)
	}
	s.place = nil
	s.countIn(nil)
}

// countSlots counts the request's slots as in progress.
func countSlots(v *visit, _ http.Header) (awaits, watches bool) {
	for i := range v.limits {
		if m := &v.met[i]; m.isSlot() && m.took() {
			m.progress.requests.Add(1)
			v.holds, awaits = true, true
		}
	}
	return awaits, false
}

// releaseSlots releases the request's slots.
func releaseSlots(v *visit, status int) int {
	for i := range v.limits {
		m := &v.met[i]
		if !m.isSlot() || !m.took() {
			continue
		}
		m.progress.requests.Add(-1)
		if err := v.limiter.settle(v.Context, []limiter.Settlement{{Charge: *m.Charge}}); err != nil {
			v.set.warnOnce("weir-not-returned", "",
				"weir: the store did not learn that a request has ended; its slot is released when its lease ends",
				slog.String("error", err.Error()))
		}
	}
	return status
}

// isQueued reports whether requests may wait for the slot.
func (m *meter) isQueued() bool { return m.isSlot() && m.queue.Waiting > 0 }

// isShared reports whether different clients share the counter of a charge: a slot in its queue is not one client's.
func (m *met) isShared() bool { return m.rule.together || m.class == keyfunc.Shared && m.Key != noKey }

// queuedSlot returns the first slot with a queue for which is returns true, or nil. A request waits for the slots of
// its own client first, so that its client has no place in the queue of others until then.
func (v *visit) queuedSlot(is func(*met) bool) *met {
	for _, shared := range [...]bool{false, true} {
		for i := range v.limits {
			if m := &v.met[i]; m.isQueued() && m.isShared() == shared && is(m) {
				return m
			}
		}
	}
	return nil
}

// setSlotCosts sets the cost of the charges for slots that have a queue: 0 makes them looks.
func (v *visit) setSlotCosts(cost int64) {
	for i := range v.limits {
		if m := &v.met[i]; m.isQueued() {
			m.Cost = cost
		}
	}
}

// terms returns what a waiter for a slot waits for.
func (v *visit) terms(slot *met) waiting.Terms[counterKey] {
	return waiting.Terms[counterKey]{
		Key: keyOf(slot.Charge), Most: slot.queue.Waiting, Slots: slot.quota.Capacity(), Plan: v.set,
	}
}

// isIn reports whether the request waits in the queue of a slot.
func (s *slots) isIn(slot *met) bool { return s.place != nil && s.place.Key == keyOf(slot.Charge) }

// occupied returns the first slot for which others wait who come first, or nil. A request with a place has been through
// the queues before it.
func (s *slots) occupied(v *visit) *met {
	isNext := v.queuedSlot(s.isIn) == nil
	return v.queuedSlot(func(m *met) bool {
		isNext = isNext || s.isIn(m)
		return isNext && v.limiter.room.Comes(v.terms(m), s.place)
	})
}

// join gives the request a place in the queue of a slot or, if its client's slots are for others in that queue, of
// that slot. It returns false if there is no place.
func (s *slots) join(v *visit, slot *met) (_ *met, ok bool) {
	for {
		terms, of := v.terms(slot), []*met(nil)
		terms.Claims, of = v.claims(slot)
		place, lacks := v.limiter.room.Join(terms, s.place)
		switch {
		case place != nil:
			s.place = place
			return slot, true
		case lacks < 0 || !of[lacks].isQueued():
			return slot, false
		}
		slot = of[lacks]
	}
}

// claims returns what the request will take of its client's other limits when it gets the slot, and these limits. In a
// queue that clients share, the requests of one client wait only while its other limits have units for all of them.
// Slots that the request waits for later are left out.
func (v *visit) claims(slot *met) (claims []waiting.Claim[counterKey], of []*met) {
	isShared, isBehind := slot.isShared(), false
	for i := range v.shown {
		m := &v.met[i]
		isOther := !m.isShared() && (isShared || m.Key != slot.Key)
		switch {
		case m == slot:
			isBehind = true
		case !isOther, !m.Decision.Counted(), m.units == 0, m.isQueued() && !isShared && isBehind:
		default:
			claims = append(claims, waiting.Claim[counterKey]{Key: keyOf(m.Charge), Cost: m.units, Left: m.Decision.Remaining})
			of = append(of, m)
		}
	}
	return claims, of
}

// lacksMore reports whether, by a look, anything but slots with a queue is missing.
func (v *visit) lacksMore() bool {
	return slices.ContainsFunc(v.met[:v.shown], func(m met) bool {
		return !m.isQueued() && m.Decision.Counted() && m.lacks()
	})
}

// missingBehind returns the first slot that is taken by a look, or for which others come first.
func (v *visit) missingBehind(first *met) *met {
	return v.queuedSlot(func(m *met) bool { return m == first || m.Decision.Remaining <= 0 })
}

// missingSlot returns the slot that a refused request should wait for. It returns nil if anything but slots is missing.
func (v *visit) missingSlot() *met {
	if v.outcome != OutcomeRefused || slices.ContainsFunc(v.met[:v.shown], func(m met) bool {
		return !m.Decision.Allowed && !m.isQueued()
	}) {
		return nil
	}
	return v.queuedSlot(func(m *met) bool { return !m.Decision.Allowed })
}

// wakeWaiters wakes the requests that wait for slots which this refused request did not take: they may
// have found them taken meanwhile.
func (v *visit) wakeWaiters() {
	for i := range v.limits {
		if m := &v.met[i]; m.isSlot() && m.Decision.Allowed && m.Cost > 0 {
			v.limiter.room.Released(keyOf(m.Charge))
		}
	}
}

// An InProgress counts the requests of a rule with AtOnce in this process.
type InProgress struct {
	Rule     *RuleInfo // shared: do not change it
	Requests int64     // that hold a slot
	Waiting  int64     // that wait for a slot
}

// InProgress returns the requests in progress of each rule with AtOnce, in the order of Rules.
func (l *RateLimit) InProgress() []InProgress {
	var all []InProgress
	for _, r := range l.rules.Load().all {
		for _, f := range r.families {
			if len(f.slots) > 0 {
				all = append(all, InProgress{f.info, f.progress.requests.Load(), f.progress.waiting.Load()})
			}
		}
	}
	return all
}
