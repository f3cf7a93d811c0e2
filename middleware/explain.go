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
	v := &visit{limiter: l, request: r, state: state{set: l.rules.Load(), explains: true}}
	if no := v.findBan(r, noKey); no != nil && no.outcome == OutcomeBanned {
		e.Banned, e.Ban = true, v.ban
	}
	exempt, no := v.gate(r, noKey)
	if e.Exempt = exempt; no != nil && no.outcome != OutcomeBanned {
		e.Status = no.status
	}
	if exempt || no != nil {
		return e
	}
	if no = v.match(r); no != nil {
		e.Status = no.status
		if no.outcome == OutcomeNoKey {
			e.Keyless = no.rule.Name
		} else {
			e.Denied = no.rule.Name
		}
		return e
	}
	for i := range v.limits {
		if m := &v.met[i]; m.isFirst() {
			e.Rules = m.appendResult(e.Rules)
		}
	}
	if o, ok := v.set.Overload.(interface {
		Explain(*http.Request) string
	}); ok {
		e.Overload = o.Explain(r)
	}
	return e
}
