package middleware

import (
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// An applied is a policy that applied to a request, with its charge.
type applied struct {
	*policy
	key    string
	cost   int64
	class  keyfunc.Class
	shadow bool // the rule's

	looks  bool // the request is charged when its answer is known
	spared bool // nothing to refund: in shadow another limit of the rule refused, or the charge stays
}

// result returns the rule's decision.
func (a *applied) result(d limiter.Decision) RuleResult {
	r := RuleResult{Rule: a.info, Key: a.key, Class: a.class, Cost: a.cost, Decision: d}
	r.binding, r.atOnce = a.quota.Limit(), a.isSlot()
	return r
}

// appendResult appends the rule's decision, or joins it with those of the rule's other policies.
func (a *applied) appendResult(results []RuleResult, d limiter.Decision) []RuleResult {
	first := len(results) - 1
	for a.other && first >= 0 && (results[first].Rule != a.info || results[first].Key != a.key) {
		first--
	}
	if !a.other || first < 0 {
		results = append(results, a.result(d))
		if r := &results[len(results)-1]; a.isSlot() {
			r.Concurrent = d
		}
		return results
	}
	r := &results[first]
	if r.Limits == nil {
		r.Limits = append(make([]limiter.Decision, 0, 2), r.Decision)
	}
	if a.isSlot() {
		r.Concurrent = d
	} else {
		r.Limits = append(r.Limits, d)
	}
	if d.IsTighterThan(&r.Decision) {
		r.binding, r.atOnce = a.quota.Limit(), a.isSlot()
	}
	r.Decision.Join(&d)
	return results
}

// isOf reports whether a belongs to p's rule and tier, and to that key.
func (a *applied) isOf(p *policy, key string) bool {
	// A rule keeps its notes when the rules change.
	return a.key == key && a.rule.notes == p.rule.notes && a.info.Tier == p.info.Tier
}

// taken returns what this limiter charged a key further out for the same request, by the same limit of
// the same rule. A request is the same if its URL is the same pointer: a handler may build another
// request from the context of its own. elsewhere reports whether such a request was charged.
func (s *scope) taken(u *url.URL, p *policy, key string) (cost int64, elsewhere bool) {
	for ; s != nil; s = s.outer {
		for i := range s.policies {
			a := &s.policies[i]
			if !a.isOf(p, key) || a.quota.Rule() != p.quota.Rule() {
				continue
			}
			if s.url == u && u != nil {
				cost += a.cost
			} else {
				elsewhere = true
			}
		}
	}
	return cost, elsewhere
}

// left returns what is still to be charged of cost. It is below 1 if the limiter has charged the request
// already.
func (m *matching) left(p *policy, key string, cost int64) int64 {
	taken, elsewhere := m.outer.taken(m.request.URL, p, key)
	if taken > 0 {
		return p.reserved(cost) - taken
	}
	// A server's request and its copies have the request line. A request that a handler built has none.
	if elsewhere && m.request.RequestURI != "" {
		m.set.notices.twice.warn(m.set.Logger, "weir-counted-twice",
			"weir: a request met one limiter twice, with a changed or copied URL, so it was counted twice; remove one of the two",
			slog.String("rule", p.info.Name))
	}
	return cost
}

// notices are the warnings about a limiter. They survive a change of its rules.
type notices struct {
	twice      onceWarning
	unsettled  onceWarning
	unreturned onceWarning
	allow      onceWarning
	tiers      atomic.Int32 // unknown tiers in warnings

	mu      sync.Mutex
	noticed map[[2]string]bool
	limits  map[limiter.Allowance]struct{} // limits of single keys so far
}
