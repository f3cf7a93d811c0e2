package middleware

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/reading"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// match is the second phase of a request. It adds the limits and charges of the rules that match, and refuses a
// request that a rule denies, or that lacks the key of a rule.
func (v *visit) match(r *http.Request) (no *refusal) {
	set, tier := v.set, ""
	if set.needsTier {
		tier = v.readTier(r)
	}
	if limitsGiven.Load() {
		v.given = set.limitsInContext(r.Context())
	}
	groups := [3][]*rule{set.always, set.byTier[tier]}
	if set.byRoute != nil {
		groups[2] = v.forRoute(r)
	}
	if groups[1] == nil && groups[2] == nil {
		groups[2] = set.fallback
	}
	if r.Body != nil && r.Body != http.NoBody && reading.InUse.Load() && !v.explains {
		return v.applyInSteps(r, tier, groups[:]...)
	}
	return v.apply(r, tier, groups[:]...)
}

// apply adds the limits and charges of the rules that match, or refuses r.
func (v *visit) apply(r *http.Request, tier string, groups ...[]*rule) (no *refusal) {
	for _, rules := range groups {
		for _, rule := range rules {
			no = v.applyOne(r, rule, tier)
			switch {
			case v.wantsBody():
				v.putOff(rule)
			case no != nil:
				if no = v.unlessShadow(rule, no); no != nil {
					return no
				}
			}
		}
	}
	return nil
}

// applyOne is apply for one rule.
func (v *visit) applyOne(r *http.Request, rule *rule, tier string) (no *refusal) {
	if rule.Match != nil && !rule.Match.Matches(r) {
		return nil
	}
	key, class, err := noKey, keyfunc.Shared, error(nil)
	if rule.Mode != Deny && !rule.together {
		if key, class, err = read(rule.Key, r); err == nil {
			rule.notes.keys.Found()
		}
	}
	if v.wantsBody() {
		return nil
	}
	return v.meet(r, rule, tier, key, class, err)
}

// readTier returns the tier of r, and warns if no rule has it, or if all requests are without one.
func (v *visit) readTier(r *http.Request) (tier string) {
	if tier = Tier(r.Context()); tier != "" {
		v.limiter.tiers.Found()
		v.set.vetTier(tier)
	} else if !v.explains {
		v.set.tierless(r)
	}
	return tier
}

// meet adds the limits and charges that a rule has for r's key, or refuses r. The error says why r has no key.
func (v *visit) meet(r *http.Request, rule *rule, tier, key string, class keyfunc.Class, err error) (no *refusal) {
	if rule.Mode == Deny {
		by := &rule.Refusal
		return v.refuse(refusal{outcome: OutcomeRefused, status: by.Status, retry: by.RetryAfter, rule: rule})
	}
	counts := true
	if err != nil {
		counts, no = v.without(r, rule, err)
		if key, class = noKey, keyfunc.Shared; rule.takesPreflight(r, err) {
			// Its client's address may be a proxy's: it is limited, and never banned.
			key, class = v.set.preflightKey(r), keyfunc.InDoubt
		}
	}
	f := rule.limits
	if rule.tiers != nil {
		f = rule.inTier(tier)
	}
	if counts && (v.given != nil || f.overrides != nil) {
		f, no = v.ownLimits(f, key, class)
	}
	if counts && no == nil && rule.reads != nil {
		counts, no = rule.reads(v, r, f, key, class)
	}
	if no == nil && counts {
		no = v.count(r, f, key, class)
	}
	return no
}

// count adds the limits of a rule, and the charges of r's key.
func (v *visit) count(r *http.Request, f *family, key string, class keyfunc.Class) (no *refusal) {
	rule, cost := f.rule, int64(1)
	if rule.cost != nil {
		var err error
		if cost, err = rule.cost(r); v.wantsBody() {
			return nil
		} else if err != nil {
			return v.refuseKey(unreadable(err), rule)
		}
	}
	for _, m := range f.rates {
		v.add(m, key, class, cost)
	}
	for _, m := range f.slots {
		v.add(m, key, class, 1)
	}
	if len(f.needs) > 0 {
		v.use(f.needs)
	}
	return nil
}

