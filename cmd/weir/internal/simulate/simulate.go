// Package simulate decides about the requests in a log by the rules that a service has, at
// the times of the log.
//
// Package middleware decides, as in the service: a simulation has a store, a list of bans and
// requests for it, and knows no rule by itself.
package simulate

import (
	"container/heap"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// A Simulation is a service whose clock is that of a log. It is for one goroutine.
type Simulation struct {
	limits   *middleware.RateLimit
	clock    *Clock
	requests *Requests
	response discarding
	decision Decision
	ends     endings // of requests that some rule goes by

	unplaced map[string]bool // see Unplaced: by name, true if the rule has no limit either
	unqueued map[string]bool // see Unqueued
}

// A Decision is what became of a request.
type Decision struct {
	Client  string // good until the next request, as all that is of the log
	Outcome middleware.Outcome
	Refusal middleware.Result // what was answered, unless the request passed
	Delay   time.Duration     // how long it had to wait for its turn
	Soft    bool              // a warning was sent that the limit is near

	// Rules are those that applied, and what they said. They are good until the next request.
	Rules []middleware.RuleResult
}

// Passed reports whether the request reached its handler.
func (d *Decision) Passed() bool {
	return d.Outcome == middleware.OutcomeAllowed || d.Outcome == middleware.OutcomeExempt
}

// New returns a service with these rules. Their Bans.List must be from [NewBans], of their own.
func New(c middleware.Config, o Options) (*Simulation, error) {
	list, ok := c.Bans.List.(*Bans)
	if !ok {
		return nil, errors.New("simulate: Config.Bans.List is not from NewBans")
	}
	s := &Simulation{
		clock: &list.clock, requests: NewRequests(o), response: discarding{},
		unplaced: map[string]bool{}, unqueued: map[string]bool{},
	}
	c.Store, c.Observer, c.Refusal.Answer = newStore(s.clock), s, s.refused
	c.Logger = slog.New(slog.DiscardHandler)
	c.Overload = nil // no service does the work
	eachRule(&c, func(rule *middleware.Rule) {
		if slices.Contains(o.LeftOut, rule.Name) {
			leaveOut(rule)
		}
		s.slots(rule, o.HasTook)
	})

	// Most rules need neither fields nor a Result, and New says where one does.
	fast := c
	fast.Headers.Send, fast.NoResult = middleware.HeadersNone, true
	var err error
	if s.limits, err = middleware.New(fast); err != nil {
		s.limits, err = middleware.New(c)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Rules are those in force.
func (s *Simulation) Rules() []middleware.RuleInfo {
	return slices.DeleteFunc(s.limits.Rules(), func(r middleware.RuleInfo) bool { return s.unplaced[r.Name] })
}

// Unplaced are the names of the rules that bound how many requests are in progress at once, where
// it is not known how long requests took: that is left out, and their limits stay.
func (s *Simulation) Unplaced() []string { return slices.Sorted(maps.Keys(s.unplaced)) }

// Unqueued are the names of the rules whose requests would wait in a queue for a slot. In a
// simulation they are refused.
func (s *Simulation) Unqueued() []string { return slices.Sorted(maps.Keys(s.unqueued)) }

// slots leaves out of a rule's concurrency what is not simulated: its queue, or all of it where it
// is not known how long requests took.
func (s *Simulation) slots(rule *middleware.Rule, hasTook bool) {
	unplaced := false
	slots := func(a limiter.Allowance) limiter.Allowance {
		limits, atOnce, err := limiter.Split(a)
		switch {
		case err != nil || atOnce == (limiter.Concurrency{}):
			return a // New says what is wrong
		case hasTook:
			if atOnce.Waiting > 0 {
				s.unqueued[rule.Name] = true
			}
			return limiter.Join(limits, limiter.AtOnce(atOnce.Max))
		}
		unplaced = true
		if limits == nil {
			return limiter.PerSecond(10_000_000) // which allows all
		}
		return limiter.Join(limits, limiter.Concurrency{})
	}
	_, alone := rule.Limit.(limiter.Concurrency)
	rule.Limit = slots(rule.Limit)
	rule.Tiers = maps.Clone(rule.Tiers)
	for tier, a := range rule.Tiers {
		rule.Tiers[tier] = slots(a)
	}
	if known, ok := rule.LimitFor.(middleware.LimitMap); ok {
		known = maps.Clone(known)
		for key, a := range known {
			known[key] = slots(a)
		}
		rule.LimitFor = known
	}
	if !unplaced {
		return
	}
	if s.unplaced[rule.Name] = alone; alone {
		rule.Tiers, rule.LimitFor = nil, nil
		leaveOut(rule)
	}
}

// leaveOut has no request meet a rule, nor another rule in its place.
func leaveOut(rule *middleware.Rule) {
	rule.Match = middleware.MatchFunc(func(*http.Request) bool { return false })
}

// eachRule calls do with each of the rules, which c has copies of then: they may be the caller's.
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

// Do decides about a request at a time, in microseconds since 1970, that is no earlier than
// the last. What it returns is good until the next.
func (s *Simulation) Do(e *accesslog.Entry, at int64) *Decision {
	for len(s.ends) > 0 && s.ends[0].at < at {
		ended := heap.Pop(&s.ends).(ending)
		s.clock.now = max(s.clock.now, ended.at)
		ended.finish(ended.status)
	}
	s.clock.now = max(s.clock.now, at)
	d := &s.decision
	*d = Decision{Outcome: middleware.OutcomeAllowed, Rules: d.Rules[:0]}
	if len(s.response) > 0 {
		clear(s.response)
	}
	r := s.requests.Of(e)
	d.Client = s.requests.Client()
	finish, _, _ := s.limits.Begin(s.response, r, nil)
	// It begins when its turn has come, and takes as long as it took.
	switch ends := s.clock.now + d.Delay.Microseconds() + e.Took.Microseconds(); {
	case finish == nil:
	case ends == s.clock.now:
		finish(e.Status)
	default:
		heap.Push(&s.ends, ending{ends, e.Status, finish})
	}
	d.Soft = s.response["X-Ratelimit-Warning"] != nil
	return d
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

// discarding is the header of a response that goes nowhere.
type discarding http.Header

func (d discarding) Header() http.Header         { return http.Header(d) }
func (d discarding) Write(b []byte) (int, error) { return len(b), nil }
func (d discarding) WriteHeader(int)             {}

// An ending is the end of a request that some rule goes by.
type ending struct {
	at     int64
	status int
	finish func(status int)
}

// endings is a heap, by time.
type endings []ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].at < e[j].at }
func (e endings) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = ending{}
	*e = (*e)[:len(*e)-1]
	return last
}
