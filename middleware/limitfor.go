package middleware

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// Limits of single keys, which Rule.LimitFor has. They count under the rule's name and tier, so
// what a key has used stays used when its limit changes.

const (
	limitKept     = time.Minute     // how long what LimitFor said is not asked again
	limitRetry    = 5 * time.Second // when it is asked again after it failed, and an answer is known
	limitFailed   = time.Second     // and where none is
	limitPatience = time.Second     // for its answer

	// mostKeys is how many answers are remembered of a rule.
	mostKeys = 100_000

	// mostOwn is how many different limits the keys of a limiter's rules have in its life: each is
	// a quota here and in the store.
	mostOwn = 4096
)

// A limitCache remembers what a rule's LimitFor said. The zero one is empty.
type limitCache struct {
	mu sync.Mutex

	// Keys that were not asked for while as many others were are forgotten.
	young, old map[limitKey]*limitAnswer

	reloads int // of the rules: LimitFor may be another
}

// A limitKey is two digests of a key, 128 bits under seeds of the process: clients can make keys
// long, and cannot aim at another's.
type limitKey [2]uint64

var limitSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// A limitAnswer is the latest for one key.
type limitAnswer struct {
	limit   limiter.Allowance // nil: the rule's own
	known   bool              // there was one
	err     error             // why there is none
	until   time.Time         // when to ask again
	reloads int               // when it was asked for
	asking  chan struct{}     // closed when the call in progress has ended; nil: none is
}

// of is the limit of a key, as the rule's LimitFor says or has said: one call at a time for a
// key. While it is asked again, others go on with the answer that is known, and so do all if
// that fails.
func (c *limitCache) of(ctx context.Context, logger *slog.Logger, r *rule, key string) (limiter.Allowance, error) {
	c.mu.Lock()
	a := c.answer(key)
	if a.reloads == c.reloads && time.Now().Before(a.until) || a.known && a.asking != nil {
		defer c.mu.Unlock()
		return a.limit, a.err
	}
	asking := a.asking
	if asking == nil {
		a.asking, a.reloads = make(chan struct{}), c.reloads
	}
	c.mu.Unlock()
	if asking == nil {
		return c.ask(ctx, logger, r, key, a)
	}
	patience := time.NewTimer(limitPatience)
	defer patience.Stop()
	select {
	case <-asking:
		c.mu.Lock()
		defer c.mu.Unlock()
		return a.limit, a.err
	case <-patience.C:
		return nil, errors.New("it has not answered in time")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answer is that of a key, or a new one.
func (c *limitCache) answer(text string) *limitAnswer {
	key := limitKey{maphash.String(limitSeeds[0], text), maphash.String(limitSeeds[1], text)}
	if a := c.young[key]; a != nil {
		return a
	}
	a := c.old[key]
	if a == nil {
		a = &limitAnswer{}
	}
	if c.young == nil || len(c.young) >= mostKeys/2 {
		c.young, c.old = map[limitKey]*limitAnswer{}, c.young
	}
	c.young[key] = a
	return a
}

// ask calls LimitFor, and returns what goes then. If that panics, others do not wait on.
func (c *limitCache) ask(ctx context.Context, logger *slog.Logger, r *rule, key string, a *limitAnswer) (limit limiter.Allowance, err error) {
	err = errors.New("it panicked")
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		limit, err = a.note(limit, err)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limitPatience) // others wait for it too
	defer cancel()
	if limit, err = r.LimitFor.(LimitFunc)(ctx, key); err == nil && limit != nil {
		err = r.takes(limit)
	}
	if err != nil {
		r.warnLimitFailure(logger, err)
	}
	return limit, err
}

// note takes an answer, and returns what goes then.
func (a *limitAnswer) note(limit limiter.Allowance, err error) (limiter.Allowance, error) {
	close(a.asking)
	a.asking = nil
	now := time.Now()
	switch {
	case err == nil:
		a.limit, a.known, a.err, a.until = limit, true, nil, now.Add(limitKept)
	case a.known:
		a.until = now.Add(limitRetry)
	default:
		a.err, a.until = err, now.Add(limitFailed)
	}
	return a.limit, a.err
}

// reload has all answers asked for again.
func (c *limitCache) reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reloads++
}

// mostOwnParts is how many parts a LimitFunc's answer may have, if the rule has fewer.
const mostOwnParts = fewRules

// takes says why a key of r cannot have that limit, or nil.
func (r *rule) takes(a limiter.Allowance) error {
	limits, _, err := limiter.Split(a)
	if err != nil {
		return err
	}
	if err := r.countable(a); err != nil {
		return err
	}
	if parts := partsOf(a); parts > r.parts {
		return invalid.New("middleware", "the limit has %d parts: %v: it must have at most %d", parts, a, r.parts)
	}
	for _, l := range limits {
		if err := r.fits(l); err != nil {
			return err
		}
	}
	return nil
}

