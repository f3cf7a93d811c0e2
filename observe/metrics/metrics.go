// Package metrics counts what limiters decide and what package pace does, for an exporter to a
// system of metrics. For Prometheus and OpenTelemetry there are promlimit and otellimit. Another exporter
// is a loop around [Table.Read]:
//
//	table := metrics.Must(metrics.New(metrics.Options{Store: store}))
//	limits, err := middleware.New(middleware.Config{Observer: table, Store: store, Rules: ...})
//	table.Read(func(m *metrics.Metric, value float64, labels ...string) { ... }) // every ten seconds
//
// Labels are names of rules and tiers, bounded by [Options.MaxRules], and words of this package. They never
// contain what a client sends, unless [Options.Top] shows keys.
package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/internal/tally"
	"github.com/weirgo/weir/observe/offenders"
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

// LatencyBounds returns histogram buckets for [middleware.Observation] Elapsed, in seconds: from 100 ns, for
// memory, to a second.
func LatencyBounds() []float64 {
	return []float64{
		100e-9, 200e-9, 500e-9, 1e-6, 2e-6, 5e-6, 10e-6, 50e-6, 100e-6, 200e-6, 500e-6,
		1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 1,
	}
}

// WaitBounds returns histogram buckets for waits, in seconds: from a millisecond to an hour.
func WaitBounds() []float64 {
	return []float64{1e-3, 10e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30, 60, 300, 3600}
}

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// Store is the store of the observed limiters: a [limiter.Memory], a Store of package
	// redisstore, leasestore or failover, or a wrapper with a method Unwrap() limiter.Store.
	// Nil: the store that a RateLimit makes for itself, which has no metrics but its latency.
	Store limiter.Store

	// Bans is the list of bans, whose length is a metric. Nil: the list of the rules given to
	// [Table.Follow], or none.
	Bans bans.List

	// MaxRules bounds how many rules and tiers have series of their own, up to 100,000. Each has four
	// series and takes up to 2 KiB. All others count as the rule "other". Zero: 1000.
	MaxRules int

	// Top, if set, adds the gauge rate_limit_top_client_refused{rule, client}: the clients that each rule refuses most,
	// and their refusals in the Window of Top, for which a minute fits. The client is as Top shows it: a digest, unless
	// its Options.ShowKeys is set. Make Top an Observer of the limiters too. Nil: no metric names clients.
	Top *offenders.Sketch

	// TopClients bounds the clients of Top for each of its rules: from 1 to 100. Zero: 10.
	TopClients int
}

// A Watcher reloads rules when their file changes, like rules.Watcher.
type Watcher interface {
	// Reloads returns how often rules were loaded and how often refused, when the rules in force
	// were loaded, and why the last attempt failed, or nil.
	Reloads() (loaded, refused uint64, last time.Time, err error)

	// Bans returns the list of bans of the rules, or nil.
	Bans() bans.List
}

// A Table is a [middleware.Observer] and a [pace.Observer] that counts. Counting takes no lock and no
// memory, except for the first request of a rule. It may observe several limiters on one store.
type Table struct {
	options Options
	store   *tally.Store

	outcomes counts // by middleware.Outcome
	errors   atomic.Uint64
	rules    series // by decision
	paced    series // by pace.Outcome, and retried
	cache    tally.Cache[counts]

	watcher atomic.Pointer[Watcher]

	mu         sync.Mutex
	limits     []*middleware.RateLimit
	transports []*pace.Transport
}

// counts are counters by decision, or by outcome.
type counts [16]atomic.Uint64

// retried is a counter beside those of pace's outcomes.
const retried = len(counts{}) - 1

// series are counters by name: most names have their own, all further names share one.
type series struct {
	most int

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

	defaultTopClients = 10
	mostTopClients    = 100
)

