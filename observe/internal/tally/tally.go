// Package tally counts what limiters decide and what package pace does, and reads how stores are,
// for adapters that show it to a monitoring system.
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

// A decision is what a rule said about a request.
type decision uint8

const (
	allowed       decision = iota
	refused                // and the request with it
	shadowRefused          // by a rule in shadow: the request went on
	undecided              // the store gave no decision
)

var decisions = [...]string{"allowed", "refused", "shadow_refused", "undecided"}

// LatencyBounds are the buckets of decisions' times, in seconds: from 100 ns, for memory, to a
// second, with 5 ms among them.
var LatencyBounds = []float64{
	100e-9, 200e-9, 500e-9, 1e-6, 2e-6, 5e-6, 10e-6, 50e-6, 100e-6, 200e-6, 500e-6,
	1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 1,
}

// WaitBounds are the buckets of how long requests waited before they were sent, in seconds.
var WaitBounds = []float64{1e-3, 10e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30, 60, 300, 3600}

// A Watcher keeps rules at what is written, as that of package rules does.
type Watcher interface{ Overload() middleware.Overload }

// A Tally is a [middleware.Observer] that counts, and what an adapter reads metrics from. To count
// takes no lock and no memory, but for the first request of a rule. W is the adapter's Watcher.
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

// counts are by decision, or by an outcome.
type counts [16]atomic.Uint64

// Beside pace's outcomes.
const (
	retried = len(counts{}) - 2 + iota
	cooldown
)

// series are counters by name: of so many names, and of all others together.
type series struct {
	most    int
	dropped atomic.Uint64 // names that were too many

	mu    sync.Mutex
	known map[name]*counts
}

type name struct{ rule, tier string }

// other is the rule that requests of rules beyond the cap are counted under.
const other = "other"

// of are the counters of a name, and the name that they have.
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

// New returns a Tally that tells apart so many rules and tiers at most, or an error about that
// number. If overload is nil, it is the one in force in the rules that are followed.
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

// ObserveAttempt counts an attempt to send a request to others, and returns the rule that it was
// counted under.
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

// Follow has metrics read from a watcher. Of several it is the last one.
func (t *Tally[W]) Follow(w W) error {
	if v := reflect.ValueOf(w); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New(t.adapter + ": Follow needs a Watcher")
	}
	t.watcher.Store(&w)
	return nil
}

// Watcher is the source of rules that is followed.
func (t *Tally[W]) Watcher() (w W, ok bool) {
	if found := t.watcher.Load(); found != nil {
		return *found, true
	}
	return w, false
}

// FollowLimiter adds what is in progress in a limiter, once.
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

// FollowTransport adds what a transport can tell of its rules, once.
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

// inProgress is that of all limiters that are followed, of as many rules and tiers as are told
// apart. Rules of one name in several limiters are told together, with the Rule of the first.
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

// waiting is what requests to others do now, by rule: rules of one name together.
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

// inForce is the limit of overload in force, or nil.
func (t *Tally[W]) inForce() *shed.Limiter {
	l := t.overload
	if w, ok := t.Watcher(); ok && l == nil {
		l, _ = w.Overload().(*shed.Limiter)
	}
	return l
}
