package middleware

import (
	"time"

	"github.com/weirgo/weir/internal/waiting"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

const (
	fewLimits  = 4 // that a visit has room for
	someLimits = 8 // that one allocation more has room for
)

// A visit is the state of a request on its way through a limiter: the limits that apply, and their charges,
// which carry the decisions. It stays on the stack, unless something awaits the end of the request. No field
// is a slice of the visit's own arrays: the compiler would move the visit to the heap.
type visit struct {
	set     *ruleset
	outcome Outcome // OutcomeAllowed, OutcomeRefused by a limit, or OutcomeUndecided
	n       int
	limits  [fewLimits]applied
	charges [fewLimits]limiter.Charge

	// They replace the arrays of a request that meets more limits.
	manyLimits  []applied
	manyCharges []limiter.Charge

	slot    Slot          // of Config.Overload; nil: the request needs none
	slots   bool          // a limit is AtOnce
	queues  bool          // and the request may wait for it
	turns   bool          // a limit is a LeakyBucket
	counts  bool          // a rule goes by the answer
	ends    bool          // a rule goes by how the request ends
	given   *givenLimit   // by WithLimit; nil: none
	skipped *rule         // the last rule with NoKeySkip that skipped the request
	elapsed time.Duration // in the store, if the observer wants it
	waited  time.Duration // for a slot

	place    *waiting.Waiter[counterKey] // in the queue of a slot; nil: none
	shadowed []*rule                     // in shadow, which would have refused the request before its decision
	explains bool                        // no client has sent the request
}

// An applied is a limit that applies to a request.
type applied struct {
	*limit
	class keyfunc.Class
	kept  bool  // it stays charged if the request goes no further
	cost  int64 // of the request; a look charges nothing yet
	said  int64 // the cost that Settle was given, or unsaid
}

// applied returns the limits that apply, and their charges.
func (v *visit) applied() ([]applied, []limiter.Charge) {
	if v.manyCharges != nil {
		return v.manyLimits, v.manyCharges
	}
	return v.limits[:v.n], v.charges[:v.n]
}

// grow makes room for one limit more than the arrays have.
func (v *visit) grow() {
	if v.manyCharges == nil {
		space := &struct {
			limits  [someLimits]applied
			charges [someLimits]limiter.Charge
		}{}
		v.manyLimits = append(space.limits[:0], v.limits[:]...)
		v.manyCharges = append(space.charges[:0], v.charges[:]...)
	}
	v.manyLimits, v.manyCharges = append(v.manyLimits, applied{}), append(v.manyCharges, limiter.Charge{})
}

// took reports whether the request has what charge i takes. In an outage, a rule with FailOpen takes nothing.
func (v *visit) took(i int) bool {
	limits, charges := v.applied()
	d := &charges[i].Decision
	return d.Allowed && d.Counted() && !limits[i].kept
}

// hold counts the request's slots of AtOnce as in progress, and reports whether it has any.
func (v *visit) hold() (holds bool) {
	limits, _ := v.applied()
	for i := range limits {
		if limits[i].slot && v.took(i) {
			limits[i].progress.requests.Add(1)
			holds = true
		}
	}
	return holds
}

// delay returns how long the request must wait for its turn.
func (v *visit) delay() (d time.Duration) {
	_, charges := v.applied()
	for i := range charges {
		if !charges[i].Optional {
			d = max(d, charges[i].Decision.Delay)
		}
	}
	return d
}

// isShared reports whether different clients share the counter of a charge: a slot in its queue is not one client's.
func (a *applied) isShared(c *limiter.Charge) bool {
	return a.rule.together || a.class == keyfunc.Shared && c.Key != noKey
}

// firstQueued returns the index of the first slot with a queue for which is returns true, or -1. A request waits for
// the slots of its own client first, so that its client has no place in the queue of others until then.
func (v *visit) firstQueued(is func(i int) bool) int {
	limits, charges := v.applied()
	for _, shared := range [...]bool{false, true} {
		for i := range limits {
			if limits[i].queued && limits[i].isShared(&charges[i]) == shared && is(i) {
				return i
			}
		}
	}
	return -1
}

// terms returns what a waiter for slot i waits for.
func (v *visit) terms(i int) waiting.Terms[counterKey] {
	limits, charges := v.applied()
	return waiting.Terms[counterKey]{
		Key: keyOf(&charges[i]), Most: limits[i].concurrency.Waiting, Slots: limits[i].quota.Capacity(), Plan: v.set,
	}
}

// hasPlace reports whether the request waits in the queue of slot i.
func (v *visit) hasPlace(i int) bool {
	_, charges := v.applied()
	return v.place != nil && v.place.Key == keyOf(&charges[i])
}

// occupied returns the index of the first slot for which others wait who come first, or -1. A request with a place has
// been through the queues before it.
func (v *visit) occupied(room *waiting.Room[counterKey]) int {
	isNext := v.firstQueued(v.hasPlace) < 0
	return v.firstQueued(func(i int) bool {
		isNext = isNext || v.hasPlace(i)
		return isNext && room.Comes(v.terms(i), v.place)
	})
}

// claims returns what the request will take beside slot at, by its last look, and the indexes of these charges: of
// a queue that clients share, one client gets no more than its other limits have left. Slots for which the request
// waits later are not among them.
func (v *visit) claims(at int) (claims []waiting.Claim[counterKey], of []int) {
	limits, charges := v.applied()
	later := limits[at].isShared(&charges[at])
	for i := range limits {
		a, c := &limits[i], &charges[i]
		isOther := !a.isShared(c) && (later || c.Key != charges[at].Key)
		switch {
		case i == at, !isOther, c.Optional, a.ofValue, !c.Decision.Counted():
		case a.queued && !later && i > at:
		case i+1 < len(limits) && limits[i+1].ofValue && charges[i+1].Decision.Remaining <= 0: // a value that was seen
		default:
			claims = append(claims, waiting.Claim[counterKey]{Key: keyOf(c), Cost: a.cost, Left: c.Decision.Remaining})
			of = append(of, i)
		}
	}
	return claims, of
}

// lacksMore reports whether, by a look, anything but slots with a queue is missing.
func (v *visit) lacksMore() bool {
	limits, charges := v.applied()
	for i := range limits {
		a, c := &limits[i], &charges[i]
		switch d := &c.Decision; {
		case a.queued, c.Optional, a.ofValue, !d.Counted():
		case a.looks && a.lacks(d), !a.looks && d.Remaining < a.cost:
			return true
		}
	}
	return false
}

// missingSlot returns the index of the slot that a refused request should wait for. It returns -1 if the
// request passes, or if anything but slots is missing.
func (v *visit) missingSlot() int {
	limits, charges := v.applied()
	for i := range limits {
		if !charges[i].Decision.Allowed && !charges[i].Optional && !limits[i].queued {
			return -1
		}
	}
	if v.outcome == OutcomeAllowed {
		return -1
	}
	return v.firstQueued(func(i int) bool { return !charges[i].Decision.Allowed })
}

// A refusal says why a request goes no further. The zero refusal is none.
type refusal struct {
	outcome Outcome
	status  int           // without Rule.Refusal
	retry   time.Duration // Never: unknown, or waiting does not help
	rule    *rule         // that denies, that needs a key, or whose limit refuses
	limit   *limit        // the tightest limit that refuses; nil: none does
	full    int64         // if only slots are missing: how many requests may be in progress
	ban     string        // the rule that led to the ban
}
