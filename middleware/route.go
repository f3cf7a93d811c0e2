package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/weirgo/weir/internal/route"
)

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
// the constructors of packages shed and pace. In a function of your own around this one nobody can
// see it, and each request panics: have such a function in a test.
//
//go:noinline
func Route(patterns ...string) func(*http.Request) bool {
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
	return func(r *http.Request) bool { return m.matches(r) }
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

func (m *routeMatcher) matches(r *http.Request) bool {
	if r.URL == whichRoutes {
		*r.Context().Value(matcherKey{}).(**routeMatcher) = m
		return false
	}
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
