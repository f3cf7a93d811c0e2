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
	OutcomeBanned    Outcome = iota + 1 // refused because of a ban
	OutcomeExempt                       // admitted by Config.Allow
	OutcomeNoKey                        // refused without a key: 400, 401, or 503 if the key function failed
	OutcomeUndecided                    // refused, 503: the store could not decide, or a LeakyBucket's turn is too late
	OutcomeRefused                      // refused by a limit, or by a rule with Deny
	OutcomeShed                         // refused by Config.Overload, and charged nothing: 503
	OutcomeAllowed                      // admitted
)

var outcomes = [...]string{"", "banned", "exempt", "no_key", "undecided", "refused", "shed", "allowed"}

// Outcomes returns all outcomes, in their order.
func Outcomes() []Outcome {
	all := make([]Outcome, len(outcomes)-1)
	for i := range all {
		all[i] = Outcome(i + 1)
	}
	return all
}

// String returns the outcome as a word, such as "refused".
func (o Outcome) String() string {
	if o != 0 && int(o) < len(outcomes) {
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

// observe reports the outcome of a request. A request that was shed was charged nothing, so it has no Rules. If a rule
// denies the request, it is the only one.
func (v *visit) observe(exempt bool, no *refusal) {
	if no == nil && !exempt && len(v.met)+len(v.parts) == 0 || no != nil && no.text != "" {
		return // nothing limits it, or it has no route
	}
	o := observations.Get().(*Observation)
	*o = Observation{
		Request: v.request, Outcome: OutcomeAllowed, Rules: o.Rules[:0], Ban: v.ban, Elapsed: v.elapsed, Waited: v.waited, Err: v.err,
	}
	switch {
	case exempt:
		o.Outcome = OutcomeExempt
	case no != nil:
		o.Outcome = no.outcome
	}
	switch {
	case no != nil && no.rule != nil && no.rule.Mode == Deny:
		o.Rules = append(o.Rules, RuleResult{Rule: no.rule.info, Decision: limiter.Decision{RetryAfter: no.retry}})
	case v.outcome != 0 && o.Outcome != OutcomeShed:
		for rank := range v.limits {
			i := slices.IndexFunc(v.met, func(m met) bool { return m.rank == rank })
			o.Rules = v.met[i].appendResult(o.Rules)
		}
	}
	v.set.Observer.Observe(o)
	o.Request = nil // the next use overwrites the rest
	observations.Put(o)
}
