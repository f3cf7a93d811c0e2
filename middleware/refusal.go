package middleware

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A refusal is the reason why a request goes no further, with the buffers of its answer.
type refusal struct {
	status     int
	outcome    Outcome
	full       int64          // if only a slot is missing: how many requests may be in progress
	by         *rule          // the rule that denies, or that needs a key
	rule       string         // the rule that refuses, or that led to the ban
	quota      *limiter.Quota // the limit that refuses
	reply      *reply         // of the rule that refuses; nil: no rule does, or it needs a key
	retryAfter time.Duration  // Never: unknown, or waiting does not help

	// Values of the header fields, those of type fields first, and their text.
	values [9]string
	text   [184]byte
}

// answered returns the status that the client sees.
func (no *refusal) answered() int {
	if no.reply != nil && no.reply.Status != 0 {
		return no.reply.Status
	}
	return no.status
}

// limit returns the limit that refuses, as text.
func (no *refusal) limit() string {
	switch {
	case no.full > 0:
		return strconv.FormatInt(no.full, 10) + " at once"
	case no.quota != nil:
		return no.quota.Limit().String()
	}
	return ""
}

// isByLimits reports whether limits refuse the request. The answer then has their fields.
func (no *refusal) isByLimits() bool { return no.outcome == OutcomeRefused && no.by == nil }

// byLimits sets the tightest rule that refuses, and the longest RetryAfter. The limiters further out
// admitted the request.
func (no *refusal) byLimits(s *decided) {
	var tightest *limiter.Decision
	for i := range s.policies {
		p, d := &s.policies[i], &s.decisions[i]
		if p.shadow || d.Allowed {
			continue
		}
		no.retryAfter = max(no.retryAfter, d.RetryAfter)
		if tightest == nil || d.IsTighterThan(tightest) {
			tightest, no.rule, no.quota, no.reply = d, p.rule.Name, p.quota, p.rule.reply
		}
	}
}

// seconds returns how long to wait, rounded up and with the rule's jitter. It is 0 if that is unknown, or
// if waiting does not help.
func (no *refusal) seconds() int64 {
	if no.retryAfter == limiter.Never {
		return 0
	}
	seconds := secondsUp(no.retryAfter)
	if no.reply == nil || no.reply.Jitter == 0 || seconds == 0 {
		return seconds
	}
	most := max(1, (seconds*int64(no.reply.Jitter)+99)/100)
	return seconds + rand.Int64N(most+1)
}

// result returns the Result of the refusal.
func (no *refusal) result(s *decided) (result Result) {
	if no.isByLimits() {
		result = s.result()
	} else {
		result.Rule, result.RetryAfter = no.rule, no.retryAfter
	}
	result.Status, result.Banned = no.answered(), no.outcome == OutcomeBanned
	return result
}

// A kind has the texts for refusals with one status.
type kind struct {
	problem string // RFC 9457; empty: no registered type, about:blank
	title   string
	code    string // the member "error" of the JSON body
	message string
}

// registry is where draft-11 registers its problem types.
const registry = "https://iana.org/assignments/http-problem-types#"

var tooMany = kind{
	problem: registry + "quota-exceeded",
	title:   "Quota Exceeded",
	code:    "rate_limit_exceeded",
	message: "Too many requests.",
}

var tooManyAtOnce = kind{
	problem: tooMany.problem,
	title:   tooMany.title,
	code:    "concurrency_limit_exceeded",
}

// kinds are the answers that no rule changes, by status.
var kinds = map[int]*kind{
	http.StatusTooManyRequests: &tooMany,
	http.StatusServiceUnavailable: {
		problem: registry + "temporary-reduced-capacity",
		title:   "Temporary Reduced Capacity",
		code:    "temporary_reduced_capacity",
		message: "The service is temporarily unable to take this request.",
	},
	http.StatusForbidden: {
		title:   "Forbidden",
		code:    "banned",
		message: "Requests from this client are not accepted.",
	},
	http.StatusBadRequest: {
		title:   "Bad Request",
		code:    "key_required",
		message: "The request does not say which client it comes from.",
	},
	http.StatusUnauthorized: {
		title:   "Unauthorized",
		code:    "key_required",
		message: "The request does not say which client it comes from.",
	},
}

func (no *refusal) kind() *kind {
	switch {
	case no.reply == nil, no.full > 0 && no.status != http.StatusTooManyRequests:
		return kinds[no.status]
	case no.full > 0:
		return &no.reply.atOnce
	}
	return &no.reply.kind
}

// appendProblem appends a problem object (RFC 9457). Draft-11 may still rename its last member.
func (no *refusal) appendProblem(b []byte, s *decided, seconds int64) []byte {
	kind := no.kind()
	b = append(b, '{')
	if kind.problem != "" {
		b = append(append(append(b, `"type":"`...), kind.problem...), `",`...)
	}
	if kind.title != "" {
		b = append(append(append(b, `"title":"`...), kind.title...), `",`...)
	}
	b = strconv.AppendInt(append(b, `"status":`...), int64(no.answered()), 10)
	b = append(no.appendMessage(append(b, `,"detail":"`...), seconds, true), '"')
	if no.isByLimits() {
		b = s.appendViolated(b)
	}
	return append(b, '}')
}

// appendViolated appends the names of the rules that refused, without those in shadow.
func (s *decided) appendViolated(b []byte) []byte {
	var space [fewRules]entry
	list, before := s.entries(space[:0]), `,"violated-policies":[`
	for i := range list {
		if !list[i].Allowed {
			b = append(append(b, before...), list[i].name...)
			before = ","
		}
	}
	if before == "," {
		b = append(b, ']')
	}
	return b
}

// appendPlain appends the JSON for clients that did not ask for a problem object.
func (no *refusal) appendPlain(b []byte, seconds int64) []byte {
	b = append(append(append(b, `{"error":"`...), no.kind().code...), `","message":"`...)
	b = append(no.appendMessage(b, seconds, true), '"')
	if seconds > 0 {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), seconds, 10)
	}
	return append(b, '}')
}

// appendMessage appends the message of the rule that refuses, or sentences of Weir's, which need no
// escaping in JSON.
func (no *refusal) appendMessage(b []byte, seconds int64, asJSON bool) []byte {
	if own := no.own(seconds); own != "" {
		if asJSON {
			own = escaped(own)
		}
		return append(b, own...)
	}
	switch tooMany := no.status == http.StatusTooManyRequests; {
	case tooMany && no.full == 1:
		b = append(b, "A request is in progress, and no more than one is allowed at once."...)
	case tooMany && no.full > 0:
		b = append(strconv.AppendInt(b, no.full, 10), " requests are in progress, and no more are allowed at once."...)
	case tooMany && seconds == 0 && no.quota != nil:
		return append(b, "The request costs more than the limit ever allows at once."...)
	default:
		b = append(b, no.kind().message...)
	}
	if seconds > 0 {
		b = append(appendDuration(append(b, " Try again in "...), seconds), '.')
	}
	return b
}

// appendDuration appends seconds in words. From two minutes on it rounds to the nearest minute, hour or
// day.
func appendDuration(b []byte, seconds int64) []byte {
	n, unit := seconds, "second"
	switch {
	case seconds >= 2*24*3600:
		n, unit = (seconds+12*3600)/(24*3600), "day"
	case seconds >= 2*3600:
		n, unit = (seconds+1800)/3600, "hour"
	case seconds >= 2*60:
		n, unit = (seconds+30)/60, "minute"
	}
	b = append(append(strconv.AppendInt(b, n, 10), ' '), unit...)
	if n != 1 {
		b = append(b, 's')
	}
	return b
}
