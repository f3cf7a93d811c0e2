package middleware

import (
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/weirgo/weir/limiter"
)

// texts returns the Refusal of the rule that refuses, or nil if none does, or if it needs a key.
func (no *refusal) texts() *texts {
	if no.outcome == OutcomeRefused && no.rule != nil {
		return no.rule.texts
	}
	return nil
}

// answered returns the status that the client sees.
func (no *refusal) answered() int {
	if t := no.texts(); t != nil && t.Status != 0 {
		return t.Status
	}
	return no.status
}

// limitText returns the limit that refuses, as text.
func (no *refusal) limitText() string {
	switch {
	case no.full > 0:
		return strconv.FormatInt(no.full, 10) + " at once"
	case no.limit != nil:
		return no.limit.quota.Limit().String()
	}
	return ""
}

// isByLimits reports whether limits refuse the request. The answer then has their fields.
func (no *refusal) isByLimits() bool { return no.limit != nil }

// seconds returns how long to wait, rounded up and with the rule's jitter. It is 0 if that is unknown, or
// if waiting does not help.
func (no *refusal) seconds() int64 {
	if no.retry == limiter.Never {
		return 0
	}
	seconds := secondsUp(no.retry)
	t := no.texts()
	if t == nil || t.Jitter == 0 || seconds == 0 {
		return seconds
	}
	most := max(1, (seconds*int64(t.Jitter)+99)/100)
	return seconds + rand.Int64N(most+1)
}

// resultOf returns the Result of a refusal.
func (v *visit) resultOf(no refusal) (result Result) {
	switch {
	case no.isByLimits():
		result = v.result()
	case no.outcome != OutcomeNoKey && no.rule != nil: // it denies
		result.Rule, result.RetryAfter = no.rule.Name, no.retry
	default:
		result.Rule, result.RetryAfter = no.ban, no.retry
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
	case no.texts() == nil, no.full > 0 && no.status != http.StatusTooManyRequests:
		return kinds[no.status]
	case no.full > 0:
		return &no.rule.texts.atOnce
	}
	return &no.rule.texts.kind
}

// appendProblem appends a problem object (RFC 9457). Draft-11 may still rename its last member.
func (v *visit) appendProblem(b []byte, no *refusal, seconds int64) []byte {
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
		b = v.appendViolated(b)
	}
	return append(b, '}')
}

// appendViolated appends the names of the rules that refused, without those in shadow.
func (v *visit) appendViolated(b []byte) []byte {
	var space [limiter.MaxCharges]uint8
	limits, charges := v.applied()
	before := `,"violated-policies":[`
	for _, i := range v.shown(space[:0]) {
		if !charges[i].Decision.Allowed {
			b = append(append(b, before...), limits[i].name...)
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
	case tooMany && seconds == 0 && no.limit != nil:
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
