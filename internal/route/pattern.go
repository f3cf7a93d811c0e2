// Package route knows the patterns that routers route by: what one says, and which of
// many says most about a request.
package route

import (
	"fmt"
	"net/http"
	"strings"
)

// A Pattern is a route in parts. The host or the method may be empty.
type Pattern struct {
	Method, Host, Path string
	Below              bool // Path stands for everything below it too
}

// Parse takes what a router calls a route apart. It can't fail.
func Parse(pattern string) Pattern {
	var p Pattern
	rest := strings.TrimSpace(pattern)
	if method, after, ok := strings.Cut(rest, " "); ok && !strings.Contains(method, "/") {
		p.Method, rest = method, strings.TrimLeft(after, " ")
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		p.Host = rest
		return p
	}
	p.Host, p.Path = rest[:slash], rest[slash:]
	return p
}

// ParseRule is Parse for the pattern of a rule, whose path may end in /* for all that is
// below. The error says why no request can match.
func ParseRule(pattern string) (Pattern, error) {
	p, reason := Parse(pattern), ""
	switch {
	case p.Path == "":
		reason = "has no path"
	case strings.ContainsAny(p.Path, " ?#"):
		reason = "has a space, ? or # in its path"
	case p.Method != strings.ToUpper(p.Method) || strings.ContainsAny(p.Method, ", "):
		reason = "does not begin with a method in capitals"
	default:
		p.Path, p.Below = strings.CutSuffix(p.Path, "/*")
		if !p.goesOnBehindItsEnd() {
			return p, nil
		}
		reason = "goes on behind a parameter for all that follows"
	}
	return p, fmt.Errorf("pattern %q %s: want something like \"GET /search\" or \"/assets/*\"", pattern, reason)
}

// goesOnBehindItsEnd reports whether something comes after a parameter that no router lets
// anything come after.
func (p *Pattern) goesOnBehindItsEnd() bool {
	for rest, more := p.Path, true; more; {
		var segment string
		segment, rest, more = cut(rest)
		if parameter(segment) == many && (more || p.Below) {
			return true
		}
	}
	return false
}

// Matches reports whether the pattern of a rule is for requests with that method that
// were routed by route.
func (p *Pattern) Matches(method string, route *Pattern) bool {
	return p.takes(method) && p.matchesPlace(route)
}

// Covers reports whether p is for all requests that another rule's pattern is for.
func (p *Pattern) Covers(other *Pattern) bool {
	return p.takes(other.Method) && (p.Below || !other.Below) && p.matchesPlace(other)
}

// Fit is the route of a request for path in a router that has the route p, or the routes
// below it: p with its parameters, and what of path is below. False if p does not match.
func (p *Pattern) Fit(path string) (string, bool) {
	var route strings.Builder
	want := p.Path
	for {
		wantSegment, wantRest, wantMore := cut(want)
		segment, rest, more := strings.Cut(path, "/")
		kind := parameter(wantSegment)
		if kind == literal && wantSegment != segment && (wantSegment != "{$}" || segment != "") || kind == one && segment == "" {
			return "", false
		}
		route.WriteString(wantSegment)
		switch {
		case kind == many, !wantMore && !more:
			return route.String(), true
		case !wantMore && p.Below:
			return route.String() + "/" + rest, true
		case !wantMore, !more:
			return "", false
		}
		route.WriteByte('/')
		want, path = wantRest, rest
	}
}

// takes reports whether p is for requests with that method. GET is for HEAD too, as in
// http.ServeMux.
func (p *Pattern) takes(method string) bool {
	return p.Method == "" || p.Method == method || p.Method == http.MethodGet && method == http.MethodHead
}

func (p *Pattern) matchesPlace(route *Pattern) bool {
	return (p.Host == "" || p.Host == route.Host) && matchPath(p.Path, route.Path, p.Below)
}

// matchPath compares paths segment by segment.
func matchPath(want, path string, below bool) bool {
	for {
		wantSegment, wantRest, wantMore := cut(want)
		segment, rest, more := cut(path)
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
	case segment[0] == ':', segment[0] == '{' && segment != "{$}" && closing(segment) == len(segment)-1:
		return one
	}
	return literal
}

// cut is the first segment of a route, and what follows its slash, if there is one. A
// parameter's expression, as in {id:[^/]+}, may have slashes of its own.
func cut(path string) (segment, rest string, more bool) {
	segment, rest, more = strings.Cut(path, "/")
	if !more || strings.IndexByte(segment, '{') < 0 {
		return segment, rest, more
	}
	for at, depth := 0, 0; at < len(path); at++ {
		switch path[at] {
		case '{':
			depth++
		case '}':
			depth--
		case '/':
			if depth <= 0 {
				return path[:at], path[at+1:], true
			}
		}
	}
	if closing(path) < 0 {
		return segment, rest, more // a brace that is nothing but a letter
	}
	return path, "", false
}

// closing is where the brace that s begins with is closed, or -1.
func closing(s string) int {
	depth := 0
	for at := range len(s) {
		switch s[at] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return at
			}
		}
	}
	return -1
}
