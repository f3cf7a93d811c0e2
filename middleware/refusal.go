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

// byRule returns the Refusal of the rule that refuses, or nil if none does, or if it needs a key.
func (no *refusal) byRule() *Refusal {
	if no.outcome == OutcomeRefused && no.rule != nil {
		return &no.rule.Refusal
	}
	return nil
}

// answered returns the status that the client sees.
func (no *refusal) answered() int {
	if t := no.byRule(); t != nil && t.Status != 0 {
		return t.Status
	}
	return no.status
}

// slots returns how many requests may be in progress, if only slots are missing, or 0.
func (no *refusal) slots() int64 {
	if no.limit == nil || !no.limit.isSlot() {
		return 0
	}
	return no.limit.Decision.Limit
}

// limitText returns the limit that refuses, as text.
func (no *refusal) limitText() string {
	switch {
	case no.slots() > 0:
		return strconv.FormatInt(no.slots(), 10) + " at once"
	case no.limit != nil:
		return no.limit.quota.Limit().String()
	}
	return ""
}

// seconds returns how long to wait, rounded up, with Paced and Jitter of the rule. It is 0 if that is unknown, or
// if waiting does not help.
func (v *visit) seconds(no *refusal) int64 {
	wait := v.wait(no)
	if wait == limiter.Never {
		return 0
	}
	seconds := secondsUp(wait)
	t := no.byRule()
	if t == nil || t.Jitter == 0 || seconds == 0 {
		return seconds
	}
	most := max(1, (seconds*int64(t.Jitter)+99)/100)
	return seconds + rand.Int64N(most+1)
}

// resultOf returns the Result of a refusal.
func (v *visit) resultOf(no *refusal) (result Result) {
	switch {
	case no.limit != nil:
		result = v.result()
	case no.outcome != OutcomeNoKey && no.rule != nil: // it denies
		result.Rule, result.RetryAfter = no.rule.Name, no.retry
	default:
		result.Rule, result.RetryAfter = v.ban.Rule, no.retry
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
	case no.rule.Mode == Deny && no.status == http.StatusForbidden:
		return answer.Denied
	case no.rule.Mode == Deny:
		return answer.DeniedNow
	case no.limit == nil:
		return answer.Zero
	case no.slots() > 0:
		return answer.AtOnce
	case seconds == 0:
		return answer.Cost
	}
	return answer.Quota
}

// facts returns what the answer says, given the seconds to wait, without the violated rules.
func (no *refusal) facts(seconds int64) answer.Facts {
	f := answer.Facts{Kind: no.kind(seconds), Status: no.answered(), Seconds: seconds, AtOnce: no.slots()}
	if t := no.byRule(); t != nil {
		f.Type, f.Title, f.Message, f.Rule = t.Type, t.Title, t.Message, no.rule.Name
		if answer.StatesLimit(t.Message) {
			f.Limit = no.limitText()
		}
	}
	return f
}

// stops reports whether clients should give up, which they read in X-Should-Retry, given the facts and
// Config.Refusal.
func (no *refusal) stops(f *answer.Facts, general *Refusal) bool {
	longest := general.StopAbove
	if t := no.byRule(); t != nil {
		longest = t.StopAbove
	}
	switch {
	case longest <= 0:
		return false
	case f.Seconds > 0:
		return no.retry > longest
	}
	switch f.Kind {
	case answer.AtOnce, answer.DeniedNow, answer.Unavailable: // nobody knows how long
		return false
	}
	return true
}

// format returns the format of the body, given that which the client accepts and Config.Refusal.
func (no *refusal) format(accepted answer.Format, general *Refusal) answer.Format {
	body := general.Body
	if t := no.byRule(); t != nil {
		body = t.Body
	}
	if accepted == answer.JSON && body == BodyAI {
		return answer.AI
	}
	return accepted
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
	shown, _ := v.order(space[:0])
	for _, i := range shown {
		if m := &v.met[i]; !m.Decision.Allowed {
			names = append(names, m.name)
		}
	}
	return names
}

// refusedByLimit returns the refusal by the tightest limit that refuses, or by a slot if no limit refuses.
func (v *visit) refusedByLimit() *refusal {
	no := refusal{outcome: OutcomeRefused, status: http.StatusTooManyRequests}
	together := true
	for i := range v.shown {
		m := &v.met[i]
		if m.Decision.Allowed {
			continue
		}
		no.retry = max(no.retry, m.Decision.RetryAfter)
		together = together && m.rule.together
		switch {
		case no.limit == nil, no.limit.isSlot() && !m.isSlot(),
			no.limit.isSlot() == m.isSlot() && m.Decision.IsTighterThan(&no.limit.Decision):
			no.limit, no.rule = m, m.rule
		}
	}
	if together && no.slots() > 0 {
		no.status = http.StatusServiceUnavailable
	}
	return v.refuse(no)
}
