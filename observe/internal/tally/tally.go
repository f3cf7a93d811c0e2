// Package tally counts what limiters decide and what package pace does, and reads the state of
// stores, for packages that export metrics.
package tally

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/pace"
)

// A decision is a rule's verdict on a request.
type decision uint8

const (
	allowed       decision = iota
	refused                // and the request with it
	shadowRefused          // by a rule in shadow: the request went on
	undecided              // the store gave no decision
)

var decisions = [...]string{"allowed", "refused", "shadow_refused", "undecided"}

// LatencyBounds are the histogram buckets of decisions, in seconds: from 100 ns, for memory, to a
// second.
var LatencyBounds = []float64{
	100e-9, 200e-9, 500e-9, 1e-6, 2e-6, 5e-6, 10e-6, 50e-6, 100e-6, 200e-6, 500e-6,
	1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 1,
}

// WaitBounds are the histogram buckets of waits, in seconds.
var WaitBounds = []float64{1e-3, 10e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30, 60, 300, 3600}

// A Watcher keeps rules in force. The rules.Watcher is one.
type Watcher interface{ Overload() middleware.Overload }

// A Tally is a [middleware.Observer] that counts, and the source of an adapter's metrics. Counting
// takes no lock and no memory, except for the first request of a rule. W is the adapter's Watcher.
type Tally[W Watcher] struct {
	Store *Store

	outcomes counts // by middleware.Outcome
	errors   atomic.Uint64
	rules    series // by decision
	paced    series // by pace.Outcome, retried and cooldown
	cache    Cache[counts]

	adapter  string // its package, for errors
	overload *shed.Limiter
	watcher  atomic.Pointer[W]

	mu         sync.Mutex
	limits     []*middleware.RateLimit
	transports []*pace.Transport
}

// counts are counters by decision, or by outcome.
type counts [16]atomic.Uint64

// Counters beside the ones of pace's outcomes.
const (
	retried = len(counts{}) - 2 + iota
	cooldown
)

// series are counters by name: most names have their own, all further names share one.
type series struct {
	most    int
	dropped atomic.Uint64 // uses of further names

	mu    sync.Mutex
	known map[name]*counts
}

type name struct{ rule, tier string }

// other is the rule that requests of rules beyond the cap are counted under.
const other = "other"

// of returns the counters of a name, and the name that they are under.
func (s *series) of(n name) (name, *counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.known[n]
	if !ok && len(s.known) >= s.most {
		s.dropped.Add(1)
		n = name{rule: other} // shared with the user's rule of that name, if there is one
		c, ok = s.known[n]
	}
	if !ok {
		c = &counts{}
		s.known[n] = c
	}
	return n, c
}

// each calls f for all counters, by name.
func (s *series) each(f func(name, *counts)) {
	s.mu.Lock()
	known := maps.Clone(s.known)
	s.mu.Unlock()
	byName := func(a, b name) int { return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.tier, b.tier)) }
	for _, n := range slices.SortedFunc(maps.Keys(known), byName) {
		f(n, known[n])
	}
}

const (
	defaultMaxRules = 1000
	mostMaxRules    = 100_000
)

// New returns a Tally for up to maxRules rules and tiers, or an error about that number. If overload
// is nil, the overload limit of the followed rules takes its place.
func New[W Watcher](adapter string, store limiter.Store, overload *shed.Limiter, maxRules int) (*Tally[W], error) {
	if maxRules < 0 || maxRules > mostMaxRules {
		return nil, fmt.Errorf("%s: MaxRules is %d: it must be from 1 to %d, or 0 for %d", adapter, maxRules, mostMaxRules, defaultMaxRules)
	}
	t := &Tally[W]{Store: NewStore(store), adapter: adapter, overload: overload}
	for _, s := range []*series{&t.rules, &t.paced} {
		s.most, s.known = cmp.Or(maxRules, defaultMaxRules), map[name]*counts{}
	}
	return t, nil
}

