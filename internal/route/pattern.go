// Package route parses and compares the patterns of routers, and finds the most specific one of many.
package route

import (
	"cmp"
	"net/http"
	"strings"
)

// A Pattern is a route in parts. The host or the method may be empty.
type Pattern struct {
	Method string
	Host   string // of a rule as Host spells it; *.example.com stands for one or more labels in front
	Path   string
	Below  bool // it matches everything below Path too
}

// Parse splits a router's route into its parts. It cannot fail.
func Parse(pattern string) Pattern {
	var p Pattern
	p.Method, p.Host = cutMethod(strings.TrimSpace(pattern))
	if slash := strings.IndexByte(p.Host, '/'); slash >= 0 {
		p.Host, p.Path = p.Host[:slash], p.Host[slash:]
	}
	return p
}

// cutMethod cuts off the method, which ends with a space or a tab, as in http.ServeMux.
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

// Matches reports whether the pattern of a rule matches requests with that method, to that host as Host
// spells it, that were routed by route. It ignores the host of the route: most routers know no hosts.
func (p *Pattern) Matches(method, host string, route *Pattern) bool {
	return p.Takes(method) && p.IsFor(host) && matchPath(p.Path, route.Path, p.Below)
}

// Has reports whether the pattern of a rule matches requests that were routed by route, to some host.
func (p *Pattern) Has(route *Pattern) bool {
	return p.Takes(cmp.Or(route.Method, p.Method)) && matchPath(p.Path, route.Path, p.Below)
}

// Covers reports whether p matches all requests that another rule's pattern matches.
func (p *Pattern) Covers(other *Pattern) bool {
	return p.Takes(other.Method) && p.coversHost(other) && (p.Below || !other.Below) && matchPath(p.Path, other.Path, p.Below)
}

// OfMux returns a path with its parameters spelled as in http.ServeMux.
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

// IsForAll reports whether p matches every path, also paths without a route.
func (p *Pattern) IsForAll() bool { return p.Below && p.Path == "" }

// Fit returns the route of a request for path in a router that has the route p, or routes below p: p with
// its parameters, and the part of path below it. It returns false if p does not match.
func (p *Pattern) Fit(path string) (string, bool) {
	var route strings.Builder
	want := p.Path
	for {
		wantSegment, wantRest, wantMore := cut(want)
		segment, rest, more := strings.Cut(path, "/")
		isSame := wantSegment == segment || wantSegment == "{$}" && segment == ""
		kind := parameter(wantSegment)
		if kind == literal && !isSame || kind == one && segment == "" {
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

// rank returns a number for each segment. Of the patterns that fit a path, the one with the greatest numbers is
// the most specific.
func (p *Pattern) rank() (rank []int) {
	for rest, more := p.Path, true; more; {
		var segment string
		segment, rest, more = cut(rest)
		rank = append(rank, many-parameter(segment))
	}
	if p.Below {
		rank = append(rank, 0)
	}
	return rank
}

// Takes reports whether p matches requests with that method, in upper or lower case. GET matches HEAD too, as in
// http.ServeMux.
func (p *Pattern) Takes(method string) bool {
	return p.Method == "" || isSameMethod(p.Method, method) || p.Method == http.MethodGet && isSameMethod(http.MethodHead, method)
}

// isSameMethod compares methods as handlers do that ignore case, the letters ı and ſ included.
func isSameMethod(want, method string) bool {
	return want == method || strings.EqualFold(want, strings.ToUpper(method))
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
	many    // a parameter for all segments that follow
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

// cut returns the first segment of a route, and the rest behind its slash, if there is one. The expression
// of a parameter, as in {id:[^/]+}, may contain slashes.
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
		return segment, rest, more // the brace is a letter
	}
	return path, "", false
}

// closing returns the index that closes the brace at the beginning of s, or -1.
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
