package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// A RuleInfo says what a rule in force is, for one tier or for requests in none. Of those
// that are equal a RateLimit has one: pointers to it are the same, also after the rules were
// changed, so that it can be found by its address. Of keys with limits of their own each limit
// has one, until the rules are changed.
type RuleInfo struct {
	Name, Tier string
	Limit      limiter.Allowance // nil: the rule denies, and counts nothing
	Own        bool              // Limit is a single key's own: see Rule.LimitFor
	Mode       Mode              // Shadow also where Config.Shadow says so
	OnOutage   limiter.Outage
	Counts     Counts
	Escalate   bans.Escalation // zero: it bans nobody

	// Route is the pattern of a rule of Config.ByRoute, ForTier the tier of one of
	// Config.ByTier.
	Route, ForTier string
}

// LimitText is the Limit as text, such as "10/1s, 1000/1h, 5 at once", and "none" if there is none.
func (r *RuleInfo) LimitText() string {
	if r.Limit == nil {
		return "none"
	}
	return r.Limit.String()
}

// Rules are those in force, in the order in which they are asked: Config.Rules, ByTier,
// ByRoute by pattern, Default.
func (l *RateLimit) Rules() []RuleInfo {
	var all []RuleInfo
	for _, r := range l.rules.Load().all {
		if r.deny {
			all = append(all, *r.info)
		}
		for _, p := range r.policies() {
			all = append(all, *p.info)
		}
	}
	return all
}

// policies are those of all rules.
func (set *ruleset) policies() (all []*policy) {
	for _, r := range set.all {
		all = append(all, r.policies()...)
	}
	return all
}

// policies are r's, for requests in no tier first; none of a rule that denies.
func (r *rule) policies() []*policy {
	if r.deny {
		return nil
	}
	tiers := slices.SortedFunc(maps.Values(r.tiers), func(a, b *policy) int { return cmp.Compare(a.info.Tier, b.info.Tier) })
	return append([]*policy{r.policy}, tiers...)
}

// Overload is Config.Overload as it is now, or nil.
func (l *RateLimit) Overload() Overload { return l.rules.Load().Overload }

// ErrNoRule is what Peek and Reset return for a rule that is not in force.
var ErrNoRule = errors.New("middleware: there is no rule of that name")

// Peek tells what a key has left of a rule, in each of its tiers, and takes nothing. The
// key is as the rule's key function makes it, with its class or without; empty for a rule
// without one. It is an error if the key may have a limit of its own that cannot be found out: of
// a digest it is [bans.ErrDigest] where the rule has LimitFor.
func (l *RateLimit) Peek(ctx context.Context, rule, key string) ([]RuleResult, error) {
	key, class := keyfunc.Classify(key)
	var questions []question
	set := l.rules.Load()
	for _, p := range set.policies() {
		if p.info.Name == rule {
			questions = append(questions, question{rule: p.rule, policy: p, key: key, class: class})
		}
	}
	if questions == nil {
		return nil, fmt.Errorf("%w: %.128q", ErrNoRule, rule)
	}
	if err := l.left(ctx, set, questions); err != nil {
		return nil, err
	}
	var results []RuleResult
	for i := range questions {
		q := &questions[i]
		if q.err != nil {
			return nil, q.err
		}
		for n, p := range q.policies {
			a := applied{policy: p, key: key, class: class}
			results = a.appendResult(results, q.decisions[n])
		}
	}
	return results, nil
}

// Reset makes a key as if the rule had never seen it, in all tiers, with what it
// was refused. Requests that are in progress keep their places until they end. Bans are
// another matter; see Config.Bans.
func (l *RateLimit) Reset(ctx context.Context, rule, key string) error {
	key, _ = keyfunc.Classify(key)
	var quotas []*limiter.Quota
	for _, p := range l.rules.Load().policies() {
		if p.rule.Name == rule {
			for _, part := range p.parts {
				quotas = append(quotas, part.quota)
			}
			quotas = append(quotas, p.rule.strikes)
		}
	}
	if quotas == nil {
		return fmt.Errorf("%w: %.128q", ErrNoRule, rule)
	}
	for _, quota := range quotas {
		if quota == nil {
			continue
		}
		c := limiter.Charge{Quota: quota, Key: key}
		if err := l.store.Reset(ctx, []limiter.Charge{c}); err != nil {
			return err
		}
		if quota.InFlight() {
			l.room.Returned(lineOf(&c))
		}
	}
	return nil
}