// Observe implements [middleware.Observer].
func (t *Tally[W]) Observe(o *middleware.Observation) {
	t.outcomes[o.Outcome].Add(1)
	for i := range o.Rules {
		r := &o.Rules[i]
		t.cache.Of(r.Rule, 16*t.rules.most, t.named)[decisionOf(o, r)].Add(1)
	}
	if o.Err != nil && o.Request.Context().Err() == nil { // a client that went away is no error of the store's
		t.errors.Add(1)
	}
}

func (t *Tally[W]) named(rule *middleware.RuleInfo) *counts {
	_, c := t.rules.of(name{rule.Name, rule.Tier})
	return c
}

func decisionOf(o *middleware.Observation, r *middleware.RuleResult) decision {
	switch {
	case o.Err != nil || o.Outcome == middleware.OutcomeUndecided:
		return undecided
	case r.Allowed:
		return allowed
	case r.Rule.Mode == middleware.Shadow:
		return shadowRefused
	}
	return refused
}

// ObserveAttempt counts an attempt of package pace, and returns the rule that it was counted under.
func (t *Tally[W]) ObserveAttempt(o *pace.Observation) (rule string) {
	n, c := t.paced.of(name{rule: o.Rule})
	c[o.Outcome].Add(1)
	if o.Retried {
		c[retried].Add(1)
	}
	if o.Cooldown > 0 {
		c[cooldown].Add(1)
	}
	return n.rule
}

// Follow adds a Watcher. It replaces an earlier one.
func (t *Tally[W]) Follow(w W) error {
	if v := reflect.ValueOf(w); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New(t.adapter + ": Follow needs a Watcher")
	}
	t.watcher.Store(&w)
	return nil
}

// Watcher returns the Watcher that was followed last.
func (t *Tally[W]) Watcher() (w W, ok bool) {
	if found := t.watcher.Load(); found != nil {
		return *found, true
	}
	return w, false
}

// FollowLimiter adds the requests in progress of a limiter, once.
func (t *Tally[W]) FollowLimiter(l *middleware.RateLimit) error {
	if l == nil {
		return errors.New(t.adapter + ": FollowLimiter needs a RateLimit")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.limits, l) {
		t.limits = append(t.limits, l)
	}
	return nil
}

// FollowTransport adds the Stats of a transport, once.
func (t *Tally[W]) FollowTransport(transport *pace.Transport) error {
	if transport == nil {
		return errors.New(t.adapter + ": FollowTransport needs a Transport")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.transports, transport) {
		t.transports = append(t.transports, transport)
	}
	return nil
}

// inProgress returns the requests in progress of all followed limiters, for as many rules and tiers as
// have counters. Rules of one name in several limiters are added up, with the Rule of the first.
func (t *Tally[W]) inProgress() (all []middleware.InProgress) {
	t.mu.Lock()
	limits := slices.Clip(t.limits)
	t.mu.Unlock()
	at := map[name]int{}
	for _, l := range limits {
		for _, of := range l.InProgress() {
			n := name{of.Rule.Name, of.Rule.Tier}
			i, known := at[n]
			switch {
			case known:
				all[i].Requests += of.Requests
				all[i].Waiting += of.Waiting
			case len(all) < t.rules.most:
				at[n] = len(all)
				all = append(all, of)
			}
		}
	}
	return all
}

// waiting returns the Stats of all followed transports. Rules of one name are added up.
func (t *Tally[W]) waiting() (all []pace.Stats) {
	t.mu.Lock()
	transports := slices.Clip(t.transports)
	t.mu.Unlock()
	for _, transport := range transports {
		for _, s := range transport.Stats() {
			i := slices.IndexFunc(all, func(known pace.Stats) bool { return known.Rule == s.Rule })
			if i < 0 {
				all = append(all, s)
				continue
			}
			all[i].Waiting += s.Waiting
			all[i].InFlight += s.InFlight
			if s.Until.After(all[i].Until) {
				all[i].Until = s.Until
			}
		}
	}
	return all
}

// inForce returns the overload limit in force, or nil.
func (t *Tally[W]) inForce() *shed.Limiter {
	l := t.overload
	if w, ok := t.Watcher(); ok && l == nil {
		l, _ = w.Overload().(*shed.Limiter)
	}
	return l
}
