package middleware

import (
	"context"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A Result has the decisions of a limiter on a request.
type Result struct {
	// Decision is the decision of the binding rule. Of the rules that refused, or of all rules if none
	// refused, the rule with the fewest units left binds. A rule that counted nothing (Limit is 0)
	// binds only if there is no other. RetryAfter is the longest of all rules, and Degraded is set if
	// any rule sets it. If only rules in shadow applied, Rule is empty and Allowed is set.
	limiter.Decision

	// Rule is the name of the rule that refused or, if none did, of the rule with the fewest units
	// left. Tier is the tier that the request counted in, if any. For a banned client Rule is the rule
	// that led to the ban, if any.
	Rule, Tier string

	// Status is the status of a refusal, or zero if the request was admitted: 429 for an exceeded
	// limit, or the status of Rule.Refusal; 403 or 429 for a banned client; 400 or 401 without a key
	// (see NoKey); 503 if the store could not decide, or if the AtOnce of a rule with
	// keyfunc.Global is exceeded; 499 if the client left while it waited.
	Status int

	// Banned is set if the request was refused because of a ban.
	Banned bool

	// NearLimit is set if a rule has reached its SoftAt.
	NearLimit bool

	// Rules has every rule that applied, those in shadow last.
	Rules []RuleResult
}

// A RuleResult is the decision of one rule about a request. If another rule of the same limiter
// refused, this rule took nothing.
type RuleResult struct {
	// Rule describes the rule. It is shared: do not change it.
	Rule *RuleInfo

	// Key is the key that the request counts under, without its class. It is empty for a rule with
	// [keyfunc.Global], and for requests without a key. The client may have written it: escape it, and do not show
	// it to others.
	Key string

	// Class says whether the key is one client's own.
	Class keyfunc.Class

	// Cost is how many units the request takes.
	Cost int64

	// Decision joins the decisions of all limits and the AtOnce of the rule
	// ([limiter.Decision.Join]). If the rule is in shadow, it refused nothing. It is zero if the store
	// was not asked, or could not decide.
	limiter.Decision

	// Limits has the decision of each limit, in order, if the rule has several limits, or a limit and
	// AtOnce. Otherwise it is nil.
	Limits []limiter.Decision

	// Concurrent is the decision of AtOnce. Its Limit minus its Remaining is how many requests of the
	// key are in progress. It is zero if the rule has no AtOnce.
	Concurrent limiter.Decision

	binding limiter.Limit // unless atOnce
	atOnce  bool
}

// IsConcurrency reports whether Remaining counts slots of AtOnce, not units of a limit.
func (r *RuleResult) IsConcurrency() bool { return r.atOnce }

// Binding returns the limit whose units Remaining counts. If the rule has several limits, that is the
// limit with the fewest units left. Binding returns the zero Limit if Remaining counts slots
// ([RuleResult.IsConcurrency]).
func (r *RuleResult) Binding() limiter.Limit {
	if r.atOnce {
		return limiter.Limit{}
	}
	return r.binding
}

// FromContext returns the Result of the innermost limiter with Config.Results that has admitted the request with
// this context, for handlers behind it. It returns false if there is none, or if no rule applied.
func FromContext(ctx context.Context) (Result, bool) {
	for v := visitOf(ctx); v != nil; v = visitOf(v.Context) {
		if v.set.Results && len(v.met) > 0 {
			return v.result(), true
		}
	}
	return Result{}, false
}

func (v *visit) result() (result Result) {
	var binding *limiter.Decision
	result.Allowed = true // also if only rules in shadow applied
	for i := range v.shown {
		m := &v.met[i]
		d := &m.Decision
		if binding == nil || isStricter(d, binding) {
			binding = d
			result.Decision, result.Rule, result.Tier = *d, m.info.Name, m.info.Tier
		}
	}
	for i := range v.shown {
		m := &v.met[i]
		result.Degraded = result.Degraded || m.Decision.Degraded
		result.NearLimit = result.NearLimit || m.isNear(&m.Decision)
		result.RetryAfter = max(result.RetryAfter, m.Decision.RetryAfter)
	}
	for i := range v.limits {
		result.Rules = v.met[i].appendResult(result.Rules)
	}
	return result
}

// appendResult appends the decision of a limit, or joins it with the rule's other decisions.
func (m *met) appendResult(results []RuleResult) []RuleResult {
	d, first, isSlot := m.Decision, len(results)-1, m.isSlot()
	for !m.isFirst() && first >= 0 && (results[first].Rule != m.info || results[first].Key != m.Key) {
		first--
	}
	if m.isFirst() || first < 0 {
		r := RuleResult{
			Rule: m.info, Key: m.Key, Class: m.class, Cost: m.units, Decision: d, binding: m.quota.Limit(), atOnce: isSlot,
		}
		if isSlot {
			r.Concurrent = d
		}
		return append(results, r)
	}
	r := &results[first]
	if r.Limits == nil {
		r.Limits = append(make([]limiter.Decision, 0, 2), r.Decision)
	}
	if isSlot {
		r.Concurrent = d
	} else {
		r.Limits = append(r.Limits, d)
	}
	if d.IsTighterThan(&r.Decision) {
		r.binding, r.atOnce = m.quota.Limit(), isSlot
	}
	r.Decision.Join(&d)
	return results
}
