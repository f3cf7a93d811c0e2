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

	"github.com/weirgo/weir/internal/accesslog"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// A Simulation is a service whose clock is that of a log. It is for one goroutine.
type Simulation struct {
	limits   *middleware.RateLimit
	clock    *Clock
	store    *store
	bans     *Bans
	requests *Requests
	response discarding
	decision Decision
	ends     endings

	unplaced map[string]bool // see Unplaced: by name, true if the rule has no limit either
}

// A Decision is what became of a request.
type Decision struct {
	Client  string // good until the next request, as all that is of the log
	number  int    // of the client
	Outcome middleware.Outcome
	Refusal middleware.Result // what was answered, unless the request passed
	Delay   time.Duration     // how long it had to wait for its turn
	Soft    bool              // a warning was sent that the limit is near

	// Rules are those that applied, and what they said. They are good until the next request.
	Rules []middleware.RuleResult
}

// Passed reports whether the request reached its handler.
func (d *Decision) Passed() bool {
	return d.Outcome >= middleware.OutcomeOverdrawn || d.Outcome == middleware.OutcomeExempt
}

// New returns a service with these rules. Their Bans must be from [NewBans], of their own.
func New(c middleware.Config, o Options) (*Simulation, error) {
	list, ok := c.Bans.(*Bans)
	if !ok {
		return nil, errors.New("simulate: Config.Bans is not from NewBans")
	}
	s := &Simulation{clock: &list.clock, bans: list, requests: NewRequests(o), response: discarding{}}
	s.store = newStore(s.clock)
	c.Store, c.Observer, c.OnRefused = s.store, s, s.refused
	c.Logger = slog.New(slog.DiscardHandler)
	c.Overload = nil // no service does the work
	s.withoutPlaces(&c)

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
	return s, nil
}

// Rules are those in force.
func (s *Simulation) Rules() []middleware.RuleInfo {
	return slices.DeleteFunc(s.limits.Rules(), func(r middleware.RuleInfo) bool { return s.unplaced[r.Name] })
}

// Unplaced are the names of the rules that bound how many requests are in progress at once, which
// is left out: when a request leaves its place, and which of those that wait gets it, is for the
// service that does the work. Their limits stay.
func (s *Simulation) Unplaced() []string { return slices.Sorted(maps.Keys(s.unplaced)) }

// withoutPlaces takes that out of rules, which may be the caller's.
func (s *Simulation) withoutPlaces(c *middleware.Config) {
	s.unplaced = map[string]bool{}
	without := func(rule middleware.Rule) middleware.Rule {
		if rule.Concurrency == (limiter.Concurrency{}) && len(rule.TierConcurrency) == 0 {
			return rule
		}
		rule.Concurrency, rule.TierConcurrency = limiter.Concurrency{}, nil
		hasLimit := rule.Limit != (limiter.Limit{}) || len(rule.Limits) > 0
		if s.unplaced[rule.Name] = !hasLimit; !hasLimit {
			// No request meets it, nor another rule in its place.
			rule.Limit, rule.Tiers, rule.TierLimits = limiter.PerSecond(1), nil, nil
			rule.Match = func(*http.Request) bool { return false }
		}
		return rule
	}
	all := func(rule middleware.Rule) middleware.Rule {
		rule = without(rule)
		rule.And = slices.Clone(rule.And)
		for i := range rule.And {
			rule.And[i] = without(rule.And[i])
		}
		return rule
	}
	c.Rules = slices.Clone(c.Rules)
	for i := range c.Rules {
		c.Rules[i] = all(c.Rules[i])
	}
	c.ByTier, c.ByRoute = maps.Clone(c.ByTier), maps.Clone(c.ByRoute)
	for _, rules := range []map[string]middleware.Rule{c.ByTier, c.ByRoute} {
		for at, rule := range rules {
			rules[at] = all(rule)
		}
	}
	if c.Default != nil {
		rule := all(*c.Default)
		c.Default = &rule
	}
}

// Do decides about a request at a time, in microseconds since 1970, that is no earlier than
// the last. What it returns is good until the next.
func (s *Simulation) Do(e *accesslog.Entry, at int64) *Decision {
	s.end(at)
	s.clock.now = max(s.clock.now, at)
	s.decision = Decision{Outcome: middleware.OutcomeAllowed, Rules: s.decision.Rules[:0]}
	s.bans.begun = s.bans.begun[:0]
	if len(s.response) > 0 {
		clear(s.response)
	}
	d, r := &s.decision, s.requests.Of(e)
	d.Client, d.number = s.requests.Client()
	s.store.caller = s.requests.caller
	finish, _, _ := s.limits.Begin(s.response, r, nil)
	switch {
	case finish == nil:
	case e.Took == 0:
		finish(e.Status)
	default:
		e.Keep()
		heap.Push(&s.ends, ending{s.clock.now + e.Took.Microseconds(), e.Status, finish, s.store.caller})
	}
	d.Soft = s.response["X-Ratelimit-Warning"] != nil
	if d.Passed() {
		d.Refusal = middleware.Result{} // also of one that would have waited
	}
	for _, b := range s.bans.begun {
		left := time.Duration(b.until-s.clock.now) * time.Microsecond
		for i := range d.Rules {
			r := &d.Rules[i]
			if r.Rule.Name != b.rule || r.Allowed || r.RetryAfter >= left {
				continue
			}
			if r.RetryAfter = left; left > d.Refusal.RetryAfter {
				d.Refusal.Decision, d.Refusal.Rule, d.Refusal.Tier = r.Decision, r.Rule.Name, r.Rule.Tier
			}
		}
	}
	return d
}

// end ends the requests that ended before a time.
func (s *Simulation) end(before int64) {
	for len(s.ends) > 0 && s.ends[0].at < before {
		e := heap.Pop(&s.ends).(ending)
		s.clock.now = max(s.clock.now, e.at)
		s.store.caller = e.caller
		e.finish(e.status)
	}
}

// An ending is the end of a request, which some rule goes by.
type ending struct {
	at     int64
	status int
	finish func(status int)
	caller *caller
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

// Observe implements middleware.Observer.
func (s *Simulation) Observe(o *middleware.Observation) {
	d := &s.decision
	d.Outcome = o.Outcome
	d.Rules = append(d.Rules, o.Rules...)
	for i := range d.Rules {
		if r := &d.Rules[i]; !r.Rule.Shadow {
			d.Delay = max(d.Delay, r.Delay)
		}
	}
	if !o.Ban.Until.IsZero() {
		d.Refusal.RetryAfter = time.Duration(o.Ban.Until.UnixMicro()-s.clock.now) * time.Microsecond
	}
}

// refused implements middleware.Config.OnRefused.
func (s *Simulation) refused(_ http.ResponseWriter, _ *http.Request, result middleware.Result) {
	if left := s.decision.Refusal.RetryAfter; left != 0 {
		result.RetryAfter = left // of a ban, by our clock
	}
	s.decision.Refusal = result
}

// discarding is the header of a response that goes nowhere.
type discarding http.Header

func (d discarding) Header() http.Header         { return http.Header(d) }
func (d discarding) Write(b []byte) (int, error) { return len(b), nil }
func (d discarding) WriteHeader(int)             {}
