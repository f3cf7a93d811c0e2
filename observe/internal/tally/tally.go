// Package tally counts what limiters decide, by rule and outcome, and reads how their store
// is, for adapters that show it to a monitoring system.
package tally

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// A Decision is what a rule said about a request.
type Decision uint8

// What rules say.
const (
	Allowed       Decision = iota
	Refused                // and the request with it
	ShadowRefused          // by a rule in shadow: the request went on
	Undecided              // the store gave no decision
	decisions
)

var decisionNames = [decisions]string{"allowed", "refused", "shadow_refused", "undecided"}

// Decisions are all there are.
func Decisions() []Decision { return []Decision{Allowed, Refused, ShadowRefused, Undecided} }

// String is the decision in a word.
func (d Decision) String() string { return decisionNames[d] }

// LatencyBounds are the buckets of decisions' times, in seconds: from 100 ns, for memory, to a
// second, with 5 ms among them.
var LatencyBounds = []float64{
	100e-9, 200e-9, 500e-9, 1e-6, 2e-6, 5e-6, 10e-6, 50e-6, 100e-6, 200e-6, 500e-6,
	1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 1,
}

// Other is the rule that requests of rules beyond the cap are counted under.
const Other = "other"

// A Tally is a [middleware.Observer] that counts. To count takes no lock and no memory,
// but for the first request of a rule.
type Tally struct {
	Store *Store

	most     int
	outcomes counts // by middleware.Outcome
	errors   atomic.Uint64
	cache    Cache[counts]
	find     func(*middleware.RuleInfo) *counts
	dropped  atomic.Uint64

	mu    sync.Mutex
	rules map[name]*counts
}

type name struct{ rule, tier string }

// counts are by Decision, or by middleware.Outcome.
type counts [8]atomic.Uint64

// New returns a Tally that tells apart so many rules and tiers at most.
func New(store limiter.Store, most int) *Tally {
	t := &Tally{Store: NewStore(store), most: most, rules: map[name]*counts{}}
	t.find = t.named
	return t
}

// Observe implements [middleware.Observer].
func (t *Tally) Observe(o *middleware.Observation) {
	t.outcomes[o.Outcome].Add(1)
	troubled := o.Err != nil
	for i := range o.Rules {
		r := &o.Rules[i]
		t.cache.Of(r.Rule, 16*t.most, t.find)[decisionOf(o, r)].Add(1)
		troubled = troubled || r.Degraded
	}
	if troubled {
		if o.Err != nil && o.Request.Context().Err() == nil { // a client that went away is no error of the store's
			t.errors.Add(1)
		}
		t.Store.notice()
	}
}

func decisionOf(o *middleware.Observation, r *middleware.RuleResult) Decision {
	switch {
	case o.Err != nil || o.Outcome == middleware.OutcomeUndecided:
		return Undecided
	case r.Allowed:
		return Allowed
	case r.Rule.Shadow:
		return ShadowRefused
	}
	return Refused
}

// named are the counters of a rule by its name.
func (t *Tally) named(rule *middleware.RuleInfo) *counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := name{rule.Name, rule.Tier}
	c, ok := t.rules[n]
	if !ok && len(t.rules) >= t.most {
		t.dropped.Add(1)
		n = name{rule: Other} // shared with the user's rule of that name, if there is one
		c, ok = t.rules[n]
	}
	if !ok {
		c = &counts{}
		t.rules[n] = c
	}
	return c
}

// A Rule is how often a rule, in one tier, said what.
type Rule struct {
	Rule, Tier string
	Count      [decisions]uint64
}

// Rules are all that were met, by name.
func (t *Tally) Rules() []Rule {
	t.mu.Lock()
	all := make([]Rule, 0, len(t.rules))
	for n, c := range t.rules {
		r := Rule{Rule: n.rule, Tier: n.tier}
		for d := range r.Count {
			r.Count[d] = c[d].Load()
		}
		all = append(all, r)
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b Rule) int { return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Tier, b.Tier)) })
	return all
}

// Outcome is how many requests became what.
func (t *Tally) Outcome(o middleware.Outcome) uint64 { return t.outcomes[o].Load() }

// Errors is how many requests the store could not decide about.
func (t *Tally) Errors() uint64 { return t.errors.Load() }

// Dropped is how many rules found no room below the cap.
func (t *Tally) Dropped() uint64 { return t.dropped.Load() }
