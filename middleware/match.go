package middleware

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync/atomic"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// match is the second phase of a request. It adds the limits and charges of the rules that match, and refuses a
// request that a rule denies, or that lacks the key of a rule.
func (v *visit) match(r *http.Request) (no refusal) {
	set, tier := v.set, ""
	if set.needsTier {
		if tier = Tier(r.Context()); tier != "" {
			set.notices.tiers.Found()
			set.vetTier(tier)
		} else if !v.explains {
			set.tierless(r)
		}
	}
	if limitsGiven.Load() {
		v.given = set.givenLimits(r.Context())
	}
	groups := [3][]*rule{set.always, set.byTier[tier]}
	if set.byRoute != nil {
		groups[2] = set.forRoute(r)
	}
	if groups[1] == nil && groups[2] == nil {
		groups[2] = set.fallback
	}
	for _, rules := range groups {
		for _, rule := range rules {
			if rule.Match != nil && !rule.Match.Matches(r) {
				continue
			}
			key, class, err := noKey, keyfunc.Shared, error(nil)
			if !rule.deny && !rule.together {
				if key, class, err = read(rule.Key, r); err == nil {
					rule.notes.keys.Found()
				}
			}
			if no = v.meet(r, rule, tier, key, class, err); no.status != 0 {
				return no
			}
		}
	}
	return no
}

// meet adds the limits and charges that a rule has for r's key, or refuses r. The error says why r has no key.
func (v *visit) meet(r *http.Request, rule *rule, tier, key string, class keyfunc.Class, err error) (no refusal) {
	switch {
	case rule.deny && rule.shadow:
		v.shadowed = append(v.shadowed, rule)
		return no
	case rule.deny:
		return refusal{outcome: OutcomeRefused, status: rule.texts.Status, retry: rule.texts.RetryAfter, rule: rule}
	}
	pair, counts := "", true
	if err != nil {
		counts, no = v.without(r, rule, err)
		if key, class = noKey, keyfunc.Shared; rule.takesPreflight(r, err) {
			// Its client's address may be a proxy's: it is limited, and never banned.
			key, class = v.set.preflightKey(r), keyfunc.InDoubt
		}
	}
	p := rule.limits
	if rule.tiers != nil {
		p = rule.limitsFor(tier)
	}
	if counts && (v.given != nil || p.overrides != nil) {
		p, no = v.set.limitsOf(rule, p, key, class, v.given)
	}
	if counts && no.status == 0 && rule.Distinct != nil {
		pair, counts, no = v.pairOf(r, rule, key)
	}
	switch {
	case no.status != 0 && rule.shadow:
		v.shadowed = append(v.shadowed, rule)
		return refusal{}
	case no.status != 0 || !counts:
		return no
	}
	cost := int64(1)
	if rule.costs {
		cost = rule.Cost.Of(r)
	}
	for _, l := range p.all {
		v.take(l, key, class, cost)
	}
	if pair != "" {
		v.take(p.values, pair, class, 1)
	}
	return no
}

// take adds a limit and its charge. A request takes one slot, whatever it costs. A reservation is at most what the
// limit allows at once, or the request would never pass.
func (v *visit) take(p *limit, key string, class keyfunc.Class, cost int64) {
	switch {
	case p.slot:
		cost = 1
	case p.rule.Cost.settles:
		cost = min(cost, p.quota.Capacity())
	}
	if v.n >= fewLimits {
		v.grow()
	}
	v.n++
	limits, charges := v.applied()
	a, c := &limits[v.n-1], &charges[v.n-1]
	a.limit, a.class, a.cost, a.said = p, class, cost, unsaid
	c.Quota, c.Key, c.Optional = p.quota, key, p.shadow
	if !p.looks {
		c.Cost = cost
	}
	v.slots, v.queues, v.turns = v.slots || p.slot, v.queues || p.queued, v.turns || p.turn
	v.counts = v.counts || p.rule.Counts.given
	v.ends = v.ends || v.counts || p.rule.Cost.settles
}

// takesPreflight reports whether r is a preflight without a key which the rule counts.
func (r *rule) takesPreflight(request *http.Request, err error) bool {
	return errors.Is(err, keyfunc.ErrNoKey) && r.NoKey != NoKeySkip && isPreflight(request)
}

// without decides about a request without a key, or without a value of Distinct: NoKey decides. If the key cannot be
// read, OnOutage decides, and FailLocal counts all such requests together. An ambiguous key is answered 400.
func (v *visit) without(r *http.Request, rule *rule, err error) (counts bool, no refusal) {
	if rule.takesPreflight(r, err) {
		return true, no
	}
	none := errors.Is(err, keyfunc.ErrNoKey)
	if !none {
		v.set.warnKeyFailure(rule.Name, err)
	}
	no = refusal{outcome: OutcomeNoKey, rule: rule}
	switch {
	case none && rule.NoKey == NoKeySkip:
		v.skipped = rule
		return false, refusal{}
	case none && rule.NoKey == NoKeyBadRequest, errors.Is(err, keyfunc.ErrAmbiguous):
		no.status = http.StatusBadRequest
	case none && rule.NoKey == NoKeyUnauthorized:
		no.status = http.StatusUnauthorized
	case none:
		if !v.explains {
			v.set.keyless(rule, r)
		}
		return true, refusal{}
	case rule.OnOutage == limiter.FailOpen:
		return false, refusal{}
	case rule.OnOutage == limiter.FailClosed, rule.NoKey == NoKeyBadRequest, rule.NoKey == NoKeyUnauthorized:
		no.status = http.StatusServiceUnavailable
	default:
		return true, refusal{}
	}
	return false, no
}

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
	global, _ := keyfunc.Global(nil)
	if text, _ := keyfunc.Classify(global); r.together && key == text {
		return noKey
	}
	return key
}

// forRoute returns the rules of ByRoute for r's route, or nil.
func (set *ruleset) forRoute(r *http.Request) []*rule {
	rules, _ := set.byRoute.Find(r.Method, r.Host, r.Pattern)
	return rules
}

// limitsFor returns the limits for requests in that tier.
func (r *rule) limitsFor(tier string) *limit {
	if p, ok := r.tiers[tier]; ok {
		return p
	}
	return r.limits
}

// tiersGiven is set by the first WithTier of the process.
var tiersGiven atomic.Bool

// WithTier returns a context that puts its request in a tier, for Rule.Tiers and Config.ByTier. Your
// authentication calls it before the limiter runs. If a rule does not have the tier, the request
// counts against Rule.Limit. If no rule has it, a warning is logged, and the request counts as one in no
// tier: if only Config.ByTier has rules, it is not limited.
func WithTier(ctx context.Context, tier string) context.Context {
	if tier != "" && !tiersGiven.Load() {
		tiersGiven.Store(true)
	}
	return context.WithValue(ctx, tierKey, tier)
}

// Tier returns the tier that WithTier set, or the empty string.
func Tier(ctx context.Context) string {
	tier, _ := ctx.Value(tierKey).(string)
	return tier
}
