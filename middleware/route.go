package middleware

import (
	"net/http"
	"strconv"
	"strings"
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
	routes := make([]route, len(patterns))
	for i, pattern := range patterns {
		routes[i] = parseRoute(pattern)
		if reason := routes[i].invalid(); reason != "" {
			panic("middleware: Route pattern " + strconv.Quote(pattern) + " " + reason + ": want something like \"GET /search\" or \"/assets/*\"")
		}
		routes[i].path, routes[i].below = strings.CutSuffix(routes[i].path, "/*")
	}
	var unrouted unroutedDetector
	return func(r *http.Request) bool {
		if r.Pattern == "" {
			unrouted.blank(patterns[0])
			return false
		}
		unrouted.seen()
		pattern := parseRoute(r.Pattern)
		for i := range routes {
			if routes[i].matches(r.Method, &pattern) {
				return true
			}
		}
		return false
	}
}

// A route is a pattern in parts. The host or the method may be empty.
type route struct {
	method, host, path string
	below              bool // path stands for everything below it too
}

func parseRoute(pattern string) route {
	var r route
	rest := strings.TrimSpace(pattern)
	if method, after, ok := strings.Cut(rest, " "); ok && !strings.Contains(method, "/") {
		r.method, rest = method, strings.TrimLeft(after, " ")
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		r.host = rest
		return r
	}
	r.host, r.path = rest[:slash], rest[slash:]
	return r
}

// invalid says why no request can match, or nothing.
func (want *route) invalid() string {
	switch {
	case want.path == "":
		return "has no path"
	case strings.ContainsAny(want.path, " ?#"):
		return "has a space, ? or # in its path"
	case want.method != strings.ToUpper(want.method) || strings.ContainsAny(want.method, ", "):
		return "does not begin with a method in capitals"
	}
	return ""
}

func (want *route) matches(method string, pattern *route) bool {
	if want.method != "" && want.method != method && !(want.method == http.MethodGet && method == http.MethodHead) {
		return false
	}
	if want.host != "" && want.host != pattern.host {
		return false
	}
	return matchPath(want.path, pattern.path, want.below)
}

// matchPath compares paths segment by segment.
func matchPath(want, path string, below bool) bool {
	for {
		wantSegment, wantRest, wantMore := strings.Cut(want, "/")
		segment, rest, more := strings.Cut(path, "/")
		if !sameSegment(wantSegment, segment) {
			return false
		}
		if !wantMore {
			return below || !more
		}
		if !more {
			return false
		}
		want, path = wantRest, rest
	}
}

func sameSegment(a, b string) bool {
	if a == b {
		return true
	}
	kind := parameter(a)
	return kind != literal && kind == parameter(b)
}

const (
	literal = iota
	one     // a parameter for one segment
	many    // a parameter for all that follow
)

func parameter(segment string) int {
	switch {
	case segment == "":
		return literal
	case segment[0] == '*', strings.HasSuffix(segment, "...}"):
		return many
	case segment[0] == ':', segment[0] == '{' && segment != "{$}":
		return one
	}
	return literal
}
