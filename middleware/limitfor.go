package middleware

import (
	"cmp"
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

// The limits of single keys, by Rule.LimitFor. They count under the rule's name and tier, so what a key
// has used stays used when its limit changes.

const (
	limitKept     = time.Minute     // how long an answer of LimitFor is cached
	limitRetry    = 5 * time.Second // until the next call after it failed, if an answer is cached
	limitFailed   = time.Second     // and if none is
	limitPatience = time.Second     // deadline of a call

	// mostKeys bounds the cached answers of a rule.
	mostKeys = 100_000

	// mostOwn bounds the different limits of single keys at a time: each is a quota here and in the store.
	mostOwn = 4096
)

// A limitCache caches the answers of a rule's LimitFor. The zero value is empty.
type limitCache struct {
	mu sync.Mutex

	// When young is full, it becomes old, and the keys of the former old are forgotten.
	young, old map[limitKey]*limitAnswer

	reloads int // how often the rules changed: LimitFor may be another
}

// A limitKey is two digests of a key, 128 bits under seeds of the process. Clients may send long keys, and
// cannot make one collide with another.
type limitKey [2]uint64

var limitSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// A limitAnswer is the latest answer for one key.
type limitAnswer struct {
	limit   limiter.Allowance // nil: the rule's own
	known   bool              // a call has succeeded
	err     error             // why none has
	until   time.Time         // when to call again
	reloads int               // limitCache.reloads at the call
	asking  chan struct{}     // closed when the call in progress ends; nil: none
}

// of returns the limit of a key, from the cache or from the rule's LimitFor. There is one call at a time
// for a key. Meanwhile other requests use the cached answer, and so do all if the call fails.
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
	ctx, cancel := context.WithTimeoutCause(ctx, limitPatience, errors.New("LimitFor did not answer in time"))
	defer cancel()
	select {
	case <-asking:
		c.mu.Lock()
		defer c.mu.Unlock()
		return a.limit, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// answer returns the answer for a key, or a new one.
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

// ask calls LimitFor, and returns the limit in force then. If LimitFor panics, others stop waiting.
func (c *limitCache) ask(ctx context.Context, logger *slog.Logger, r *rule, key string, a *limitAnswer) (limit limiter.Allowance, err error) {
	err = errors.New("LimitFor panicked")
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		limit, err = a.note(limit, err)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limitPatience) // others wait for it too
	defer cancel()
	if limit, err = r.LimitFor.(LimitFunc)(ctx, key); err == nil && limit != nil {
		err = r.takes(limit, r.parts)
	}
	if err != nil {
		r.warnLimitFailure(logger, err)
	}
	return limit, err
}

// note stores an answer, and returns the limit in force then.
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

// reload makes all cached answers outdated.
func (c *limitCache) reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reloads++
}

// mostOwnParts is how many parts an answer of a LimitFunc may have, if the rule has fewer.
const mostOwnParts = fewRules

// takes returns why a key of r cannot have that limit, or nil.
func (r *rule) takes(a limiter.Allowance, mostParts int) error {
	quotas, err := r.family(&RuleInfo{Limit: a}).make()
	if err == nil && len(quotas) > mostParts {
		err = invalid.New("middleware", "the limit has %d parts: %v: it must have at most %d", len(quotas), a, mostParts)
	}
	for _, quota := range quotas {
		err = cmp.Or(err, r.fits(quota))
	}
	return err
}

func (r *rule) warnLimitFailure(logger *slog.Logger, err error) {
	r.notes.limitFailure.warn(logger, "weir-limit-failed",
		"weir: the limit of a key is unknown; the cached limit stays in force, or Rule.OnOutage decides if there is none",
		slog.String("rule", r.Name), shortError(err))
}

// ownLimits are the policies of keys with limits of their own.
type ownLimits struct {
	configured map[ownLimit]*policy // of LimitMaps; it does not change once the rules are in force

	// Of LimitFuncs. When it is full, it begins anew, as a limit that follows the load leaves former ones
	// behind. The counters are in the store.
	mu      sync.RWMutex
	answers map[ownLimit]*policy
}

type ownLimit struct {
	base  *policy
	limit limiter.Allowance
}

// policyOf returns the policy of a key, base if it has no limit of its own. If that is unknown, OnOutage
// decides.
func (set *ruleset) policyOf(ctx context.Context, r *rule, base *policy, key string, class keyfunc.Class) (*policy, keyUse) {
	if key == noKey || class == keyfunc.InDoubt {
		return base, useKey
	}
	known, isMap := r.LimitFor.(LimitMap)
	limit, own, err := known[key], base, error(nil)
	if !isMap {
		limit, err = r.notes.limits.of(ctx, set.Logger, r, key)
	}
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

// policyToTell is policyOf for Peek and Usage. If the limit is unknown, as for a digest, it returns an
// error, whatever OnOutage says.
func (set *ruleset) policyToTell(ctx context.Context, r *rule, base *policy, key string, class keyfunc.Class) (*policy, error) {
	if _, ok := keyfunc.DigestOf(key); ok {
		return nil, fmt.Errorf("middleware: a digest does not reveal the key, which may have a limit of its own: %w", bans.ErrDigest)
	}
	p, use := set.policyOf(ctx, r, base, key, class)
	if use != useKey {
		return nil, errors.New("middleware: the limit of the key is unknown, as LimitFor failed")
	}
	return p, nil
}

// own returns a policy like base with another limit, or base itself if l is nil.
func (set *ruleset) own(base *policy, l limiter.Allowance) (*policy, error) {
	if l == nil || l == base.info.Limit {
		return base, nil
	}
	id := ownLimit{base, l}
	own := &set.ownLimits
	if p := own.configured[id]; p != nil {
		return p, nil
	}
	own.mu.RLock()
	p := own.answers[id]
	own.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if p := own.answers[id]; p != nil {
		return p, nil
	}
	r, info := base.rule, *base.info
	info.Limit, info.Own = l, true
	quotas, err := r.family(&info).make()
	if err != nil {
		return nil, err
	}
	for _, quota := range quotas {
		if set.check == nil { // the rules are being compiled
			set.quotas = append(set.quotas, quota)
		} else if err := set.check(quota); err != nil {
			return nil, err
		}
	}
	p = r.newPolicy(quotas, &info, base.progress)
	known := &own.answers
	if set.check == nil {
		known = &own.configured
	}
	if *known == nil || set.check != nil && len(*known) >= mostOwn {
		*known = map[ownLimit]*policy{}
	}
	(*known)[id] = p
	return p, nil
}