// partsOf is how many limits and slots a has.
func partsOf(a limiter.Allowance) int {
	limits, atOnce, _ := limiter.Split(a)
	if atOnce != (limiter.Concurrency{}) {
		return len(limits) + 1
	}
	return len(limits)
}

func (r *rule) warnLimitFailure(logger *slog.Logger, err error) {
	const enough = 200 // of a text that may not be the application's alone
	text := err.Error()
	r.notes.limitFailure.warn(logger, "weir-limit-failed",
		"weir: the limit of a key is not known; the one that was known goes on, or else Rule.OnOutage decides",
		slog.String("rule", r.Name), slog.String("error", text[:min(len(text), enough)]))
}

// ownLimits are the policies of keys with limits of their own.
type ownLimits struct {
	mu       sync.RWMutex
	policies map[ownLimit]*policy
}

func (o *ownLimits) find(id ownLimit) *policy {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.policies[id]
}

type ownLimit struct {
	base  *policy
	limit limiter.Allowance
}

// hasOwn reports whether keys of r may have limits of their own.
func (r *rule) hasOwn() bool { return r.LimitFor != nil }

// policyOf is what counts for a key in place of base. If that is not known, OnOutage decides.
func (set *ruleset) policyOf(ctx context.Context, r *rule, base *policy, key string, class keyfunc.Class) (*policy, keyUse) {
	if key == noKey || class == keyfunc.InDoubt {
		return base, useKey
	}
	limit, err := set.limitOf(ctx, r, key)
	var own *policy
	if err == nil {
		own, err = set.own(base, limit)
	}
	if err == nil {
		return own, useKey
	}
	if ctx.Err() == nil {
		r.warnLimitFailure(set.Logger, err)
	}
	switch r.OnOutage {
	case limiter.FailOpen:
		return base, useNone
	case limiter.FailClosed:
		return base, refuse503
	}
	return base, useKey
}

// limitOf is the limit of a key's own, or nil.
func (set *ruleset) limitOf(ctx context.Context, r *rule, key string) (limiter.Allowance, error) {
	if known, ok := r.LimitFor.(LimitMap); ok {
		return known[key], nil
	}
	return r.notes.limits.of(ctx, set.Logger, r, key)
}

// policyToTell is policyOf for one that asks what is left: of a digest it is an error where the
// limit cannot be known, whatever an outage means.
func (set *ruleset) policyToTell(ctx context.Context, r *rule, base *policy, key string, class keyfunc.Class) (*policy, error) {
	if _, ok := keyfunc.DigestOf(key); ok {
		return nil, fmt.Errorf("middleware: a digest does not tell the key, which may have a limit of its own: %w", bans.ErrDigest)
	}
	p, use := set.policyOf(ctx, r, base, key, class)
	if use != useKey {
		return nil, errors.New("middleware: which limit the key has is not known, as LimitFor failed")
	}
	return p, nil
}

// own is a policy like base with another limit, or base itself for none.
func (set *ruleset) own(base *policy, l limiter.Allowance) (*policy, error) {
	if l == nil || l == base.allows {
		return base, nil
	}
	id := ownLimit{base, l}
	if p := set.ownLimits.find(id); p != nil {
		return p, nil
	}
	if !set.notices.isPossible(l) {
		return nil, fmt.Errorf("the keys of a limiter's rules can have %d different limits, and have them", mostOwn)
	}
	set.ownLimits.mu.Lock()
	defer set.ownLimits.mu.Unlock()
	if p := set.ownLimits.policies[id]; p != nil {
		return p, nil
	}
	r, info := base.rule, *base.info
	info.Limit, info.Own = l, true
	of := r.family(info.Tier, l)
	quotas, err := of.make()
	if err != nil {
		return nil, err
	}
	for _, quota := range quotas {
		if set.check == nil { // as long as it is compiled
			set.quotas = append(set.quotas, quota)
		} else if err := set.check(quota); err != nil {
			return nil, err
		}
	}
	p := r.newPolicy(quotas, l, &info, base.progress)
	if set.ownLimits.policies == nil {
		set.ownLimits.policies = map[ownLimit]*policy{}
	}
	set.ownLimits.policies[id] = p
	return p, nil
}

// isPossible reports whether there is room for a limit, and notes it.
func (n *notices) isPossible(l limiter.Allowance) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.limits == nil {
		n.limits = map[limiter.Allowance]struct{}{}
	}
	if _, known := n.limits[l]; !known && len(n.limits) >= mostOwn {
		return false
	}
	n.limits[l] = struct{}{}
	return true
}
