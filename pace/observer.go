package pace

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/pace/serverlimit"
)

// An Observer is called with the result of every attempt to send a request, for metrics and logs.
// It is called in the request's goroutine, once the response's header is read or the attempt has
// failed, and from many goroutines at once. Its panics reach the request's caller.
type Observer interface {
	// ObserveAttempt reports one attempt. It must not keep the Observation, nor touch the
	// Response's body.
	ObserveAttempt(o *Observation)
}

// An Observation is the result of one attempt to send a request.
type Observation struct {
	Request *http.Request
	Outcome Outcome

	// Rule is the name of the rule that applied, or empty. Key is the digest of the request's key:
	// empty if there is no rule, or if the rule has no Key and its Host is not "*".
	Rule, Key string

	// Attempt counts from 1.
	Attempt int

	// Waited is how long this attempt waited before it was sent or given up.
	Waited time.Duration

	// Wait is the least time that an attempt with OutcomeTooLong would have waited.
	Wait time.Duration

	// Response is the server's response, or nil. Field Said is what the response says about the
	// server's limits.
	Response *http.Response
	Said     serverlimit.Reading

	// Cooldown is the length of the cooldown that this response began: no process sends requests
	// of the key meanwhile. Zero: it began none.
	Cooldown time.Duration

	// Retried reports that the request will be sent again, after a pause.
	Retried bool

	// Err is the request's error, or nil.
	Err error
}

// An Outcome is the kind of result of an attempt.
type Outcome uint8

// The outcomes of attempts.
const (
	OutcomeServed    Outcome = iota // answered, and not refused: a 404 as well as a 200
	OutcomeRefused                  // the server refused it because of a limit
	OutcomeFailed                   // no response, or a server error: 5xx
	OutcomeTooLong                  // not sent, as it would have waited for too long
	OutcomeCanceled                 // not sent, as its context ended while it waited
	OutcomeUndecided                // not sent, as the Store could not decide, or Key failed
	OutcomeUnmatched                // no rule matches it: sent unpaced, or with RefuseUnmatched not sent
)

var outcomes = [...]string{"served", "refused", "failed", "too_long", "canceled", "undecided", "unmatched"}

// Outcomes returns all outcomes.
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

// Sent reports whether the attempt was paced and sent.
func (o Outcome) Sent() bool { return o <= OutcomeFailed }

// Observers returns an Observer that calls all of these, in this order. It panics if one is nil.
func Observers(all ...Observer) Observer {
	for i, o := range all {
		if o == nil {
			panic(fmt.Sprintf("pace: Observers: observer %d is nil", i+1))
		}
	}
	return several(slices.Clone(all))
}

type several []Observer

func (s several) ObserveAttempt(o *Observation) {
	for _, observer := range s {
		observer.ObserveAttempt(o)
	}
}

func (t *Transport) observe(o Observation) {
	if t.options.Observer == nil {
		return
	}
	t.options.Observer.ObserveAttempt(&o)
}

// Stats are the present figures of a rule in this process.
type Stats struct {
	Rule     string // its name
	Waiting  int64  // requests that wait: for a turn, for a slot, for a cooldown to end, or before a retry
	InFlight int64  // requests that were sent and have no response yet; with AtOnce, until the body ends

	// Until is the latest end of the cooldowns that this process began or met. It is in the past
	// once they are over. Zero: there was none.
	Until time.Time
}

// Stats returns the figures of each rule, in the order of the rules.
func (t *Transport) Stats() []Stats {
	all := make([]Stats, len(t.rules))
	for i, r := range t.rules {
		all[i] = Stats{Rule: r.name, Waiting: r.waiting.Load(), InFlight: r.inFlight.Load()}
		end := int64(0) // of the latest cooldown
		r.accounts.Each(func(a *account) { end = max(end, a.cooldown.ended.Load()) })
		if end > 0 {
			all[i].Until = t.start.Add(time.Duration(end - 1))
		}
	}
	return all
}
