// Package route knows the patterns that routers route by: what one says, and which of
// many says most about a request.
package route

import (
	"net/http"
	"strings"
)

// A Pattern is a route in parts. The host or the method may be empty.
type Pattern struct {
	Method string
	Host   string // a rule's is as Host spells it; *.example.com is one or more labels in front of it
	Path   string
	Below  bool // Path stands for everything below it too
}

// Parse takes what a router calls a route apart. It can't fail.
func Parse(pattern string) Pattern {
	var p Pattern
	p.Method, p.Host = cutMethod(strings.TrimSpace(pattern))
	if slash := strings.IndexByte(p.Host, '/'); slash >= 0 {
		p.Host, p.Path = p.Host[:slash], p.Host[slash:]
	}
	return p
}

// cutMethod cuts a method off, which ends with a space or a tab, as in http.ServeMux.
func cutMethod(pattern string) (method, rest string) {
	for i := range len(pattern) {
		switch pattern[i] {
		case '/':
			return "", pattern
		case ' ', '\t':
			return pattern[:i], strings.TrimLeft(pattern[i:], " \t")
		}
	}
	return "", pattern
}

// Matches reports whether the pattern of a rule is for requests with that method, to that
// host, as Host spells it, that were routed by route. The host of the route itself says
// nothing: most routers know none.
func (p *Pattern) Matches(method, host string, route *Pattern) bool {
	return p.Takes(method) && p.IsFor(host) && matchPath(p.Path, route.Path, p.Below)
}

// Covers reports whether p is for all requests that another rule's pattern is for.
func (p *Pattern) Covers(other *Pattern) bool {
	return p.Takes(other.Method) && p.coversHost(other) && (p.Below || !other.Below) && matchPath(p.Path, other.Path, p.Below)
}

// OfMux is a path with its parameters spelled as in http.ServeMux.
func OfMux(path string) string {
	var b strings.Builder
	for rest, more := path, true; more; {
		var segment string
		segment, rest, more = cut(rest)
		switch name := strings.Trim(segment, ":*{}."); parameter(segment) {
		case one:
			name, _, _ = strings.Cut(name, ":")
			segment = "{" + name + "}"
		case many:
			if name == "" {
				name = "rest"
			}
			segment = "{" + name + "...}"
		}
		b.WriteString(segment)
		if more {
			b.WriteByte('/')
		}
	}
	return b.String()
}

// IsForAll reports whether p is for every path, also those that no router knows.
func (p *Pattern) IsForAll() bool { return p.Below && p.Path == "" }

// Fit returns the route of a request for path in a router that has the route p, or the routes
// below it: p with its parameters, and what of path is below. It is false if p does not match.
func (p *Pattern) Fit(path string) (string, bool) {
	route, _, ok := p.fit(path)
	return route, ok
}

// fit is Fit. Of several patterns that a path fits, the one whose says are the greater is the more
// exact: it has a number for each segment.
func (p *Pattern) fit(path string) (_ string, says []byte, ok bool) {
	var route strings.Builder
	want := p.Path
	for {
		wantSegment, wantRest, wantMore := cut(want)
		segment, rest, more := strings.Cut(path, "/")
		kind, exact := parameter(wantSegment), byte(3)
		switch {
		case kind == many:
			exact = 1
		case kind == one && wantSegment != segment:
			exact = 2
		}
		if kind == literal && wantSegment != segment && (wantSegment != "{$}" || segment != "") || kind == one && segment == "" {
			return "", nil, false
		}
		route.WriteString(wantSegment)
		says = append(says, exact)
		switch {
		case kind == many, !wantMore && !more:
			if p.Below {
				says = append(says, 1)
			}
			return route.String(), says, true
		case !wantMore && p.Below:
			return route.String() + "/" + rest, append(says, 1), true
		case !wantMore, !more:
			return "", nil, false
		}
		route.WriteByte('/')
		want, path = wantRest, rest
	}
}

// Takes reports whether p is for requests with that method. GET is for HEAD too, as in
// http.ServeMux.
func (p *Pattern) Takes(method string) bool {
	return p.Method == "" || p.Method == method || p.Method == http.MethodGet && method == http.MethodHead
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
