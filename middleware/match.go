package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// match is the second phase of a request. It appends the policies and the charges of the rules that
// match, or of the one rule that decides. If all rules skip the request, it returns one of them.
func (set *ruleset) match(r *http.Request, outer *scope, one *oneRule, policies []applied, charges []limiter.Charge) (_ []applied, _ []limiter.Charge, skipped *rule, _ *refusal) {
	if one != nil {
		return set.matchOne(r, one, policies, charges)
	}
	tier := ""
	if set.needsTier {
		if tier = Tier(r.Context()); tier != "" {
			set.vetTier(tier)
		}
	}
	m := matching{set: set, request: r, outer: outer, tier: tier, given: set.givenLimits(r.Context())}
	groups := [3][]*rule{set.always, set.byTier[tier]}
	if set.byRoute != nil {
		groups[2] = set.forRoute(r)
	}
	if groups[1] == nil && groups[2] == nil {
		groups[2] = set.fallback
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
	given   *givenLimit // by WithLimit; nil: none
	no      *refusal    // of the first rule that refuses
	skipped *rule       // the last rule with NoKeySkip that skipped the request
}

// add appends the policies and charges of a rule, if it matches.
func (m *matching) add(policies []applied, charges []limiter.Charge, rule *rule) ([]applied, []limiter.Charge) {
	if m.no != nil || rule.Match != nil && !rule.Match.Matches(m.request) {
		return policies, charges
	}
	var a applied
	pair, use := m.apply(rule, &a)
	switch use {
	case useKey:
		return m.charge(policies, charges, &a, pair)
	case useSkip:
		m.skipped = rule
	case useNone:
	default:
		m.refuse(rule, use)
	}
	return policies, charges
}

// apply finds out what a rule counts: its policy, the key, and the cost, which is below 1 if nothing is left
// to charge. The pair is the key of a rule's values, or empty.
func (m *matching) apply(rule *rule, a *applied) (pair string, use keyUse) {
	if rule.deny {
		return "", refuseDenied
	}
	if a.key, a.class, use = m.set.keyOrNoKey(rule, m.request); use != useKey {
		return "", use
	}
	a.policy = rule.policyFor(m.tier)
	if m.given != nil || a.policy.overrides != nil {
		if a.policy, use = m.set.policyOf(rule, a.policy, a.key, a.class, m.given); use != useKey {
			return "", use
		}
	}
	if !a.isSlot() {
		a.cost = m.due(a.policy, a.key)
	}
	if rule.Distinct != nil && a.cost > 0 {
		return m.set.pairOrNoKey(rule, m.request, a.key)
	}
	return "", useKey
}

// charge appends the parts of a's policy, with their charges.
func (m *matching) charge(policies []applied, charges []limiter.Charge, a *applied, pair string) ([]applied, []limiter.Charge) {
	for _, part := range a.parts {
		switch {
		case part.isSlot(): // a request takes one slot, whatever its cost, when it comes
			if !holdsFor(m.request.Context(), part, a.key) {
				policies, charges = a.charge(policies, charges, part, 1)
			}
		case a.cost > 0:
			policies, charges = a.charge(policies, charges, part, a.cost)
		}
	}
	if pair != "" {
		values := a.values
		a.key = pair
		policies, charges = a.charge(policies, charges, values, 1)
	}
	return policies, charges
}

// refuse notes that a rule refuses the request, unless it is in shadow.
func (m *matching) refuse(rule *rule, use keyUse) {
	switch {
	case rule.shadow:
		rule.notes.shadowed.note(m.set.Logger, rule.info)
	case use == refuseDenied:
		m.no = &refusal{status: rule.reply.Status, outcome: OutcomeRefused, by: rule, rule: rule.Name, reply: rule.reply, retryAfter: rule.reply.RetryAfter}
	case use == refuseZero:
		m.no = &refusal{status: http.StatusTooManyRequests, outcome: OutcomeRefused, by: rule, rule: rule.Name, reply: rule.reply, retryAfter: limiter.Never}
	case use == refuseLimit:
		m.no = &refusal{status: http.StatusServiceUnavailable, outcome: OutcomeUndecided, by: rule, rule: rule.Name}
	default:
		m.no = &refusal{status: refusals[use], outcome: OutcomeNoKey, by: rule}
	}
}

// due returns the cost that is still to be charged. It is below 1 if this limiter has charged the request
// further out.
func (m *matching) due(p *policy, key string) int64 {
	cost := p.rule.Cost.Of(m.request)
	if m.outer == nil {
		return cost
	}
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

// charge appends a with the policy p, and its charge.
func (a applied) charge(policies []applied, charges []limiter.Charge, p *policy, cost int64) ([]applied, []limiter.Charge) {
	a.policy, a.cost = p, p.reserved(cost)
	c := limiter.Charge{Quota: p.quota, Key: a.key, Cost: a.cost}
	if p.looks {
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
	useKey       keyUse = iota // count it
	useSkip                    // leave it to the other rules: it has no key
	useNone                    // count nothing: key or limit could not be read, and the rule is FailOpen
	refuseDenied               // refuse it: the rule refuses all
	refuse400                  // refuse it, with this status
	refuse401
	refuse503
	refuseZero  // refuse it with 429: its client's own limit is 0
	refuseLimit // refuse it with 503: its client's own limit is invalid
)

// refusals has the statuses of the uses that refuse for want of a key.
var refusals = [...]int{refuse400: http.StatusBadRequest, refuse401: http.StatusUnauthorized, refuse503: http.StatusServiceUnavailable}

// keyOrNoKey returns the key that the rule counts r under or, if r has none, what the rule does with r. A
// preflight without a key counts under its client's address.
func (set *ruleset) keyOrNoKey(rule *rule, r *http.Request) (key string, class keyfunc.Class, use keyUse) {
	if rule.together {
		return noKey, keyfunc.Shared, useKey
	}
	key, class, err := read(rule.Key, r)
	if err != nil {
		preflight := false
		if use, preflight = set.withoutKey(rule, r, err); preflight {
			// The address may be a proxy's: it is limited, and never banned.
			return set.preflightKey(r), keyfunc.InDoubt, useKey
		}
		key, class = noKey, keyfunc.Shared
	}
	if use == useKey {
		rule.warnOneKey(set.Logger, key, class, r)
	}
	return key, class, use
}

// withoutKey decides about a request without a key or, for Distinct, without a value: NoKey decides, unless
// the request is a preflight. If the key cannot be read, OnOutage decides, and FailLocal counts all such
// requests together. An ambiguous key is answered 400.
func (set *ruleset) withoutKey(rule *rule, r *http.Request, err error) (use keyUse, preflight bool) {
	none := errors.Is(err, keyfunc.ErrNoKey)
	if !none {
		rule.warnKeyFailure(set.Logger, err)
	}
	switch {
	case none && rule.NoKey != NoKeySkip && preflights{}.Matches(r):
		preflight = true
	case none:
		use = noKeyUses[rule.NoKey]
	case errors.Is(err, keyfunc.ErrAmbiguous):
		use = refuse400
	case rule.OnOutage == limiter.FailOpen:
		use = useNone
	case rule.OnOutage == limiter.FailClosed, rule.NoKey == NoKeyBadRequest, rule.NoKey == NoKeyUnauthorized:
		use = refuse503
	}
	return use, preflight
}

var noKeyUses = [...]keyUse{NoKeyShare: useKey, NoKeySkip: useSkip, NoKeyBadRequest: refuse400, NoKeyUnauthorized: refuse401}

// read returns the key of r by f. An empty key is none.
func read(f keyfunc.Func, r *http.Request) (key string, class keyfunc.Class, err error) {
	key, err = f(r)
	if key, class = keyfunc.Classify(key); err == nil && key == noKey {
		err = keyfunc.ErrNoKey
	}
	return key, class, err
}

// noKey is the key of requests without a key. No key function can return it. Stores never evict its counter.
const noKey = ""

// isGlobal reports whether f is keyfunc.Global itself.
func isGlobal(f keyfunc.Func) bool {
	return reflect.ValueOf(f).Pointer() == reflect.ValueOf(keyfunc.Global).Pointer()
}

// counterOf returns the key of the counter that r uses for the text of a key.
func (r *rule) counterOf(key string) string {
	if global, _ := keyfunc.Global(nil); r.together {
		if text, _ := keyfunc.Classify(global); key == text {
			return noKey
		}
	}
	return key
}

// byRoute has the rules by route. The rules of one pattern apply to a request.
type byRoute struct {
	tree     route.Tree[[]*rule]
	first    string // a pattern that needs a route, to name in a warning
	unrouted unroutedDetector
}

// forRoute returns the rules of ByRoute for r's route, or nil.
func (set *ruleset) forRoute(r *http.Request) []*rule {
	by := set.byRoute
	if r.Pattern == "" {
		by.unrouted.blank(set.Logger, by.first)
	} else {
		by.unrouted.seen()
	}
	rules, _ := by.tree.Find(r.Method, r.Host, r.Pattern)
	return rules
}

// policyFor returns the policy for requests in that tier.
func (r *rule) policyFor(tier string) *policy {
	if p, ok := r.tiers[tier]; ok {
		return p
	}
	return r.policy
}

// An applied is a policy that applied to a request, with its charge.
type applied struct {
	*policy
	key    string
	cost   int64
	class  keyfunc.Class
	spared bool // nothing to refund: in shadow another limit of the rule refused, or the charge stays

	ofHandler bool // a handler gave the key to Allow
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

// holdsFor reports whether the request with that context, or a request around it, has a slot of p for the
// key. If it took a second slot, it could wait for itself.
func holdsFor(ctx context.Context, p *policy, key string) bool {
	for e := endingOf(ctx); e != nil; e = endingOf(e.Context) {
		if !e.holds.Load() {
			continue
		}
		for i := range e.policies {
			if _, ok := e.slotOf(i); ok && e.policies[i].isOf(p, key) {
				return true
			}
		}
	}
	return false
}

// isSlot reports whether p is a rule's AtOnce, not one of its limits.
func (p *policy) isSlot() bool { return p.quota.InFlight() }

type tierKey struct{}

// WithTier returns a context that puts its request in a tier, for Rule.Tiers and Config.ByTier. Your
// authentication calls it before the limiter runs. If a rule does not have the tier, the request
// counts against Rule.Limit. If no rule has it, the request is limited as if it had no tier, and a
// warning is logged.
func WithTier(ctx context.Context, tier string) context.Context {
	return context.WithValue(ctx, tierKey{}, tier)
}

// Tier returns the tier that WithTier set, or the empty string.
func Tier(ctx context.Context) string {
	tier, _ := ctx.Value(tierKey{}).(string)
	return tier
}
