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
// the like: not of preflights that are exempt, nor of those that no rule is for, nor of bans
// in shadow. It is called in the request's goroutine, before the answer or the next handler, and from many
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

	// Ban is what it was banned for, with OutcomeBanned; zero if Config.DenyKey said so.
	Ban bans.Ban

	// Elapsed is how long the decision took; zero if that was not measured: of a store
	// in memory, one decision in 64 is.
	Elapsed time.Duration

	// Waited is how long the request waited for a place, which Rule.Concurrency may have it do,
	// whether it got one or not.
	Waited time.Duration

	// Err is why the store could not decide, with OutcomeUndecided, or with OutcomeAllowed if
	// all the rules are in shadow.
	Err error

	turn uint8 // of those that are timed
}

// An Outcome is what becomes of a request.
type Outcome uint8

// What becomes of requests, in the order in which it is found out.
const (
	OutcomeBanned    Outcome = iota // refused for a ban, or by Config.DenyKey
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

// observations are reused, so that to observe allocates nothing. They begin at any turn, as
// they may not live for 64.
var observations = sync.Pool{New: func() any {
	return &Observation{Rules: make([]RuleResult, 0, fewRules), turn: uint8(rand.Uint32())}
}}

// observe tells the observer, if there is one, of a request that no rule was asked about.
func (set *ruleset) observe(r *http.Request, outcome Outcome, ban bans.Ban) {
	if set.Observer == nil {
		return
	}
	o := observations.Get().(*Observation)
	o.Request, o.Outcome, o.Rules, o.Elapsed, o.Waited, o.Err = r, outcome, o.Rules[:0], 0, 0, nil
	o.Ban = ban
	set.Observer.Observe(o)
	o.Request, o.Ban = nil, bans.Ban{}
	observations.Put(o)
}

// observeRules tells the observer, which there is, of a decision.
func (set *ruleset) observeRules(o *Observation, r *http.Request, outcome Outcome, s *decided, elapsed time.Duration, err error) {
	rules := o.Rules[:0]
	for i := range s.policies {
		rules = s.policies[i].appendResult(rules, s.decisions[i])
	}
	o.Request, o.Outcome, o.Rules, o.Elapsed, o.Err = r, outcome, rules, elapsed, err
	set.Observer.Observe(o)
	o.Request = nil // the rest is written over, or goes with the next collection
	observations.Put(o)
}

// observeRefused tells the observer, if there is one, of a request that a rule refuses without
// asking the store.
func (set *ruleset) observeRefused(r *http.Request, refuses *rule, retryAfter time.Duration) {
	if set.Observer == nil {
		return
	}
	o := observations.Get().(*Observation)
	o.Rules = append(o.Rules[:0], RuleResult{Rule: refuses.info, Decision: limiter.Decision{RetryAfter: retryAfter}})
	o.Request, o.Outcome, o.Elapsed, o.Waited, o.Err = r, OutcomeRefused, 0, 0, nil
	set.Observer.Observe(o)
	o.Request = nil
	observations.Put(o)
}

// timed reports whether the decision that o is about is to be timed: to read the clock twice
// costs as much as to decide in memory.
func (l *RateLimit) timed(o *Observation) bool {
	o.turn++
	return !l.immediate || o.turn%64 == 0
}
