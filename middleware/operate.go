package middleware

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// A RuleInfo describes a rule in force, for one tier or for requests without a tier. A RateLimit has one
// *RuleInfo for them until its rules change. A limit of [WithLimit] has a RuleInfo of its own, which
// another one may replace at any time.
type RuleInfo struct {
	Name, Tier string
	Limit      limiter.Allowance // nil: the rule denies, and counts nothing
	Own        bool              // Limit is of Rule.Overrides or WithLimit
	Until      time.Time         // of the Override; zero: it does not end
	Because    string            // of the Override
	Mode       Mode              // the rule's Mode; always Shadow if Config.Shadow is set
	OnOutage   limiter.Outage
	Counts     Counts
	Escalate   bans.Escalation // zero: it bans nobody

	// Route is the pattern of a rule of Config.ByRoute. ForTier is the tier of a rule of Config.ByTier.
	Route, ForTier string
	Default        bool // the rule is of Config.Default
}

// LimitText returns Limit as text, such as "10/1s, 1000/1h, 5 at once", or "none" if it is nil.
func (r *RuleInfo) LimitText() string {
	if r.Limit == nil {
		return "none"
	}
	return r.Limit.String()
}

// Rules returns the rules in force, in the order in which they are checked: Config.Rules, ByTier,
// ByRoute by pattern, Default.
func (l *RateLimit) Rules() []RuleInfo {
	var all []RuleInfo
	for _, r := range l.rules.Load().all {
		if r.Mode == Deny {
			all = append(all, *r.info)
		}
		for _, f := range r.families {
			all = append(all, *f.info)
		}
	}
	return all
}

// ErrNoRule is the error of Peek and Reset if no rule in force has the name.
var ErrNoRule = invalid.New("middleware", "there is no rule of that name")

// counting returns the rule of that name. A rule that denies counts nothing.
func (set *ruleset) counting(name string) (*rule, error) {
	if r := set.named[name]; r != nil && r.Mode != Deny {
		return r, nil
	}
	return nil, fmt.Errorf("%w: %.128q", ErrNoRule, name)
}

// Peek returns what a key has left of a rule, in each of its tiers, and takes nothing. A Decision is not
// Allowed if no unit is left; RetryAfter is then when the next one comes. The key is as
// the rule's key function returns it, with or without its class, or empty for a rule with
// [keyfunc.Global]. A limit of [WithLimit] is shown only if ctx has it. The error is [bans.ErrDigest] if
// key is a digest and the rule has Overrides: the key's limit is then unknown.
func (l *RateLimit) Peek(ctx context.Context, rule, key string) ([]RuleResult, error) {
	key, class := keyfunc.Classify(key)
	var usages []usage
	set := l.rules.Load()
	named, err := set.counting(rule)
	if err != nil {
		return nil, err
	}
	key = named.counterOf(key)
	for _, f := range named.families {
		usages = append(usages, usage{rule: named, limits: f, key: key, class: class})
	}
	if err := l.left(ctx, set, usages); err != nil {
		return nil, err
	}
	var results []RuleResult
	for i := range usages {
		u := &usages[i]
		if u.err != nil {
			return nil, u.err
		}
		if u.zero != nil {
			info := *u.limits.info
			info.Limit, info.Own = u.zero, true
			never := limiter.Decision{RetryAfter: limiter.Never}
			results = append(results, RuleResult{Rule: &info, Key: key, Class: class, Decision: never})
		}
		for n := range u.met {
			u.met[n].units = 0 // nothing is taken
			results = u.met[n].appendResult(results)
		}
	}
	return results, nil
}

// Reset forgets what a key has used of a rule in all tiers, and how often it was refused. It covers the
// counters of Overrides, and of limits that [WithLimit] gave the rule in this process or that it had before
// [RateLimit.Reconfigure]: of at least the last 4,096 names, which differ by period and tier. Requests in
// progress keep their slots until they end. The values that a rule with Distinct has counted stay
// counted. Reset lifts no ban; see Config.Bans.
func (l *RateLimit) Reset(ctx context.Context, rule, key string) error {
	key, _ = keyfunc.Classify(key)
	var charges []limiter.Charge
	named, err := l.rules.Load().counting(rule)
	if err != nil {
		return err
	}
	key = named.counterOf(key)
	for _, quota := range named.quotasForReset() {
		charges = append(charges, limiter.Charge{Quota: quota, Key: key})
	}
	if named.strikes != nil {
		charges = append(charges, limiter.Charge{Quota: named.strikes, Key: key})
	}
	for _, c := range charges {
		if err := l.store.Reset(ctx, []limiter.Charge{c}); err != nil {
			return err
		}
		l.room.Released(keyOf(&c))
	}
	return nil
}
