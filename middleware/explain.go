package middleware

import (
	"net/http"

	"github.com/weirgo/weir/middleware/bans"
)

// An Explanation says what a [RateLimit] would ask the store about a request.
type Explanation struct {
	// Banned is true if the request is banned. It is then refused before any rule is checked, unless
	// Config.Shadow is set. Ban is zero if Bans.Deny banned it.
	Banned bool
	Ban    bans.Ban

	// Exempt is true if Config.Allow matches the request, so that no rule counts it.
	Exempt bool

	// Status is the status of the refusal if a rule denies the request or the request lacks a key.
	// Without a key it is 400, 401, or 503 if the key function failed. Keyless is the rule that found
	// no key. Keyless is empty if the key was only needed to look up bans.
	Status  int
	Keyless string

	// Denied is the name of the rule that refuses every request like this one, with Status: a rule with
	// Deny, or one whose limit from [WithLimit] is 0 or invalid. Empty: none.
	Denied string

	// Overload is what Config.Overload says about the request, by its method Explain(*http.Request)
	// string. Package shed has that method. It is empty if there is no such method.
	Overload string

	// Rules are the rules that the store would decide about, in order. They have no Decision.
	Rules []RuleResult
}

// Explain returns which rules apply to r, with which keys and limits, and does not ask the store. A limit
// of [WithLimit] is shown only if r's context has it. If
// something refuses r before any rule is checked, such as a ban, Explain stops there.
func (l *RateLimit) Explain(r *http.Request) (e Explanation) {
	v := visit{set: l.rules.Load(), explains: true}
	before := v.set.screen(r, noKey)
	e.Banned, e.Ban, e.Exempt = before.banned, before.ban, before.exempt
	if no := before.no; no.status != 0 || e.Exempt {
		if no.outcome != OutcomeBanned {
			e.Status = no.status
		}
		return e
	}
	switch no := v.match(r); {
	case no.status == 0:
	case no.outcome != OutcomeNoKey:
		e.Status, e.Denied = no.status, no.rule.Name
	default:
		e.Status, e.Keyless = no.status, no.rule.Name
	}
	if limits, charges := v.applied(); e.Status == 0 {
		for i := range limits {
			if !limits[i].other {
				e.Rules = limits[i].appendResult(e.Rules, &charges[i])
			}
		}
	}
	if o, ok := v.set.Overload.(interface {
		Explain(*http.Request) string
	}); ok && e.Status == 0 {
		e.Overload = o.Explain(r)
	}
	return e
}
