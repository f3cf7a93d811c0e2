package pace

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/pace/serverlimit"
)

// An Observer hears what became of every attempt to send a request, for metrics, logs and the
// like. It is called in the request's goroutine, when the response's header was read or when
// there is none, and from many at once. A panic in it is the request's.
type Observer interface {
	// ObserveAttempt is given what happened. The Observation is only good until it returns, and
	// the Response's body is not to be touched.
	ObserveAttempt(o *Observation)
}

// An Observation is what became of one attempt to send a request.
type Observation struct {
	Request *http.Request
	Outcome Outcome

	// Rule is the name of the rule that applied, and Key the digest of the key that the request
	// was counted under: empty if the rule has no Key, but with the Host "*", and if there is no rule.
	Rule, Key string

	// Attempt counts from 1.
	Attempt int

	// Waited is how long this attempt waited before it was sent, or given up.
	Waited time.Duration

	// Wait is, of OutcomeTooLong, how long it would have been at least.
	Wait time.Duration

	// Took is how long the server took to answer; zero if nothing was sent.
	Took time.Duration

	// Response is the server's, or nil, and Said what it says about its limits.
	Response *http.Response
	Said     serverlimit.Reading

	// Cooldown is how long no requests of the key are sent now, by any process, because of what
	// the server said in this response. Zero: it began none.
	Cooldown time.Duration

	// Retried says that the request is about to wait, and to be sent again.
	Retried bool

	// Err is the request's error, or nil.
	Err error
}

// An Outcome is what becomes of an attempt.
type Outcome uint8

// What becomes of attempts.
const (
	OutcomeServed    Outcome = iota // answered, and not refused: a 404 as well as a 200
	OutcomeRefused                  // the server refused it because of a limit
	OutcomeFailed                   // no response, or one that says it was the server's failure: 5xx
	OutcomeTooLong                  // not sent, as it would have waited for too long
	OutcomeCanceled                 // not sent, as its context ended while it waited
	OutcomeUndecided                // not sent, as the Store could not decide, or Key failed
	OutcomeUnmatched                // sent unpaced or refused, as no rule is for it
)

var outcomes = [...]string{"served", "refused", "failed", "too_long", "canceled", "undecided", "unmatched"}

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

// Sent reports whether the attempt was paced and sent.
func (o Outcome) Sent() bool { return o <= OutcomeFailed }

// Observers is all of these as one, in this order. It panics on nil.
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

// Stats are the figures of a rule in this process, at one moment.
type Stats struct {
	Rule     string // its name
	Waiting  int64  // requests that wait: for the end of a cooldown, a turn, a place, or to be sent again
	InFlight int64  // requests that were sent and have no response yet; with AtOnce, until its body has ended
	Keys     int    // that are known

	// Until is when the cooldown ends that lasts longest, of those that a response began here
	// or a request of this process met; in the past if that is over. Zero: there was none.
	Until time.Time
}

// Stats are the figures of each rule, in the order of the rules.
func (t *Transport) Stats() []Stats {
	all := make([]Stats, len(t.rules))
	for i, r := range t.rules {
		all[i] = Stats{Rule: r.name, Waiting: r.waiting.Load(), InFlight: r.inFlight.Load(), Keys: r.accounts.len()}
		if r.only != nil {
			all[i].Keys = 1
		}
		if until := r.until.Load(); until > 0 {
			all[i].Until = t.start.Add(time.Duration(until))
		}
	}
	return all
}