// unreadable returns the status that refuses a request which cannot be read.
func unreadable(err error) int {
	var of *reading.Error
	switch {
	case errors.As(err, &of):
		return of.Status
	case errors.Is(err, keyfunc.ErrAmbiguous):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// failureRetry is the Retry-After of a request that was not decided because something failed.
const failureRetry = time.Second

// refuseKey refuses a request that lacks the key of a rule, or has several, or whose key cannot be read.
func (v *visit) refuseKey(status int, rule *rule) *refusal {
	no := refusal{outcome: OutcomeNoKey, status: status, rule: rule}
	if status == http.StatusServiceUnavailable {
		no.retry = failureRetry
	}
	return v.refuse(no)
}

// takesPreflight reports whether r is a preflight without a key which the rule counts.
func (r *rule) takesPreflight(request *http.Request, err error) bool {
	return errors.Is(err, keyfunc.ErrNoKey) && r.NoKey != NoKeySkip && isPreflight(request)
}

// without decides about a request without a key, or without a value of Distinct: NoKey decides. If the key cannot be
// read, OnOutage decides, and FailLocal counts all such requests together. An ambiguous key is answered 400.
func (v *visit) without(r *http.Request, rule *rule, err error) (counts bool, no *refusal) {
	if rule.takesPreflight(r, err) {
		return true, nil
	}
	none, status := errors.Is(err, keyfunc.ErrNoKey), 0
	if !none {
		v.set.warnKeyFailure(rule.Name, err)
	}
	switch {
	case none && rule.NoKey == NoKeySkip:
		v.skipped = rule
		return false, nil
	case none && rule.NoKey == NoKeyBadRequest:
		status = http.StatusBadRequest
	case errors.Is(err, keyfunc.ErrAmbiguous), errors.As(err, new(*reading.Error)):
		status = unreadable(err)
	case none && rule.NoKey == NoKeyUnauthorized:
		status = http.StatusUnauthorized
	case none:
		if !v.explains {
			v.set.keyless(rule, r)
		}
		return true, nil
	case rule.OnOutage == limiter.FailOpen:
		return false, nil
	case rule.OnOutage == limiter.FailClosed, rule.NoKey == NoKeyBadRequest, rule.NoKey == NoKeyUnauthorized:
		status = http.StatusServiceUnavailable
	default:
		return true, nil
	}
	return false, v.refuseKey(status, rule)
}

// read returns the key of r by f. An empty key is none.
func read(f keyfunc.Func, r *http.Request) (key string, class keyfunc.Class, err error) {
	key, err = f(r)
	if key, class = keyfunc.Classify(key); err == nil && key == noKey {
		err = keyfunc.ErrNoKey
	}
	return key, class, err
}

// noKey is the key of requests without a key. read makes an error of it, so no key function can choose it. Stores never
// evict its counter.
const noKey = ""

// isGlobal reports whether f is keyfunc.Global itself.
func isGlobal(f keyfunc.Func) bool {
	return reflect.ValueOf(f).Pointer() == reflect.ValueOf(keyfunc.Global).Pointer()
}

// counterOf returns the key under which r counts a key that Peek, Reset or Allow was given: noKey for the key of
// keyfunc.Global.
func (r *rule) counterOf(key string) string {
	global, _ := keyfunc.Global(nil)
	if text, _ := keyfunc.Classify(global); r.together && key == text {
		return noKey
	}
	return key
}

// forRoute returns the rules of ByRoute for r's route, or nil.
func (v *visit) forRoute(r *http.Request) []*rule {
	if r.Pattern != "" {
		v.limiter.routes.Found()
	} else if !v.explains {
		warnUnrouted(&v.limiter.routes, v.set.routed, r, v.set.Logger)
	}
	rules, _ := v.set.byRoute.Find(r.Method, r.Host, r.Pattern)
	return rules
}

// inTier returns the limits for requests in that tier.
func (r *rule) inTier(tier string) *family {
	if f, ok := r.tiers[tier]; ok {
		return f
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
