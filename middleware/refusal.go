package middleware

import (
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"

	"github.com/weirgo/weir/internal/answer"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// texts returns the Refusal of the rule that refuses, or nil if none does, or if it needs a key.
func (no *refusal) texts() *Refusal {
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
	case no.limit != nil:
		result = v.result()
	case no.outcome != OutcomeNoKey && no.rule != nil: // it denies
		result.Rule, result.RetryAfter = no.rule.Name, no.retry
	default:
		result.Rule, result.RetryAfter = no.ban, no.retry
	}
	result.Status, result.Banned = no.answered(), no.outcome == OutcomeBanned
	return result
}

// kind returns the kind of the refusal, given the seconds to wait.
func (no *refusal) kind(seconds int64) answer.Kind {
	switch {
	case no.status == http.StatusServiceUnavailable:
		return answer.Unavailable
	case no.outcome == OutcomeNoKey && no.status == http.StatusUnauthorized:
		return answer.NoCredentials
	case no.outcome == OutcomeNoKey:
		return answer.NoKey
	case no.outcome == OutcomeBanned && no.status == http.StatusForbidden:
		return answer.Banned
	case no.rule == nil: // a ban with status 429 looks like a limit
		return answer.Quota
	case no.rule.deny && no.status == http.StatusForbidden:
		return answer.Denied
	case no.rule.deny:
		return answer.DeniedNow
	case no.limit == nil:
		return answer.Zero
	case no.full > 0:
		return answer.AtOnce
	case seconds == 0:
		return answer.Cost
	}
	return answer.Quota
}

// facts returns what the answer says, given the seconds to wait, without the violated rules.
func (no *refusal) facts(seconds int64) answer.Facts {
	f := answer.Facts{Kind: no.kind(seconds), Status: no.answered(), Seconds: seconds, AtOnce: no.full}
	if own := no.texts(); own != nil {
		f.Type, f.Title, f.Message, f.Rule = own.Type, own.Title, own.Message, no.rule.Name
		if answer.StatesLimit(own.Message) {
			f.Limit = no.limitText()
		}
	}
	return f
}

// challenge returns the WWW-Authenticate that a 401 must have. Weir knows one key's scheme.
func challenge(key keyfunc.Func) string {
	if reflect.ValueOf(key).Pointer() == reflect.ValueOf(keyfunc.Bearer).Pointer() {
		return "Bearer"
	}
	return "Key"
}

// appendViolated appends the names of the rules that refused, in quotes, without those in shadow.
func (v *visit) appendViolated(names []string) []string {
	var space [limiter.MaxCharges]uint8
	limits, charges := v.applied()
	shown, _ := v.shown(space[:0])
	for _, i := range shown {
		if !charges[i].Decision.Allowed {
			names = append(names, limits[i].name)
		}
	}
	return names
}
