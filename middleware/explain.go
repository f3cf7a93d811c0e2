package middleware

import (
	"net/http"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/bans"
)

// An Explanation is what a [RateLimit] makes of a request before it asks the store.
type Explanation struct {
	// Banned says that the request is refused before anything else, unless Config.Shadow is
	// set, and Ban for what ban: the zero Ban for one that Config.Deny refuses.
	Banned bool
	Ban    bans.Ban

	// Preflight says that it is a CORS preflight that Config.ExemptPreflights lets pass
	// uncounted, and Exempt that Config.Allow does.
	Preflight, Exempt bool

	// Status is what a rule answers to a request without a key, if it refuses it, 400 or
	// 401, and Keyless the rule. Otherwise both are zero.
	Status  int
	Keyless string

	// Charges are what is asked of the store, in the order of the rules.
	Charges []ExplainedCharge
}

// An ExplainedCharge is what one rule asks of a request.
type ExplainedCharge struct {
	Rule, Tier string
	Key        string // empty: the counter of a rule without Key, or of requests without a key
	Limit      limiter.Limit
	Cost       int64
	OnOutage   limiter.Outage
	Shadow     bool
}

// Explain tells what would be asked about r, without asking: which rules apply, with
// which keys and limits. It stops where r would go no further.
func (l *RateLimit) Explain(r *http.Request) (e Explanation) {
	set := l.rules.Load()
	if e.Ban, e.Banned = set.findBan(r); e.Banned && !set.Shadow {
		return e
	}
	if e.Preflight = set.ExemptPreflights && isPreflight(r); e.Preflight {
		return e
	}
	if e.Exempt = set.Allow != nil && set.Allow(r); e.Exempt {
		return e
	}
	s, charges, status, keyless := set.match(r, nil)
	if status != http.StatusOK {
		e.Status, e.Keyless = status, keyless
	}
	for i, c := range charges {
		e.Charges = append(e.Charges, ExplainedCharge{
			Rule: c.Quota.Rule(), Tier: c.Quota.Tier(), Key: c.Key, Limit: c.Quota.Limit(), Cost: c.Cost,
			OnOutage: c.Quota.OnOutage, Shadow: s.policies[i].shadow,
		})
	}
	return e
}
