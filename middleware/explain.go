package middleware

import (
	"net/http"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// An Explanation says what a [RateLimit] would ask the store about a request.
type Explanation struct {
	// Banned is true if the request is banned. It is then refused before any rule is checked, unless
	// Config.Shadow is set. Ban is zero if Bans.DenyKey or Bans.Deny banned it.
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
	set := l.rules.Load()
	f := set.inspect(r, nil)
	e.Banned, e.Ban = f.banned, f.ban
	switch f.outcome {
	case OutcomeNoKey:
		e.Status = f.status
		return e
	case OutcomeBanned:
		return e
	case OutcomeExempt:
		e.Exempt = true
		return e
	}
	policies, _, _, no := set.match(r, scopeOf(r.Context()), nil, nil, nil)
	switch {
	case no == nil:
	case no.outcome != OutcomeNoKey:
		e.Status, e.Denied = no.status, no.by.Name
	default:
		e.Status, e.Keyless = no.status, no.by.Name
	}
	for i := range policies {
		if !policies[i].other {
			e.Rules = policies[i].appendResult(e.Rules, limiter.Decision{})
		}
	}
	if o, ok := set.Overload.(interface {
		Explain(*http.Request) string
	}); ok && e.Status == 0 {
		e.Overload = o.Explain(r)
	}
	return e
}
