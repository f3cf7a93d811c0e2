package middleware

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// An Observer is called with the outcome of each request, for metrics and logs. It is not called for
// requests that no rule matches, nor for bans in shadow. Observe runs in the request's goroutine,
// before the answer or the next handler, and in many goroutines at once. If it panics, the request
// panics.
type Observer interface {
	// Observe must not keep o or its Rules after it returns.
	Observe(o *Observation)
}

// An Observation is the outcome of one request.
type Observation struct {
	Request *http.Request
	Outcome Outcome

	// Rules has the rules that applied, those in shadow included. It is empty for a request that is
	// banned, exempt, without a key, or shed. For a request that a rule denies, it has that rule.
	Rules []RuleResult

	// Ban is the ban that refused the request, if the Outcome is OutcomeBanned. It is zero if
	// Bans.Deny refused it.
	Ban bans.Ban

	// Elapsed is how long the decision took, or zero if it was not measured. With a store in memory,
	// one decision in 64 is measured.
	Elapsed time.Duration

	// Waited is how long the request waited for a slot of AtOnce, whether or not it got one.
	Waited time.Duration

	// Err says why the store could not decide. The Outcome is then OutcomeUndecided, or OutcomeAllowed
	// if all rules are in shadow.
	Err error
}

// An Outcome says what a limiter did with a request.
type Outcome uint8

// The outcomes, in the order in which they are checked.
const (
	OutcomeBanned    Outcome = iota // refused because of a ban
	OutcomeExempt                   // admitted by Config.Allow
	OutcomeNoKey                    // refused without a key: 400, 401, or 503 if the key function failed
	OutcomeUndecided                // refused, 503: the store could not decide, or a LeakyBucket's turn is too late
	OutcomeRefused                  // refused by a limit, or by a rule with Deny
	OutcomeShed                     // refused by Config.Overload, and charged nothing: 503
	OutcomeAllowed                  // admitted
)

var outcomes = [...]string{"banned", "exempt", "no_key", "undecided", "refused", "shed", "allowed"}

// Outcomes returns all outcomes, in their order.
func Outcomes() []Outcome {
	all := make([]Outcome, len(outcomes))
	for i := range all {
		all[i] = Outcome(i)
	}
	return all
}

// String returns the outcome as a word, such as "refused".
func (o Outcome) String() string {
	if int(o) < len(outcomes) {
		return outcomes[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Observers returns an Observer that calls all of these, in this order. It panics if one is nil.
func Observers(all ...Observer) Observer {
	for i, o := range all {
		if o == nil {
			panic(fmt.Sprintf("middleware: Observers: observer %d is nil", i+1))
		}
	}
	return several(slices.Clone(all))
}

type several []Observer

func (s several) Observe(o *Observation) {
	for _, observer := range s {
		observer.Observe(o)
	}
}

// observations are reused, so that observing allocates nothing.
var observations = sync.Pool{New: func() any { return &Observation{Rules: make([]RuleResult, 0, fewLimits)} }}

// observe reports a request that needed no decision of the store. The rule of a refusal is reported if it denies
// all requests.
func (set *ruleset) observe(r *http.Request, no refusal, ban bans.Ban) {
	if set.Observer == nil {
		return
	}
	o := observations.Get().(*Observation)
	*o = Observation{Request: r, Outcome: no.outcome, Ban: ban, Rules: o.Rules[:0]}
	if no.rule != nil && no.rule.deny {
		o.Rules = append(o.Rules, RuleResult{Rule: no.rule.info, Decision: limiter.Decision{RetryAfter: no.retry}})
	}
	set.report(o)
}

// observe reports the outcome of a request that met rules. The observer is not nil. A request that was shed was
// charged nothing, so it has no Rules.
func (v *visit) observe(r *http.Request, no refusal, err error) {
	o := observations.Get().(*Observation)
	*o = Observation{Request: r, Outcome: OutcomeAllowed, Rules: o.Rules[:0], Elapsed: v.elapsed, Waited: v.waited, Err: err}
	if no.status != 0 {
		o.Outcome = no.outcome
	}
	if o.Outcome != OutcomeShed {
		limits, charges := v.applied()
		for i := range limits {
			if !limits[i].ofValue {
				o.Rules = limits[i].appendResult(o.Rules, &charges[i])
			}
		}
	}
	v.set.report(o)
}

func (set *ruleset) report(o *Observation) {
	set.Observer.Observe(o)
	o.Request = nil // the next use overwrites the rest
	observations.Put(o)
}
