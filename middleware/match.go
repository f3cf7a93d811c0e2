package middleware

import (
	"errors"
	"net/http"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// match is the second phase of a request. It appends the policies and the charges of the rules that
// match, or of the one rule that decides. If all rules skip the request, it returns one of them.
func (set *ruleset) match(r *http.Request, outer *scope, one *oneRule, policies []applied, charges []limiter.Charge) (_ []applied, _ []limiter.Charge, skipped *rule, _ *refusal) {
	if one != nil {
		policies, charges, no := set.matchOne(r, one, policies, charges)
		return policies, charges, nil, no
	}
	tier := ""
	if set.needsTier {
		if tier = Tier(r.Context()); tier != "" {
			set.vetTier(tier)
		}
	}
	m := matching{set: set, request: r, outer: outer, tier: tier}
	groups := [3][]*rule{set.always}
	if tier != "" {
		groups[1] = set.byTier[tier]
	}
	if set.byRoute != nil || set.fallback != nil {
		groups[2] = set.forRoute(r)
	}
	for _, rules := range groups {
		for _, rule := range rules {
			policies, charges = m.add(policies, charges, rule)
		}
	}
	if m.no != nil {
		return nil, nil, nil, m.no
	}
	if len(policies) > 0 || outer != nil {
		m.skipped = nil
	}
	return policies, charges, m.skipped, nil
}

// A matching is the state of a request while its rules are collected. Policies and charges are not part
// of it, or they would escape from the stack with the rest.
type matching struct {
	set     *ruleset
	request *http.Request
	outer   *scope // of the limiters further out; nil: none
	tier    string
	no      *refusal // of the first rule that refuses
	skipped *rule    // the last rule with NoKeySkip that skipped the request
}

// add appends the policies and charges of a rule, if it matches.
func (m *matching) add(policies []applied, charges []limiter.Charge, rule *rule) ([]applied, []limiter.Charge) {
	r := m.request
	if m.no != nil || rule.Match != nil && !rule.Match.Matches(r) {
		return policies, charges
	}
	if rule.deny {
		m.refuse(rule, rule.reply.Status)
		return policies, charges
	}
	key, class, use := m.set.key(rule, r)
	if use != useKey {
		return m.without(policies, charges, rule, use)
	}
	policy := rule.policyFor(m.tier)
	if rule.LimitFor != nil {
		if policy, use = m.set.policyOf(r.Context(), rule, policy, key, class); use != useKey {
			return m.without(policies, charges, rule, use)
		}
	}
	cost, due := int64(0), !policy.isSlot()
	if due {
		cost, due = m.due(policy, key)
	}
	pair := ""
	if rule.Distinct != nil && due {
		if pair, use = m.set.value(rule, r, key); use != useKey {
			return m.without(policies, charges, rule, use)
		}
	}
	a := applied{key: key, class: class, shadow: rule.shadow}
	for _, part := range policy.parts {
		switch {
		case part.isSlot(): // a request takes one slot, whatever its cost, when it comes
			if !holdsFor(r.Context(), part, key) {
				a.looks = false
				policies, charges = a.charge(policies, charges, part, 1)
			}
		case due:
			a.looks = rule.Counts.after
			policies, charges = a.charge(policies, charges, part, cost)
		}
	}
	if pair != "" {
		a.key = pair
		policies, charges = a.charge(policies, charges, policy.values, 1)
	}
	return policies, charges
}

// without is the end of add for a request that the rule does not count.
func (m *matching) without(policies []applied, charges []limiter.Charge, rule *rule, use keyUse) ([]applied, []limiter.Charge) {
	switch use {
	case useSkip:
		m.skipped = rule
	case useNone:
	default:
		m.refuse(rule, refusals[use])
	}
	return policies, charges
}

// refuse notes that a rule refuses the request, unless it is in shadow.
func (m *matching) refuse(rule *rule, status int) {
	if rule.shadow {
		rule.notes.shadowed.note(m.set.Logger, rule.info)
		return
	}
	m.no = &refusal{status: status, outcome: OutcomeNoKey, by: rule}
	if rule.deny {
		m.no.outcome = OutcomeRefused
		m.no.rule, m.no.reply, m.no.retryAfter = rule.Name, rule.reply, rule.reply.RetryAfter
	}
}

// due returns the cost that is still to be charged, or false if this limiter has charged the request
// further out.
func (m *matching) due(p *policy, key string) (cost int64, due bool) {
	cost = p.rule.Cost.Of(m.request)
	if m.outer == nil {
		return cost, true
	}
	cost = m.left(p, key, cost)
	return cost, cost > 0
}

// charge appends a with the policy p, and its charge.
func (a applied) charge(policies []applied, charges []limiter.Charge, p *policy, cost int64) ([]applied, []limiter.Charge) {
	a.policy, a.cost = p, p.reserved(cost)
	c := limiter.Charge{Quota: p.quota, Key: a.key, Cost: a.cost}
	if a.looks {
		c.Cost = 0
	}
	return append(policies, a), append(charges, c)
}

// reserved returns the units that a request takes when it comes. A reservation is at most what the limit
// allows at once, or the request would never pass.
func (p *policy) reserved(cost int64) int64 {
	if p.rule.Cost.settles {
		return min(cost, p.quota.Capacity())
	}
	return cost
}

// A keyUse says what a rule does with a request, given its key.
type keyUse uint8

const (
	useKey    keyUse = iota // count it
	useSkip                 // leave it to the other rules: it has no key
	useNone                 // count nothing: key or limit could not be read, and the rule is FailOpen
	refuse400               // refuse it, with this status
	refuse401
	refuse503
)

// refusals has the statuses of the uses that refuse.
var refusals = [...]int{refuse400: http.StatusBadRequest, refuse401: http.StatusUnauthorized, refuse503: http.StatusServiceUnavailable}

// key returns the key that the rule counts r under. If r has no key, NoKey decides, and a preflight
// counts under its client's address. If the key cannot be read, OnOutage decides.
func (set *ruleset) key(rule *rule, r *http.Request) (string, keyfunc.Class, keyUse) {
	if rule.Key == nil {
		return noKey, keyfunc.Shared, useKey
	}
	key, class, err := read(rule.Key, r)
	if err == nil {
		rule.warnOneKey(set.Logger, key, class, r)
		return key, class, useKey
	}
	use := rule.NoKey.use()
	switch {
	case !errors.Is(err, keyfunc.ErrNoKey):
		rule.warnKeyFailure(set.Logger, err)
		use = rule.failedKey(err)
	case rule.NoKey != NoKeySkip && preflights{}.Matches(r):
		// The address may be a proxy's: it is limited, and never banned.
		return set.preflightKey(r), keyfunc.InDoubt, useKey
	}
	if use == useKey {
		rule.warnOneKey(set.Logger, noKey, keyfunc.Shared, r)
	}
	return noKey, keyfunc.Shared, use
}

// use returns what a rule with n does with a request without a key.
func (n NoKey) use() keyUse {
	switch n {
	case NoKeySkip:
		return useSkip
	case NoKeyBadRequest:
		return refuse400
	case NoKeyUnauthorized:
		return refuse401
	}
	return useKey // the shared one
}

// failedKey returns what a rule does with a request whose key cannot be read. An ambiguous key is
// answered 400. Otherwise OnOutage decides, and FailLocal counts all such requests together.
func (r *rule) failedKey(err error) keyUse {
	switch {
	case errors.Is(err, keyfunc.ErrAmbiguous):
		return refuse400
	case r.OnOutage == limiter.FailOpen:
		return useNone
	case r.OnOutage == limiter.FailClosed, r.NoKey == NoKeyBadRequest, r.NoKey == NoKeyUnauthorized:
		return refuse503
	}
	return useKey
}

// read returns the key of r by f. An empty key is none.
func read(f keyfunc.Func, r *http.Request) (key string, class keyfunc.Class, err error) {
	key, err = f(r)
	if key, class = keyfunc.Classify(key); err == nil && key == noKey {
		err = keyfunc.ErrNoKey
	}
	return key, class, err
}

// noKey is the key of requests without a key. No key function can return it.
const noKey = ""
