package middleware

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// An Observer hears of every request that a limiter had a say in, for metrics, logs and
// the like: not of those that no rule is for, nor of bans in shadow. It is called in the request's goroutine, before the answer or the next handler, and from many
// at once. A panic in it is the request's.
type Observer interface {
	// Observe is given what was found. The Observation and its Rules are only good until it
	// returns.
	Observe(o *Observation)
}

// An Observation is what became of one request.
type Observation struct {
	Request *http.Request
	Outcome Outcome

	// Rules are those that applied, those in shadow too. There are none for a request that
	// is banned, exempt, without a key or shed, and of one that a rule denies there is that rule.
	Rules []RuleResult

	// Ban is what it was banned for, with OutcomeBanned; zero if Bans.DenyKey or Bans.Deny said so.
	Ban bans.Ban

	// Elapsed is how long the decision took; zero if that was not measured: of a store
	// in memory, one decision in 64 is.
	Elapsed time.Duration

	// Waited is how long the request waited for a place, which AtOnce may have it do,
	// whether it got one or not.
	Waited time.Duration

	// Err is why the store could not decide, with OutcomeUndecided, or with OutcomeAllowed if
	// all the rules are in shadow.
	Err error
}

// An Outcome is what becomes of a request.
type Outcome uint8

// What becomes of requests, in the order in which it is found out.
const (
	OutcomeBanned    Outcome = iota // refused for a ban
	OutcomeExempt                   // let pass by Config.Allow
	OutcomeNoKey                    // refused for want of a key: 400, 401, or 503 if its function failed
	OutcomeUndecided                // refused as the store could not decide, or its turn would come too late: 503
	OutcomeRefused                  // refused by a limit, or a rule with Deny
	OutcomeShed                     // refused by Config.Overload, and charged nothing: 503
	OutcomeAllowed                  // let pass
)

var outcomes = [...]string{"banned", "exempt", "no_key", "undecided", "refused", "shed", "allowed"}

// Outcomes are all there are.
func Outcomes() []Outcome {
	all := make([]Outcome, len(outcomes))
	for i := range all {
		all[i] = Outcome(i)
	}
	return all
}

// String is the outcome in a word, such as "refused".
func (o Outcome) String() string {
	if int(o) < len(outcomes) {
		return outcomes[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Observers is all of these as one, in this order.
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

// observations are reused, so that to observe allocates nothing.
var observations = sync.Pool{New: func() any { return &Observation{Rules: make([]RuleResult, 0, fewRules)} }}

// observe reports a request that the store was not asked about, and the rule that denies it, if
// there is one.
func (set *ruleset) observe(r *http.Request, outcome Outcome, ban bans.Ban, denies *rule) {
	if set.Observer == nil {
		return
	}
	o := observations.Get().(*Observation)
	*o = Observation{Request: r, Outcome: outcome, Ban: ban, Rules: o.Rules[:0]}
	if denies != nil {
		o.Rules = append(o.Rules, RuleResult{Rule: denies.info, Decision: limiter.Decision{RetryAfter: denies.reply.RetryAfter}})
	}
	set.report(o)
}

// observeUnasked reports a request that a rule refuses without asking the store.
func (set *ruleset) observeUnasked(r *http.Request, no *refusal) {
	switch {
	case no.by == nil:
		set.observe(r, no.outcome, bans.Ban{}, nil)
	case no.by.deny:
		set.observe(r, OutcomeRefused, bans.Ban{}, no.by)
	default:
		set.observe(r, OutcomeNoKey, bans.Ban{}, nil)
	}
}

// observeDecided reports, to the observer that there is, what became of a request once rules were
// matched. A request that is shed was charged nothing.
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
	o.Request = nil // the rest is written over, or goes with the next collection
	observations.Put(o)
}

// isTimed reports whether a decision is timed for the observer: to read the clock twice costs as
// much as to decide in memory.
func (set *ruleset) isTimed(l *RateLimit) bool {
	return set.Observer != nil && (!l.immediate || rand.N(64) == 0)
}
