package middleware

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A client's own limit for a rule comes from [WithLimit] or Rule.Overrides. It counts under the rule's name
// and the request's tier, so what a key has used stays used when its limit changes.

// limitsGiven is set by the first WithLimit of the process. Until then no context is searched.
var limitsGiven atomic.Bool

// A contextLimit is what WithLimit stores in a context.
type contextLimit struct {
	rule   string
	limit  limiter.Allowance
	denies bool          // the limit has 0 events in a period
	err    error         // why the limit is invalid
	outer  *contextLimit // of the context around
}

// WithLimit returns a context in which one rule has another limit: the client's own, such as what a
// customer pays for. Your authentication calls it before the limiter runs:
//
//	ctx, err = weir.WithLimit(ctx, "plan", weir.PerHour(customer.PerHour))
//
// The limit replaces Overrides, Tiers and Limit of the rules with that name, in each limiter that the
// request meets. What the key has used stays used when its limit changes. The latest call for a rule
// wins. It has no effect on a counter that is not the client's own: if the rule's key has the class
// [keyfunc.Shared] or [keyfunc.InDoubt], or the request has no key.
//
// 0 events in a period are valid here: the rule then refuses all requests with the context, without
// Retry-After, and charges nothing. Use that for a suspended customer.
//
// The error says what is wrong with the limit. The returned context is usable then, too: the rule answers
// all requests with it 503, so that nobody passes if the error is ignored. A valid limit that the rule
// cannot have, such as a [limiter.LeakyBucket] with Counts, is answered 503 and logged with code
// weir-limit-failed. A name that no rule has is logged with code weir-unknown-rule.
func WithLimit(ctx context.Context, rule string, limit limiter.Allowance) (context.Context, error) {
	limitsGiven.Store(true)
	g := &contextLimit{rule: rule, limit: limit}
	g.outer, _ = ctx.Value(limitKey).(*contextLimit)
	if g.denies = isZero(limit); !g.denies {
		if _, _, err := limiter.Split(limit); err != nil {
			g.err = invalid.New("middleware", "WithLimit for rule %.128q: %w", rule, err)
		}
	}
	return context.WithValue(ctx, limitKey, g), g.err
}

// isZero reports whether an Allowance allows 0 events in a period, and is valid in all else.
func isZero(a limiter.Allowance) bool {
	limits, atOnce, err := limiter.Split(a)
	zero := func(l limiter.Limit) bool { return l.Events == 0 }
	if err == nil || !slices.ContainsFunc(limits, zero) || limiter.Join(limits, atOnce) != a {
		return false
	}
	limits = slices.Clone(limits)
	for i := range limits {
		limits[i].Events = max(limits[i].Events, 1)
	}
	_, _, err = limiter.Split(limiter.Join(limits, atOnce))
	return err == nil
}

// limitsInContext returns the innermost limit that WithLimit gave the request with this context, or nil. It
// warns of names that no rule has.
func (set *ruleset) limitsInContext(ctx context.Context) *contextLimit {
	given, _ := ctx.Value(limitKey).(*contextLimit)
	for g := given; g != nil; g = g.outer {
		if set.named[g.rule] == nil {
			set.warnUnknown("weir-unknown-rule",
				"weir: WithLimit names a rule that the limiter does not have, so the limit has no effect: is the name misspelt?",
				"rule", g.rule)
		}
	}
	return given
}

// of returns the limit for a rule, or nil.
func (g *contextLimit) of(rule string) *contextLimit {
	for g != nil && g.rule != rule {
		g = g.outer
	}
	return g
}

// ownLimits returns the client's own limits, or else ofTier. It refuses a client whose own limit is 0 or invalid.
func (v *visit) ownLimits(ofTier *family, key string, class keyfunc.Class) (f *family, no *refusal) {
	f = ofTier
	if override := ofTier.overrides[key]; override != nil && class != keyfunc.InDoubt {
		if end := override.info.Until; end.IsZero() || v.limiter.now().Before(end) {
			f = override
		}
	}
	given := v.given.of(f.rule.Name)
	switch {
	case given == nil:
		return f, nil
	case given.denies:
		return f, v.refuse(refusal{
			outcome: OutcomeRefused, status: http.StatusTooManyRequests, retry: limiter.Never, rule: f.rule,
		})
	case given.err == nil && (key == noKey || class == keyfunc.Shared || class == keyfunc.InDoubt):
		return f, nil
	}
	var err error
	if err = given.err; err == nil {
		f, err = v.set.familyFor(ofTier, given.limit)
	}
	if err != nil {
		v.set.warnOnce("weir-limit-failed", ofTier.rule.Name,
			"weir: WithLimit gave a rule a limit that it cannot have; such requests are answered 503", shortError(err))
		return ofTier, v.refuse(refusal{
			outcome: OutcomeUndecided, status: http.StatusServiceUnavailable, rule: ofTier.rule,
		})
	}
	return f, nil
}

// An override that ends shortens the waits of decisions: if the rule's limits allow more, more fits then.

var endingOverrides = feature{
	family: func(f *family) (needed bool, err error) { return !f.info.Until.IsZero(), nil },
	after: func(v *visit) (again bool, no *refusal) {
		for i := range v.limits {
			v.met[i].endWithOverride(v.limiter.now())
		}
		return false, nil
	},
}

