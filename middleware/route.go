package middleware

import (
	"net/http"

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
func Route(patterns ...string) func(*http.Request) bool {
	if len(patterns) == 0 {
		panic("middleware: Route needs a pattern")
	}
	rules := make([]route.Pattern, len(patterns))
	for i, pattern := range patterns {
		var err error
		if rules[i], err = route.ParseRule(pattern); err != nil {
			panic("middleware: Route " + err.Error())
		}
	}
	var unrouted unroutedDetector
	return func(r *http.Request) bool {
		if r.Pattern == "" {
			unrouted.blank(nil, patterns[0])
			return false
		}
		unrouted.seen()
		routed := route.Parse(r.Pattern)
		for i := range rules {
			if rules[i].Matches(r.Method, &routed) {
				return true
			}
		}
		return false
	}
}
