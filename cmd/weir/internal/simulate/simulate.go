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
	store    *store
	requests *Requests
	turns    *turns
	only     *turn // where no request waits
	asked    int64 // how many requests were
	later    func(*accesslog.Entry, int64, *Decision)

	queues   bool            // requests may wait for a place
	unplaced map[string]bool // see Unplaced: by name, true if the rule has no limit either
}

// A Decision is what became of a request.
type Decision struct {
	Number  int64  // of the request: 1 is the first that Do was asked about
	At      int64  // when it was decided, in microseconds since 1970
	Client  string // good until the next request, as all that is of the log
	number  int    // of the client
	Outcome middleware.Outcome
	Refusal middleware.Result // what was answered, unless the request passed
	Delay   time.Duration     // how long it had to wait for its turn
	Waited  time.Duration     // how long it waited for a place, whether it got one or not
	Soft    bool              // a warning was sent that the limit is near

	// Rules are those that applied, and what they said. They are good until the next request.
	Rules []middleware.RuleResult
}

// Passed reports whether the request reached its handler.
func (d *Decision) Passed() bool {
	return d.Outcome == middleware.OutcomeAllowed || d.Outcome == middleware.OutcomeExempt
}

// New returns a service with these rules. Their Bans must be from [NewBans], of their own.
func New(c middleware.Config, o Options) (*Simulation, error) {
	list, ok := c.Bans.(*Bans)
	if !ok {
		return nil, errors.New("simulate: Config.Bans is not from NewBans")
	}
	s := &Simulation{clock: &list.clock, requests: NewRequests(o), later: o.Later, turns: &turns{waiting: map[<-chan struct{}]*turn{}}}
	s.store = newStore(s.clock)
	s.store.turns = s.turns
	c.Store, c.Observer, c.OnRefused = s.store, s, s.refused
	c.Logger = slog.New(slog.DiscardHandler)
	c.Overload = nil // no service does the work
	s.unplaced = map[string]bool{}
	eachRule(&c, func(rule *middleware.Rule) {
		if slices.Contains(o.LeftOut, rule.Name) {
			leaveOut(rule)
		}
		if !o.HasTook {
			s.withoutPlace(rule)
		}
	})
	s.only = &turn{requests: s.requests, response: discarding{}}

	// Most rules need neither fields nor a Result, and New says where one does.
	fast := c
	fast.Headers, fast.NoResult = middleware.HeadersNone, true
	var err error
	if s.limits, err = middleware.New(fast); err != nil {
		s.limits, err = middleware.New(c)
	}
	if err != nil {
		return nil, err
	}
	for _, info := range s.limits.Rules() {
		s.queues = s.queues || info.Concurrency.Waiting > 0 && !info.Shadow
	}
	if s.queues && s.later == nil {
		return nil, errors.New("simulate: requests may wait for a place, and Options.Later is nil")
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

// withoutPlace takes that out of a rule.
func (s *Simulation) withoutPlace(rule *middleware.Rule) {
	found := false
	rates := func(a limiter.Allowance) limiter.Allowance {
		limits, atOnce, err := limiter.Split(a)
		if err != nil || atOnce == (limiter.Concurrency{}) {
			return a // New says what is wrong
		}
		found = true
		if limits == nil {
			return limiter.PerSecond(10_000_000) // which allows all
		}
		return limiter.Join(limits, limiter.Concurrency{})
	}
	_, alone := rule.Limit.(limiter.Concurrency)
	rule.Limit = rates(rule.Limit)
	rule.Tiers = maps.Clone(rule.Tiers)
	for tier, a := range rule.Tiers {
		rule.Tiers[tier] = rates(a)
	}
	if known, ok := rule.LimitFor.(middleware.LimitMap); ok {
		known = maps.Clone(known)
		for key, a := range known {
			known[key] = rates(a)
		}
		rule.LimitFor = known
	}
	if !found {
		return
	}
	if s.unplaced[rule.Name] = alone; alone {
		rule.Tiers, rule.LimitFor = nil, nil
		leaveOut(rule)
	}
}

func leaveOut(rule *middleware.Rule) { rule.Match = func(*http.Request) bool { return false } }

// eachRule calls do with each of the rules, which c has copies of then: they may be the caller's.
func eachRule(c *middleware.Config, do func(*middleware.Rule)) {
	all := func(rule *middleware.Rule) {
		rule.And = slices.Clone(rule.And)
		do(rule)
		for i := range rule.And {
			do(&rule.And[i])
		}
	}
	c.Rules = slices.Clone(c.Rules)
	for i := range c.Rules {
		all(&c.Rules[i])
	}
	c.ByTier, c.ByRoute = maps.Clone(c.ByTier), maps.Clone(c.ByRoute)
	for _, rules := range []map[string]middleware.Rule{c.ByTier, c.ByRoute} {
		for at, rule := range rules {
			all(&rule)
			rules[at] = rule
		}
	}
	if c.Default != nil {
		rule := *c.Default
		all(&rule)
		c.Default = &rule
	}
}

// Do decides about a request at a time, in microseconds since 1970, that is no earlier than
// the last. What it returns is good until the next. It is nil of a request that waits for a
// place: Options.Later is told of that.
func (s *Simulation) Do(e *accesslog.Entry, at int64) *Decision {
	s.end(at)
	s.clock.now = max(s.clock.now, at)
	s.asked++
	if s.queues {
		return s.doInTurn(e)
	}
	s.only.of, s.turns.now = e, s.only
	s.decide(s.only)
	return &s.only.decision
}

// decide decides about the entry of a turn.
func (s *Simulation) decide(t *turn) {
	t.decision = Decision{Number: s.asked, Outcome: middleware.OutcomeAllowed, Rules: t.decision.Rules[:0]}
	if len(t.response) > 0 {
		clear(t.response)
	}
	d, e, r := &t.decision, t.of, t.requests.Of(t.of)
	d.At = s.clock.now
	d.Client, d.number = t.requests.Client()
	finish, _, _ := s.limits.Begin(t.response, r, nil)
	// It begins when its turn has come, and takes as long as it took.
	switch ends := s.clock.now + d.Delay.Microseconds() + e.Took.Microseconds(); {
	case finish == nil:
	case ends == s.clock.now:
		finish(e.Status)
	default:
		heap.Push(&s.turns.ends, ending{at: ends, status: e.Status, finish: finish})
	}
	d.Soft = t.response["X-Ratelimit-Warning"] != nil
}

// Observe implements middleware.Observer.
func (s *Simulation) Observe(o *middleware.Observation) {
	d := &s.turns.now.decision
	d.Outcome, d.At, d.Waited = o.Outcome, s.clock.now, o.Waited
	d.Rules = append(d.Rules, o.Rules...)
	for i := range d.Rules {
		r := &d.Rules[i]
		if r.Rule.Shadow {
			continue
		}
		d.Delay = max(d.Delay, r.Delay)
		for j := range r.Limits {
			d.Delay = max(d.Delay, r.Limits[j].Delay)
		}
	}
}

// refused implements middleware.Config.OnRefused.
func (s *Simulation) refused(_ http.ResponseWriter, _ *http.Request, result middleware.Result) {
	s.turns.now.decision.Refusal = result
}

// discarding is the header of a response that goes nowhere.
type discarding http.Header

func (d discarding) Header() http.Header         { return http.Header(d) }
func (d discarding) Write(b []byte) (int, error) { return len(b), nil }
func (d discarding) WriteHeader(int)             {}