func (m *met) endWithOverride(now time.Time) {
	d, until := &m.Decision, m.info.Until
	if until.IsZero() || !slices.Contains(m.rates, m.meter) || !d.Counted() {
		return
	}
	for _, after := range m.ofTier.rates {
		if after.quota.Capacity() <= max(m.quota.Capacity(), m.units-1) {
			return
		}
	}
	left := max(until.Sub(now).Truncate(time.Microsecond), time.Microsecond)
	d.NextAfter, d.ResetAfter = min(d.NextAfter, left), min(d.ResetAfter, left)
	d.RetryAfter = min(d.RetryAfter, left)
}

// mostOwn bounds the own limits that are kept of a rule in a tier, and the keys' different overrides.
const mostOwn = 4096

// familyFor returns ofTier with another Allowance, or why the rule cannot have it.
func (set *ruleset) familyFor(ofTier *family, l limiter.Allowance) (*family, error) {
	if l == ofTier.info.Limit {
		return ofTier, nil
	}
	f, _ := ofTier.own.Get(l, func() (*family, error) { // compiled again, limits find their counters by name
		f, err := set.compileOwn(ofTier, l)
		if err != nil {
			f = &family{err: err}
		}
		return f, nil
	})
	return f, f.err
}

// compileOwn compiles ofTier with another Allowance, which the store may refuse.
func (set *ruleset) compileOwn(ofTier *family, l limiter.Allowance) (*family, error) {
	r, info := ofTier.rule, *ofTier.info
	info.Limit, info.Own = l, true
	f, err := r.newFamily(info)
	if err != nil {
		return nil, err
	}
	for _, m := range f.all() {
		if other := set.counters[m.quota.Rule()]; other != "" && other != r.Name {
			return nil, invalid.New("middleware", "the limit %v has a counter named %q, which rule %q has",
				l, m.quota.Rule(), other)
		}
		if err := set.limiter.checkQuota(m.quota); err != nil {
			return nil, err
		}
	}
	for _, m := range f.limits() {
		if err := r.fits(m.quota); err != nil {
			return nil, err
		}
	}
	if r.notes.add(f) {
		for _, ofTier := range r.families { // those that are in use add their names again
			ofTier.own.Clear()
		}
	}
	return f, nil
}

// add keeps the names of f's counters for Reset: the last mostOwn names, and the mostOwn before these. It reports whether
// it has dropped older ones.
func (n *notes) add(f *family) (forgets bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range f.limits() {
		id := counterKey{rule: m.quota.Rule(), tier: m.quota.Tier()}
		if n.quotas[id] == nil && (n.quotas == nil || len(n.quotas) >= mostOwn) {
			forgets = n.older != nil
			n.older, n.quotas = n.quotas, map[counterKey]*limiter.Quota{}
		}
		if n.quotas[id] == nil || !f.info.Own { // the rule's own may be of another kind
			n.quotas[id] = m.quota
		}
	}
	return forgets
}

// quotasForReset returns a quota for each name and tier that r's limits have, or had.
func (r *rule) quotasForReset() map[counterKey]*limiter.Quota {
	r.notes.mu.Lock()
	all := maps.Clone(r.notes.older)
	if all == nil {
		all = map[counterKey]*limiter.Quota{}
	}
	maps.Copy(all, r.notes.quotas)
	r.notes.mu.Unlock()
	add := func(f *family) {
		for _, m := range f.limits() {
			all[counterKey{rule: m.quota.Rule(), tier: m.quota.Tier()}] = m.quota
		}
	}
	for _, ofTier := range r.families {
		for _, override := range ofTier.overrides {
			add(override)
		}
	}
	for _, ofTier := range r.families {
		add(ofTier)
	}
	return all
}

// compileOverrides compiles r's limits of single keys, for each of its tiers. No message contains a key.
func (c *compiler) compileOverrides(at invalid.Place, r *rule) {
	if r.Overrides == nil {
		return
	}
	at = at.Of("Overrides")
	c.reject(r.together, at, "has the limits of single keys, and Key is keyfunc.Global, the key of all clients")
	keys, compiled := map[Override][]string{}, 0
	for _, key := range slices.Sorted(maps.Keys(r.Overrides)) {
		_, isDigest := keyfunc.DigestOf(key)
		c.reject(isDigest, at, "has the digest of a key: it must be the key itself")
		c.reject(key == noKey, at, "has an empty key")
		o := r.Overrides[key]
		// Equal times must be equal values.
		o.Until = o.Until.Round(0).UTC()
		if _, _, err := limiter.Split(o.Limit); c.checkLimit(at, o.Limit, err) { // a wrong one may be no key of a map
			keys[o] = append(keys[o], key)
		}
	}
	for _, ofTier := range r.families {
		ofTier.overrides = make(map[string]*family, len(r.Overrides))
		for o, keys := range keys {
			f, info := ofTier, *ofTier.info
			if o.Limit != info.Limit {
				if compiled++; compiled > mostOwn {
					c.report(at, "has more than the %d different limits that the keys of a rule can have", mostOwn)
					return
				}
				info.Limit, info.Own, info.Until, info.Because = o.Limit, true, o.Until, o.Because
				if f = c.family(at, r, info); f != nil {
					f.ofTier = ofTier
				}
			}
			for _, key := range keys {
				ofTier.overrides[key] = f
			}
		}
	}
	r.Overrides = nil // the caller may change it
}

// checkLimit reports err, which is what is wrong with an Allowance, and returns whether err is nil.
func (c *compiler) checkLimit(at invalid.Place, a limiter.Allowance, err error) (ok bool) {
	if err != nil && isZero(a) {
		c.report(at, "%w; Mode Deny refuses all requests, and Config.Bans those of single clients", err)
		return false
	}
	return c.check(at, err)
}