// New returns a Table, or an error with everything that is wrong with o.
func New(o Options) (*Table, error) {
	var errs []error
	if o.MaxRules < 0 || o.MaxRules > mostMaxRules {
		errs = append(errs, fmt.Errorf("metrics: MaxRules is %d: it must be from 1 to %d, or 0 for %d", o.MaxRules, mostMaxRules, defaultMaxRules))
	}
	if o.TopClients < 0 || o.TopClients > mostTopClients {
		errs = append(errs, fmt.Errorf("metrics: TopClients is %d: it must be from 1 to %d, or 0 for %d", o.TopClients, mostTopClients, defaultTopClients))
	}
	if o.TopClients != 0 && o.Top == nil {
		errs = append(errs, fmt.Errorf("metrics: TopClients is %d and Top is nil: it needs the Sketch that finds the clients", o.TopClients))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	t := &Table{options: o, store: tally.NewStore(o.Store)}
	for _, s := range []*series{&t.rules, &t.paced} {
		s.most, s.known = cmp.Or(o.MaxRules, defaultMaxRules), map[name]*counts{}
	}
	return t, nil
}

// Must returns t, or panics on an error of [New].
func Must(t *Table, err error) *Table {
	if err != nil {
		panic(err)
	}
	return t
}

// StoreKind returns the kind of the store, the value of the label store: memory, redis or other.
func (t *Table) StoreKind() string { return t.store.Kind }

// Observe implements [middleware.Observer].
func (t *Table) Observe(o *middleware.Observation) {
	t.outcomes[o.Outcome].Add(1)
	for i := range o.Rules {
		r := &o.Rules[i]
		t.cache.Of(r.Rule, 16*t.rules.most, t.named)[decisionOf(o, r)].Add(1)
	}
	if o.Err != nil && o.Request.Context().Err() == nil { // a client that went away is no error of the store's
		t.errors.Add(1)
	}
}

func (t *Table) named(rule *middleware.RuleInfo) *counts {
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

// ObserveAttempt implements [pace.Observer].
func (t *Table) ObserveAttempt(o *pace.Observation) { t.CountAttempt(o) }

// CountAttempt is ObserveAttempt, and returns the rule that the attempt was counted under: o.Rule, or
// "other" beyond MaxRules.
func (t *Table) CountAttempt(o *pace.Observation) (rule string) {
	n, c := t.paced.of(name{rule: o.Rule})
	c[o.Outcome].Add(1)
	if o.Retried {
		c[retried].Add(1)
	}
	return n.rule
}

// Follow adds metrics of w: its reloads, and its bans if Options.Bans is nil. A further call replaces
// w. It panics on nil.
func (t *Table) Follow(w Watcher) {
	if v := reflect.ValueOf(w); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("metrics: Follow needs a Watcher, not nil")
	}
	t.watcher.Store(&w)
}

// FollowLimiter adds metrics of l: how many requests are in progress and how many wait, for rules with
// AtOnce; the units of rules with Reserve; and its overload limit, if l is the first with a [shed.Limiter]. Call it for each limiter. It panics
// on nil.
func (t *Table) FollowLimiter(l *middleware.RateLimit) {
	if l == nil {
		panic("metrics: FollowLimiter needs a RateLimit, not nil")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.limits, l) {
		t.limits = append(t.limits, l)
	}
}

// FollowTransport adds metrics of how many outgoing requests wait, and how long cooldowns still last. Call it for each transport. It panics on nil.
func (t *Table) FollowTransport(transport *pace.Transport) {
	if transport == nil {
		panic("metrics: FollowTransport needs a Transport, not nil")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.transports, transport) {
		t.transports = append(t.transports, transport)
	}
}

func (t *Table) limiters() []*middleware.RateLimit {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.limits)
}

// inProgress returns the requests in progress of all followed limiters, for as many rules and tiers as
// have counters. Rules of one name in several limiters are added up, with the Rule of the first.
func (t *Table) inProgress() (all []middleware.InProgress) {
	at := map[name]int{}
	for _, l := range t.limiters() {
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

// reservations returns the units of rules that reserve, of all followed limiters. Rules of one name are added up.
func (t *Table) reservations() (all []middleware.Reservations) {
	for _, l := range t.limiters() {
		for _, of := range l.Reservations() {
			i := slices.IndexFunc(all, func(known middleware.Reservations) bool { return known.Rule == of.Rule })
			switch {
			case i >= 0:
				all[i].Reserved += of.Reserved
				all[i].Settled += of.Settled
				all[i].Unsettled += of.Unsettled
			case len(all) < t.rules.most:
				all = append(all, of)
			}
		}
	}
	return all
}

// waiting returns the Stats of all followed transports. Rules of one name are added up.
func (t *Table) waiting() (all []pace.Stats) {
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
			if s.Until.After(all[i].Until) {
				all[i].Until = s.Until
			}
		}
	}
	return all
}

// overload returns the overload limit in force of the first limiter that has one, or nil.
func (t *Table) overload() *shed.Limiter {
	for _, l := range t.limiters() {
		if limit, ok := l.Overload().(*shed.Limiter); ok {
			return limit
		}
	}
	return nil
}
