// Package simulate runs a service's rules over the requests of a log, with the log's clock.
//
// Package middleware decides, as in the service. A simulation gives it a store, a list of bans and
// requests.
package simulate

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// A Simulation is a service with a log's clock. Only one goroutine may use it.
type Simulation struct {
	limits   *middleware.RateLimit
	clock    *Clock
	requests *Requests
	response discarding
	decision Decision
	ends     []ending // of requests whose end matters to a rule, the next one last

	bounded  map[string]bool // see Bounded
	unqueued map[string]bool // see Unqueued
}

// A Decision is the result for one request.
type Decision struct {
	Client  string // valid until the next request, like everything from the log
	Outcome middleware.Outcome
	Refusal middleware.Result // the refusal, unless the request passed
	Delay   time.Duration     // how long it waited for its turn
	Soft    bool              // the response warned that the limit is near

	// Rules are the decisions of the rules that applied. They are valid until the next request.
	Rules []middleware.RuleResult
}

// Passed reports whether the request reached its handler.
func (d *Decision) Passed() bool {
	return d.Outcome == middleware.OutcomeAllowed || d.Outcome == middleware.OutcomeExempt
}

// New returns a service with these rules. Their Bans.List must be from [NewBans], and not be shared.
func New(c middleware.Config, o Options) (*Simulation, error) {
	listed := c.Bans.List
	if around, ok := listed.(interface{ Unwrap() bans.List }); ok { // a rules file's
		listed = around.Unwrap()
	}
	list, ok := listed.(*Bans)
	if !ok {
		return nil, errors.New("simulate: Config.Bans.List is not from NewBans")
	}
	s := &Simulation{
		clock: &list.clock, requests: NewRequests(o), response: discarding{},
		bounded: map[string]bool{}, unqueued: map[string]bool{},
	}
	c.Store, c.Observer, c.Refusal.Answer = newStore(s.clock), s, s.refused
	c.Logger = slog.New(slog.DiscardHandler)
	c.Overload = nil // nothing can be overloaded
	eachRule(&c, func(rule *middleware.Rule) {
		if slices.Contains(o.LeftOut, rule.Name) { // it applies to no request, without another rule taking over
			rule.Match = middleware.MatchFunc(func(*http.Request) bool { return false })
		}
		s.slots(rule)
		rule.Refusal.Jitter = 0 // a test goes by the least time to wait
	})
	c.Refusal.Jitter = 0

	// Most rules need no fields, which cost half of the time; if one does, New refuses fast.
	fast := c
	fast.Headers.Send = middleware.HeadersNone
	var err error
	if !o.Answers {
		s.limits, err = middleware.New(fast)
	}
	if o.Answers || err != nil {
		s.limits, err = middleware.New(c)
	}
	return s, err
}

// Rules returns the rules in force.
func (s *Simulation) Rules() []middleware.RuleInfo { return s.limits.Rules() }

// Peers returns how many requests count as their TCP peer's, though another may be the client.
func (s *Simulation) Peers() Peers { return s.requests.peers }

// Bounded returns the names of the rules with concurrency, which refuses nothing if the log has no durations.
func (s *Simulation) Bounded() []string { return slices.Sorted(maps.Keys(s.bounded)) }

// Unqueued returns the names of the rules with a queue for slots. In a simulation they refuse instead.
func (s *Simulation) Unqueued() []string { return slices.Sorted(maps.Keys(s.unqueued)) }

// slots removes a rule's queues for slots, which are not simulated.
func (s *Simulation) slots(rule *middleware.Rule) {
	slots := func(a limiter.Allowance) limiter.Allowance {
		limits, atOnce, err := limiter.Split(a)
		if err != nil || atOnce == (limiter.Concurrency{}) {
			return a // New returns the error
		}
		s.bounded[rule.Name] = true
		if atOnce.Waiting > 0 {
			s.unqueued[rule.Name] = true
		}
		return limiter.Join(limits, limiter.AtOnce(atOnce.Max))
	}
	rule.Limit = slots(rule.Limit)
	rule.Tiers = maps.Clone(rule.Tiers)
	for tier, a := range rule.Tiers {
		rule.Tiers[tier] = slots(a)
	}
	rule.Overrides = maps.Clone(rule.Overrides)
	for key, o := range rule.Overrides {
		o.Limit = slots(o.Limit)
		rule.Overrides[key] = o
	}
}

