// Package simulate decides about the requests in a log by the rules that a service has, at
// the times of the log.
//
// Package middleware decides, as in the service: a simulation has a store, a list of bans and
// requests for it, and knows no rule by itself.
package simulate

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/accesslog"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// Options say what a service knows about requests beside its rules.
type Options struct {
	// Routes are those of its router, and ServeMux says that this is an http.ServeMux.
	Routes   []string
	ServeMux bool

	// Headers are the names of the entries' Headers: those of HTTP, cookie:NAME, or key:NAME,
	// which [Key] reads.
	Headers []string

	// Tier is the tier of a request. Nil: what its entry says.
	Tier func(*accesslog.Entry) string
}

// A Simulation is a service whose clock is that of a log. It is for one goroutine.
type Simulation struct {
	limits *middleware.RateLimit
	clock  *Clock
	bans   *Bans
	shadow bool
	router *route.Router
	routes map[string]string // that were chosen, by method and path
	o      Options

	blank    map[string]*http.Request // of a client that has gone, by tier
	request  http.Request             // and what it has, all of which the next has again
	url      url.URL
	header   http.Header
	agent    [1]string
	response discarding
	decision Decision
}

// A Decision is what became of a request.
type Decision struct {
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
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	s := &Simulation{
		header: http.Header{}, response: discarding{},
		clock: &list.clock, bans: list, shadow: c.Shadow, o: o,
		router: route.NewRouter(o.Routes), routes: map[string]string{},
		blank: map[string]*http.Request{"": (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody}).WithContext(gone)},
	}
	c.Store, c.Observer, c.OnRefused = newStore(s.clock), s, s.refused
	c.Logger = slog.New(slog.DiscardHandler)

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
func (s *Simulation) Rules() []middleware.RuleInfo { return s.limits.Rules() }

// Do decides about a request at a time, in microseconds since 1970, that is no earlier than
// the last. What it returns is good until the next.
func (s *Simulation) Do(e *accesslog.Entry, at int64) *Decision {
	s.clock.now = max(s.clock.now, at)
	s.decision = Decision{Outcome: middleware.OutcomeAllowed, Rules: s.decision.Rules[:0]}
	s.bans.begun = s.bans.begun[:0]
	clear(s.response)
	s.limits.Check(s.response, s.requestOf(e))
	d := &s.decision
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

// requestOf is the request that a server had. Its client has gone, so that it waits for no
// turn: the decision tells how long it would have to.
func (s *Simulation) requestOf(e *accesslog.Entry) *http.Request {
	r := &s.request
	e.URL(&s.url)
	clear(s.header)
	tier := e.Tier
	if s.o.Tier != nil {
		tier = s.o.Tier(e)
	}
	blank := s.blank[tier]
	if blank == nil {
		tier = strings.Clone(tier)
		blank = s.blank[""]
		blank = blank.WithContext(middleware.WithTier(blank.Context(), tier))
		s.blank[tier] = blank
	}
	*r = *blank
	r.Method, r.URL, r.RequestURI, r.Host, r.RemoteAddr = e.Method, &s.url, e.Target, e.Host, remoteAddr(e.Client)
	r.Header, r.ContentLength = s.header, -1
	r.Pattern = s.route(r)
	if e.UserAgent != "" {
		s.agent[0] = e.UserAgent
		r.Header["User-Agent"] = s.agent[:]
	}
	if e.ForwardedFor != "" {
		r.Header["X-Forwarded-For"] = []string{e.ForwardedFor}
	}
	for i, value := range e.Headers {
		if value != "" {
			s.setHeader(r, s.o.Headers[i], value)
		}
	}
	if e.User != "" {
		*r = *r.WithContext(keyfunc.WithUser(r.Context(), e.User))
	}
	return r
}

func (s *Simulation) setHeader(r *http.Request, name, value string) {
	cookie, isCookie := strings.CutPrefix(name, "cookie:")
	switch {
	case isCookie:
		r.AddCookie(&http.Cookie{Name: cookie, Value: value, Quoted: strings.ContainsAny(value, " ,")})
	case name == "Content-Length":
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			r.ContentLength = n
		}
	default:
		r.Header[name] = []string{value}
	}
}

// Key is a key of the application's own, as a log has it under key:NAME.
func Key(name string) keyfunc.Func {
	header := "key:" + name
	return func(r *http.Request) (string, error) {
		if values := r.Header[header]; len(values) > 0 {
			return name + ":" + values[0], nil
		}
		return "", keyfunc.ErrNoKey
	}
}

// remoteAddr is the other end of the connection, as net/http has it.
func remoteAddr(client string) string {
	switch {
	case client == accesslog.UnixSocket || client == "":
		return "@"
	case strings.IndexByte(client, ':') >= 0:
		return "[" + client + "]:1024"
	}
	return client + ":1024"
}

// mostRoutes bounds how many chosen routes are remembered.
const mostRoutes = 1 << 14

// route is what the service's router chooses.
func (s *Simulation) route(r *http.Request) string {
	var room [256]byte
	id := append(append(append(room[:0], r.Method...), ' '), r.URL.Path...)
	if s.o.ServeMux {
		id = append(append(id, ' '), r.Host...)
	}
	if chosen, ok := s.routes[string(id)]; ok {
		return chosen
	}
	var chosen string
	if s.o.ServeMux {
		chosen = s.router.OfMux(r)
	} else {
		chosen = s.router.Route(r.Method, r.URL.Path)
	}
	if len(s.routes) == mostRoutes {
		clear(s.routes)
	}
	s.routes[string(id)] = strings.Clone(chosen)
	return chosen
}

// discarding is the header of a response that goes nowhere.
type discarding http.Header

func (d discarding) Header() http.Header         { return http.Header(d) }
func (d discarding) Write(b []byte) (int, error) { return len(b), nil }
func (d discarding) WriteHeader(int)             {}
