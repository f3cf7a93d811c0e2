package middleware

import (
	"net/http"
	"slices"

	"github.com/weirgo/weir/internal/route"
)

// Route matches requests by the pattern they were routed by, never by the raw path,
// whose spellings a client chooses:
//
//	middleware.Route("GET /search")       // GET and HEAD, as in http.ServeMux
//	middleware.Route("/users/{id}")       // any method
//	middleware.Route("/assets/*")         // "/assets" and every pattern below it
//
// A parameter may be spelled as in any router ({id}, {id:[0-9]+}, :id): it matches a
// parameter of any name in the same place. A pattern with a host, as ServeMux has
// them, matches with or without it. Several patterns match when one of them does.
//
// Route needs r.Pattern, which is empty until a request is routed; see
// [RateLimit.Handler]. It panics on a pattern that cannot match anything.
//
//go:noinline
func Route(patterns ...string) func(*http.Request) bool {
	if len(patterns) == 0 {
		panic("middleware: Route needs a pattern")
	}
	m := &routeMatcher{texts: slices.Clone(patterns), rules: make([]route.Pattern, len(patterns))}
	for i, pattern := range patterns {
		var err error
		if m.rules[i], err = route.ParseRule(pattern); err != nil {
			panic("middleware: Route " + err.Error())
		}
	}
	return func(r *http.Request) bool { return m.matches(r) }
}

// A routeMatcher is what Route returns.
type routeMatcher struct {
	texts    []string
	rules    []route.Pattern
	unrouted unroutedDetector
}

func (m *routeMatcher) matches(r *http.Request) bool {
	if r.URL == whichRoutes {
		*r.Context().Value(matcherKey{}).(**routeMatcher) = m
		return false
	}
	if r.Pattern == "" {
		m.unrouted.blank(nil, m.texts[0])
		return false
	}
	m.unrouted.seen()
	routed := route.Parse(r.Pattern)
	for i := range m.rules {
		if m.rules[i].Matches(r.Method, &routed) {
			return true
		}
	}
	return false
}
