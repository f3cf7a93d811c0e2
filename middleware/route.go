package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/weirgo/weir/internal/missing"
	"github.com/weirgo/weir/internal/route"
)

// A Match picks requests: [Route], [IsPreflight], or a [MatchFunc] of your own. Matches is called by
// many goroutines at once, and must not change the request.
type Match interface {
	Matches(r *http.Request) bool
}

// A MatchFunc makes an ordinary function a [Match].
type MatchFunc func(r *http.Request) bool

// Matches calls f.
func (f MatchFunc) Matches(r *http.Request) bool { return f(r) }

// Route matches requests by the pattern that routed them, never by the raw path, which a client can
// spell in many ways:
//
//	middleware.Route("GET /search")       // GET and HEAD, as in http.ServeMux
//	middleware.Route("/users/{id}")       // any method
//	middleware.Route("/assets/*")         // "/assets" and every pattern below it
//	middleware.Route("/*")                // every request, also those without a route
//
// A parameter may be written as in any router ({id}, {id:[0-9]+}, :id). It matches a parameter of any
// name at the same position. With several patterns, Route matches if one of them does.
//
// Route compares methods without case: a handler for all methods may take "post" for POST.
//
// A pattern may begin with a host. Route compares it with r.Host in lower case, without port and
// trailing dot, whether or not the router knows hosts. If a rule has such a pattern, a request whose host
// programs read differently ("example.org:80:80") is answered 400.
//
//	middleware.Route("GET example.org/search")
//	middleware.Route("*.example.org/*")   // a.example.org and b.a.example.org, not example.org
//	middleware.Route("[2001:db8::1]/*")   // any spelling of the address
//
// The client writes the host into its request. Do not let a limit depend on the host alone. Use no host
// in [Config.Allow]: any client could write it and be exempt.
//
// Route needs r.Pattern, which is empty until a request is routed; see [RateLimit.Handler].
//
// A pattern that cannot match anything is an error of [New], and of the constructor of package shed. If
// a [MatchFunc] calls this Match, the constructors cannot see the error, and each request panics. Test
// such a function.
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
		if m.routed == "" && !m.rules[i].IsForAll() {
			m.routed = pattern
		}
		m.hosts = m.hosts || m.rules[i].Host != ""
	}
	return m
}

// A routeMatcher is what Route returns.
type routeMatcher struct {
	texts  []string
	rules  []route.Pattern
	hosts  bool   // a pattern has a host
	wrong  error  // what is wrong with the patterns, or nil
	routed string // a pattern that needs a route; empty: none does
	routes missing.Detector
}

// WrongPattern returns what is wrong with the patterns; see [route.Wrong].
func (m *routeMatcher) WrongPattern() error { return m.wrong }

// Patterns returns the patterns; see [route.PatternsOf].
func (m *routeMatcher) Patterns() []string { return m.texts }

func (m *routeMatcher) Matches(r *http.Request) bool {
	if m.wrong != nil { // New did not see it, and neither answer would be safe
		panic("middleware: " + m.wrong.Error())
	}
	switch r.Pattern {
	case "": // "/*" matches it too
		warnUnrouted(&m.routes, m.routed, r, nil)
	case elsewhere:
	default:
		m.routes.Found()
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
