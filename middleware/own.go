package middleware

import (
	"cmp"
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

// A givenLimit is what WithLimit stores in a context.
type givenLimit struct {
	rule   string
	limit  limiter.Allowance
	denies bool        // the limit has 0 events in a period
	err    error       // why the limit is invalid
	outer  *givenLimit // of the context around
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
	g := &givenLimit{rule: rule, limit: limit}
	g.outer, _ = ctx.Value(limitKey).(*givenLimit)
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

// givenLimits returns the innermost limit that WithLimit gave the request with this context, or nil. It
// warns of names that no rule has.
func (set *ruleset) givenLimits(ctx context.Context) *givenLimit {
	given, _ := ctx.Value(limitKey).(*givenLimit)
	for g := given; g != nil; g = g.outer {
		if set.named[g.rule] == nil {
			set.notices.warnUnknown(set.Logger, "weir-unknown-rule",
				"weir: WithLimit names a rule that the limiter does not have, so the limit has no effect: is the name misspelt?",
				"rule", g.rule)
		}
	}
	return given
}

// of returns the limit for a rule, or nil.
func (g *givenLimit) of(rule string) *givenLimit {
	for g != nil && g.rule != rule {
		g = g.outer
	}
	return g
}

// limitsOf returns the limits of a client with that key: its own, or base, which are of its tier. It refuses a client
// whose own limit is 0 or invalid.
func (set *ruleset) limitsOf(r *rule, base *limit, key string, class keyfunc.Class, given *givenLimit) (p *limit, no refusal) {
	p = base
	if own := base.overrides[key]; own != nil && class != keyfunc.InDoubt {
		if end := own.info.Until; end.IsZero() || set.now().Before(end) {
			p = own
		}
	}
	given = given.of(r.Name)
	switch {
	case given == nil:
		return p, no
	case given.denies:
		return p, refusal{outcome: OutcomeRefused, status: http.StatusTooManyRequests, retry: limiter.Never, rule: r}
	case given.err == nil && (key == noKey || class == keyfunc.Shared || class == keyfunc.InDoubt):
		return p, no
	}
	own, err := base, given.err
	if err == nil {
		own = set.own(base, given.limit)
		err = own.err
	}
	if err != nil {
		set.warnOnce("weir-limit-failed", r.Name,
			"weir: WithLimit gave a rule a limit that it cannot have; such requests are answered 503", shortError(err))
		return p, refusal{outcome: OutcomeUndecided, status: http.StatusServiceUnavailable, rule: r}
	}
	return own, no
}

// endsWithOverride shortens the waits of a decision under an override that ends: if the rule's limits allow more, more
// fits then.
func (p *limit) endsWithOverride(d *limiter.Decision, cost int64, now time.Time) {
	if p.base == nil || p.slot || !d.Counted() {
		return
	}
	for _, b := range p.base.all {
		if !b.slot && b.quota.Capacity() <= max(p.quota.Capacity(), cost-1) {
			return
		}
	}
	left := max(p.info.Until.Sub(now).Truncate(time.Microsecond), time.Microsecond)
	d.NextAfter, d.ResetAfter = min(d.NextAfter, left), min(d.ResetAfter, left)
	d.RetryAfter = min(d.RetryAfter, left)
}

// mostOwn bounds the own limits that are kept of a rule in a tier, and the keys' different overrides.
const mostOwn = 4096

// own returns limits like base for another Allowance. They have an err if the rule cannot have them.
func (set *ruleset) own(base *limit, l limiter.Allowance) *limit {
	if l == base.info.Limit {
		return base
	}
	own, _ := base.own.Get(l, func() (*limit, error) {
		p, err := set.compileOwn(base, l)
		if err != nil {
			p = &limit{err: err}
		}
		return p, nil
	})
	return own
}

// compileOwn returns limits like base for another Allowance, which the store may refuse.
func (set *ruleset) compileOwn(base *limit, l limiter.Allowance) (*limit, error) {
	r, info := base.rule, *base.info
	info.Limit, info.Own = l, true
	quotas, err := r.quotasFor(info.Tier, l)
	if err != nil {
		return nil, err
	}
	for _, quota := range quotas {
		if other := set.counters[quota.Rule()]; other != "" && other != r.Name {
			return nil, invalid.New("middleware", "the limit %v has a counter named %q, which rule %q has",
				l, quota.Rule(), other)
		}
		if err := cmp.Or(r.fits(quota), set.check(quota)); err != nil {
			return nil, err
		}
	}
	p := r.newLimits(quotas, &info, base.progress)
	if r.notes.add(p.all) {
		for _, base := range r.allLimits { // those that are in use add their names again
			base.own.Clear()
		}
	}
	return p, nil
}

// add adds the names of limits for Reset. It reports whether it has begun to forget: it keeps mostOwn names, and as
// many as it had before these.
func (n *notes) add(limits []*limit) (forgets bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range limits {
		id := counterKey{rule: p.quota.Rule(), tier: p.quota.Tier()}
		if n.quotas[id] == nil && (n.quotas == nil || len(n.quotas) >= mostOwn) {
			forgets = n.older != nil
			n.older, n.quotas = n.quotas, map[counterKey]*limiter.Quota{}
		}
		if n.quotas[id] == nil || !p.info.Own { // the rule's own may be of another kind
			n.quotas[id] = p.quota
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
	add := func(first *limit) {
		for _, p := range first.all {
			all[counterKey{rule: p.quota.Rule(), tier: p.quota.Tier()}] = p.quota
		}
	}
	for _, base := range r.allLimits {
		for _, own := range base.overrides {
			add(own)
		}
	}
	for _, base := range r.allLimits {
		add(base)
	}
	return all
}

// overrides compiles r's limits of single keys, for each of its tiers. No message contains a key.
func (c *compiler) overrides(at invalid.Place, r *rule) {
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
	for _, base := range r.allLimits {
		base.overrides = make(map[string]*limit, len(r.Overrides))
		for o, keys := range keys {
			p, info := base, *base.info
			if o.Limit != info.Limit {
				if compiled++; compiled > mostOwn {
					c.report(at, "has more than the %d different limits that the keys of a rule can have", mostOwn)
					return
				}
				info.Limit, info.Own, info.Until, info.Because = o.Limit, true, o.Until, o.Because
				if p = c.newLimits(at, r, info, base.progress); p != nil && !o.Until.IsZero() {
					c.set.hasEnds = true
					for _, own := range p.all {
						own.base = base
					}
				}
			}
			for _, key := range keys {
				base.overrides[key] = p
			}
		}
	}
	r.Overrides = nil // the caller may change it
}

// checkLimit reports what is wrong with an Allowance, if err is not nil, and returns whether it is.
func (c *compiler) checkLimit(at invalid.Place, a limiter.Allowance, err error) (ok bool) {
	if err != nil && isZero(a) {
		c.report(at, "%w; Mode Deny refuses all requests, and Config.Bans those of single clients", err)
		return false
	}
	return c.check(at, err)
}
