package middleware

import (
	"errors"
	"net/http"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// match appends the policies and the charges of the rules that match, and returns 200, or
// the status to refuse with and the rule that does, and then no policies. With 200 it returns a
// rule that has skipped the request, if all of its rules have. Where it will not be
// told how the request ends, all are charged when it comes; where it is not placeable, the
// status is statusEndless if it needs a place.
func (set *ruleset) match(r *http.Request, outer *scope, ends, placeable bool, policies []applied, charges []limiter.Charge) (_ []applied, _ []limiter.Charge, status int, refuses *rule) {
	tier := ""
	if set.needsTier {
		if tier = Tier(r.Context()); tier != "" {
			set.vetTier(tier)
		}
	}
	m := matching{set: set, request: r, outer: outer, ends: ends, placeable: placeable, tier: tier, status: http.StatusOK}
	for _, rule := range set.always {
		policies, charges = m.addAll(policies, charges, rule)
	}
	if set.byTier != nil && tier != "" {
		policies, charges = m.addAll(policies, charges, set.byTier[tier])
	}
	if set.byRoute != nil || set.fallback != nil {
		policies, charges = m.addAll(policies, charges, set.forRoute(r))
	}
	if m.status != http.StatusOK {
		return nil, nil, m.status, m.refuses
	}
	if len(policies) > 0 || outer != nil {
		m.skipped = nil
	}
	return policies, charges, m.status, m.skipped
}

// A matching is what is known of a request while its rules are gathered. Policies and
// charges are not part of it, or they would leave the stack with the rest.
type matching struct {
	set       *ruleset
	request   *http.Request
	outer     *scope // of the limiters further out; nil: there is none
	ends      bool
	placeable bool // it can have places
	tier      string
	status    int   // 200, or what to refuse with
	refuses   *rule // that does
	skipped   *rule // leaves requests without a key to the others; nil: none has
}

// addAll appends what the request is charged for a rule, if there is one, and for those that
// are for the same requests.
func (m *matching) addAll(policies []applied, charges []limiter.Charge, rule *rule) ([]applied, []limiter.Charge) {
	for ; rule != nil; rule = rule.and {
		policies, charges = m.add(policies, charges, rule)
	}
	return policies, charges
}

// add appends what the request is charged for a rule, if it matches.
func (m *matching) add(policies []applied, charges []limiter.Charge, rule *rule) ([]applied, []limiter.Charge) {
	r := m.request
	if m.status != http.StatusOK || rule.Match != nil && !rule.Match(r) {
		return policies, charges
	}
	if rule.Deny {
		if rule.Shadow {
			rule.notes.shadowed.note(m.set.Logger, rule.info)
		} else {
			m.status, m.refuses = rule.reply.Status, rule
		}
		return policies, charges
	}
	key, class, status := m.set.key(rule, r)
	switch {
	case status == http.StatusOK:
	case status == statusSkip:
		m.skipped = rule
		return policies, charges
	case status == statusUncounted:
		return policies, charges
	case rule.Shadow:
		rule.notes.shadowed.note(m.set.Logger, rule.info)
		return policies, charges
	default:
		m.status, m.refuses = status, rule
		return policies, charges
	}
	policy := rule.policyFor(m.tier)
	if rule.hasOwn() {
		switch policy, status = m.set.policyOf(r.Context(), rule, policy, key, class); status {
		case http.StatusOK:
		case statusSkip:
			return policies, charges
		default:
			m.status, m.refuses = status, rule
			return policies, charges
		}
	}
	a := applied{key: key, class: class, shadow: rule.Shadow, looks: rule.ChargeAfter && m.ends}
	if !policy.isPlace() {
		policies, charges = m.addLimits(policies, charges, a, policy)
	}
	if place := policy.placed(); place != nil && !holdsFor(r.Context(), place, key) {
		switch {
		case m.placeable:
			a.looks = false
			policies, charges = a.charge(policies, charges, place, 1)
		case !rule.Shadow:
			m.status, m.refuses = statusEndless, rule
		}
	}
	return policies, charges
}

// addLimits is add for the limits of a policy that applies as a.
func (m *matching) addLimits(policies []applied, charges []limiter.Charge, a applied, policy *policy) ([]applied, []limiter.Charge) {
	rule := policy.rule
	cost := max(1, rule.Units)
	if rule.Cost != nil {
		cost = max(1, rule.Cost(m.request))
	}
	if m.outer != nil {
		if cost = m.left(policy, a.key, cost); cost <= 0 {
			return policies, charges // it was charged by this limiter further out
		}
	}
	policies, charges = a.charge(policies, charges, policy, cost)
	for _, other := range policy.others {
		policies, charges = a.charge(policies, charges, other, cost)
	}
	return policies, charges
}

// charge appends a with that policy, and what it is charged.
func (a applied) charge(policies []applied, charges []limiter.Charge, p *policy, cost int64) ([]applied, []limiter.Charge) {
	a.policy, a.cost = p, p.reserved(cost)
	c := limiter.Charge{Quota: p.quota, Key: a.key, Cost: a.cost}
	if a.looks {
		c.Cost = 0
	}
	return append(policies, a), append(charges, c)
}

// reserved is what a request takes when it comes. If what it costs is known only later that
// is at most what the limit allows at once, or it would never pass.
func (p *policy) reserved(cost int64) int64 {
	if p.rule.Settles {
		return min(cost, p.quota.Capacity())
	}
	return cost
}

// statusSkip is what key says of a rule that does not count a request without a key.
const statusSkip = 0

// statusUncounted is what key says of an Open rule where the key could not be read.
const statusUncounted = 2

// statusEndless is what match says of a request that needs a place, where nothing would tell when
// to return it.
const statusEndless = 1

// key is what the rule counts r under, or a status other than 200. A request that has no
// key is what NoKey says, but a preflight its client's address; where the key could not be
// read, it is what OnOutage says.
func (set *ruleset) key(rule *rule, r *http.Request) (string, keyfunc.Class, int) {
	if rule.Key == nil {
		return noKey, keyfunc.Shared, http.StatusOK
	}
	key, class, err := read(rule.Key, r)
	if err == nil {
		rule.warnOneKey(set.Logger, key, class, r)
		return key, class, http.StatusOK
	}
	status := rule.NoKey.status()
	switch {
	case !errors.Is(err, keyfunc.ErrNoKey):
		rule.warnKeyFailure(set.Logger, err)
		status = rule.failedKeyStatus(err)
	case rule.NoKey != NoKeySkip && isPreflight(r):
		// The address may be a proxy's, so it is limited, and never banned.
		return set.preflightKey(r), keyfunc.InDoubt, http.StatusOK
	}
	if status == http.StatusOK {
		rule.warnOneKey(set.Logger, noKey, keyfunc.Shared, r)
	}
	return noKey, keyfunc.Shared, status
}

// read is the key of r under f. An empty one is none.
func read(f keyfunc.Func, r *http.Request) (key string, class keyfunc.Class, err error) {
	key, err = f(r)
	if key, class = keyfunc.Classify(key); err == nil && key == noKey {
		err = keyfunc.ErrNoKey
	}
	return key, class, err
}

// failedKeyStatus is what becomes of a request when its key could not be read: of an
// ambiguous one, 400; else what an outage means, where to count here is to count all of them together.
func (r *rule) failedKeyStatus(err error) int {
	switch {
	case errors.Is(err, keyfunc.ErrAmbiguous):
		return http.StatusBadRequest
	case r.OnOutage == limiter.FailOpen:
		return statusUncounted
	case r.OnOutage == limiter.FailClosed, r.NoKey == NoKeyBadRequest, r.NoKey == NoKeyUnauthorized:
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// noKey is the key of requests without one: no key function's, as it would be none.
const noKey = ""