// eachRule copies c's rules, as they may be the caller's, and calls do with each.
func eachRule(c *middleware.Config, do func(*middleware.Rule)) {
	all := func(rules []middleware.Rule) []middleware.Rule {
		rules = slices.Clone(rules)
		for i := range rules {
			do(&rules[i])
		}
		return rules
	}
	c.Rules, c.Default = all(c.Rules), all(c.Default)
	c.ByTier, c.ByRoute = maps.Clone(c.ByTier), maps.Clone(c.ByRoute)
	for _, rules := range []map[string][]middleware.Rule{c.ByTier, c.ByRoute} {
		for at := range rules {
			rules[at] = all(rules[at])
		}
	}
}

// Do decides on a request at a time in microseconds since 1970, no earlier than the last. The Decision is
// valid until the next call.
func (s *Simulation) Do(e *accesslog.Entry, at int64) *Decision {
	d := s.advance(at, at)
	if len(s.response) > 0 {
		clear(s.response)
	}
	r := s.requests.Of(e)
	d.Client = s.requests.Client()
	if entered := s.limits.Enter(s.response, r, nil); entered != nil && entered.Request != r { // something awaits its end
		status := e.Status // the next entry overwrites it
		s.endAfter(e.Took, func() { entered.End(status) })
	}
	d.Soft = s.response["X-Ratelimit-Warning"] != nil
	return d
}

// advance ends the requests that end before a time, and returns the Decision for a request at the time at.
func (s *Simulation) advance(before, at int64) *Decision {
	for next := len(s.ends) - 1; next >= 0 && s.ends[next].at < before; next = len(s.ends) - 1 {
		ended := s.ends[next]
		s.ends = slices.Delete(s.ends, next, next+1)
		s.clock.now = max(s.clock.now, ended.at)
		ended.finish()
	}
	s.clock.now = max(s.clock.now, at)
	s.decision = Decision{Outcome: middleware.OutcomeAllowed, Rules: s.decision.Rules[:0]}
	return &s.decision
}

// endAfter ends the request that was just decided: it begins after its delay, and takes its duration.
func (s *Simulation) endAfter(took time.Duration, finish func()) {
	if ends := s.clock.now + s.decision.Delay.Microseconds() + took.Microseconds(); ends > s.clock.now {
		i, _ := slices.BinarySearchFunc(s.ends, ends, func(e ending, at int64) int { return cmp.Compare(at, e.at) })
		s.ends = slices.Insert(s.ends, i, ending{ends, finish})
		return
	}
	finish()
}

// Observe implements middleware.Observer.
func (s *Simulation) Observe(o *middleware.Observation) {
	d := &s.decision
	d.Outcome = o.Outcome
	d.Rules = append(d.Rules, o.Rules...)
	for i := range d.Rules {
		r := &d.Rules[i]
		if r.Rule.Mode == middleware.Shadow {
			continue
		}
		d.Delay = max(d.Delay, r.Delay)
		for j := range r.Limits {
			d.Delay = max(d.Delay, r.Limits[j].Delay)
		}
	}
}

// refused implements middleware.Refusal.Answer.
func (s *Simulation) refused(_ http.ResponseWriter, _ *http.Request, result middleware.Result) {
	s.decision.Refusal = result
}

// discarding is a ResponseWriter that keeps only the header.
type discarding http.Header

func (d discarding) Header() http.Header         { return http.Header(d) }
func (d discarding) Write(b []byte) (int, error) { return len(b), nil }
func (d discarding) WriteHeader(int)             {}

// An ending is the end of a request, for rules to which it matters.
type ending struct {
	at     int64
	finish func()
}
