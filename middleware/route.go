package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/weirgo/weir/internal/route"
)

// A Match says which requests something is for: [Route], [IsPreflight], or a [MatchFunc] of your own.
// It is used by many goroutines at once, and does not change the request.
type Match interface {
	Matches(r *http.Request) bool
}

// A MatchFunc is a [Match] that a function decides.
type MatchFunc func(r *http.Request) bool

// Matches calls f.
func (f MatchFunc) Matches(r *http.Request) bool { return f(r) }

// Route matches requests by the pattern they were routed by, never by the raw path,
// which a client can spell in many ways:
//
//	middleware.Route("GET /search")       // GET and HEAD, as in http.ServeMux
//	middleware.Route("/users/{id}")       // any method
//	middleware.Route("/assets/*")         // "/assets" and every pattern below it
//	middleware.Route("/*")                // every request, also those that no route is for
//
// A parameter may be spelled as in any router ({id}, {id:[0-9]+}, :id): it matches a
// parameter of any name in the same place. Several patterns match when one of them does.
//
// A pattern may begin with a host, which is compared with r.Host, whether or not the
// router knows hosts: in lower case, without port and trailing dot.
//
//	middleware.Route("GET example.org/search")
//	middleware.Route("*.example.org/*")   // a.example.org and b.a.example.org, not example.org
//	middleware.Route("[2001:db8::1]/*")   // however the address is spelled
//
// A host is what the client writes into its request. Let no limit hang on it alone, and do
// not use one in [Config.Allow], where anybody could write it.
//
// Route needs r.Pattern, which is empty until a request is routed; see
// [RateLimit.Handler].
//
// A pattern that cannot match anything is an error of [New], beside all others of its Config, and of
// the constructors of packages shed and pace. They cannot see it in a [MatchFunc] that calls this
// Match: there each request panics, so have such a function in a test.
func Route(patterns ...string) Match {
	m := &routeMatcher{texts: slices.Clone(patterns), rules: make([]route.Pattern, len(patterns))}
	if len(patterns) == 0 {
		m.wrong = errors.New("Route needs a pattern")
	}
	for i, pattern := range patterns {
		var err error
		if m.rules[i], err = route.ParseRule(pattern); err != nil {
			m.wrong = errors.Join(m.wrong, fmt.Errorf("Route: %w", err))
		}
		if m.first == "" && !m.rules[i].IsForAll() {
			m.first = pattern
		}
		m.hosts = m.hosts || m.rules[i].Host != ""
	}
	return m
}

// A routeMatcher is what Route returns.
type routeMatcher struct {
	texts    []string
	rules    []route.Pattern
	first    string // of the texts, one that needs a route; empty: none does
	hosts    bool   // one has a host
	wrong    error  // what is wrong with the patterns, if anything
	unrouted unroutedDetector
}

// WrongPattern returns what is wrong with the patterns; see [route.Wrong].
func (m *routeMatcher) WrongPattern() error { return m.wrong }

// Patterns returns the patterns; see [route.PatternsOf].
func (m *routeMatcher) Patterns() []string { return m.texts }

func (m *routeMatcher) Matches(r *http.Request) bool {
	if m.wrong != nil { // and nobody has asked: neither answer would be safe
		panic("middleware: " + m.wrong.Error())
	}
	switch r.Pattern {
	case "": // which "/*" is for too
		m.unrouted.blank(nil, m.first)
	case elsewhere:
	default:
		m.unrouted.seen()
	}
	routed, host := route.Parse(r.Pattern), ""
	if m.hosts {
		host = route.Host(r.Host)
	}
	for i := range m.rules {
		if m.rules[i].Matches(r.Method, host, &routed) {
			return true
		}
	}
	return false
}
