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
	// Bans.DenyKey or Bans.Deny refused it.
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
	OutcomeUndecided                // refused, 503: the store could not decide, or the request's turn in a LeakyBucket would come after its deadline
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
var observations = sync.Pool{New: func() any { return &Observation{Rules: make([]RuleResult, 0, fewRules)} }}

// observe reports a request that needed no decision of the store. If by denies all requests, it is
// reported too.
func (set *ruleset) observe(r *http.Request, outcome Outcome, ban bans.Ban, by *rule) {
	if set.Observer == nil {
		return
	}
	o := observations.Get().(*Observation)
	*o = Observation{Request: r, Outcome: outcome, Ban: ban, Rules: o.Rules[:0]}
	if by != nil && by.deny {
		o.Rules = append(o.Rules, RuleResult{Rule: by.info, Decision: limiter.Decision{RetryAfter: by.reply.RetryAfter}})
	}
	set.report(o)
}

// observeDecided reports the outcome of a request that met rules. The observer is not nil. A request
// that was shed was charged nothing, so it has no Rules.
func (set *ruleset) observeDecided(r *http.Request, s *decided, no *refusal, waited time.Duration, err error) {
	o := observations.Get().(*Observation)
	*o = Observation{Request: r, Outcome: OutcomeAllowed, Rules: o.Rules[:0], Elapsed: s.elapsed, Waited: waited, Err: err}
	if no != nil {
		o.Outcome = no.outcome
	}
	if o.Outcome != OutcomeShed {
		for i := range s.policies {
			if s.policies[i].ofValue {
				continue
			}
			o.Rules = s.policies[i].appendResult(o.Rules, s.decisions[i])
		}
	}
	set.report(o)
}

func (set *ruleset) report(o *Observation) {
	set.Observer.Observe(o)
	o.Request = nil // the next use overwrites the rest
	observations.Put(o)
}
