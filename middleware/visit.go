package middleware

import (
	"slices"
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

// clone returns a copy on the heap.
func (v *visit) clone() *visit {
	w := new(visit)
	*w = *v
	w.manyLimits, w.manyCharges = slices.Clone(v.manyLimits), slices.Clone(v.manyCharges)
	return w
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

// occupied returns the index of the first slot whose queue is not empty, or -1: others come first.
func (v *visit) occupied(room *waiting.Room[counterKey]) int {
	limits, charges := v.applied()
	for i := range limits {
		if limits[i].queued && !room.IsEmpty(keyOf(&charges[i])) {
			return i
		}
	}
	return -1
}

// missingSlot returns the index of the slot that a refused request should wait for. It returns -1 if the
// request passes, or if anything but slots is missing.
func (v *visit) missingSlot() int {
	at := -1
	if v.outcome == OutcomeAllowed {
		return at
	}
	limits, charges := v.applied()
	for i := range limits {
		switch {
		case charges[i].Decision.Allowed || charges[i].Optional:
		case !limits[i].queued:
			return -1
		case at < 0:
			at = i
		}
	}
	return at
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
