package middleware

import (
	"net/http"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// An Explanation is what a [RateLimit] makes of a request before it asks the store.
type Explanation struct {
	// Banned says that the request is refused before anything else, unless Config.Shadow is
	// set. Ban is the ban, or zero if Bans.DenyKey or Bans.Deny refuses the request.
	Banned bool
	Ban    bans.Ban

	// Exempt says that Config.Allow lets it pass uncounted.
	Exempt bool

	// Status is what the request is answered that has no key, 400, 401, or 503 if the key function
	// failed, or that a rule denies. Keyless is the rule that has no key for it, or empty if it is
	// not known whether the request is banned.
	Status  int
	Keyless string

	// Denied is the rule that refuses the request whatever else applies, with that Status;
	// empty if none does.
	Denied string

	// Overload is what Config.Overload says of a request that the rules let pass, if it has a
	// method Explain(*http.Request) string, as that of package shed has.
	Overload string

	// Rules are those that the store would be asked about, in order. They have no Decision.
	Rules []RuleResult
}

// Explain tells what would be asked about r, without asking: which rules apply, with
// which keys and limits. It stops where r would go no further.
func (l *RateLimit) Explain(r *http.Request) (e Explanation) {
	set := l.rules.Load()
	switch f := set.findBan(r, nil); {
	case f.banned:
		e.Ban, e.Banned = f.ban, true
	case !set.Shadow:
		e.Status = f.status
	}
	if (e.Banned || e.Status != 0) && !set.Shadow {
		return e
	}
	if e.Exempt = set.Allow != nil && set.Allow.Matches(r); e.Exempt {
		return e
	}
	policies, _, _, no := set.match(r, scopeOf(r.Context()), nil, nil, nil)
	switch {
	case no == nil:
	case no.by.deny:
		e.Status, e.Denied = no.status, no.by.Name
	default:
		e.Status, e.Keyless = no.status, no.by.Name
	}
	for i := range policies {
		if !policies[i].other {
			e.Rules = append(e.Rules, policies[i].result(limiter.Decision{}))
		}
	}
	if o, ok := set.Overload.(interface {
		Explain(*http.Request) string
	}); ok && e.Status == 0 {
		e.Overload = o.Explain(r)
	}
	return e
}
