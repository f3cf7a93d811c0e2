package route

import (
	"cmp"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Routes chooses routes for the requests of a gateway, which has no router: the patterns of its
// rules are the routes. It is for many goroutines. Spellings of a path that servers may take for
// another one have the route of that one: with a slash at the end or without, with parameters
// (/a;b=c), with empty segments, behind a host (//host/a), and with backslashes or escaped slashes.
type Routes struct {
	tree    Tree[gatewayRoute]
	limited Tree[gatewayRoute] // without the patterns of which no request is limited
	fold    bool
	hosts   bool // a pattern has a host
}

// A gatewayRoute is a route as r.Pattern has it.
type gatewayRoute struct {
	pattern string
	exempt  []Pattern // no rule limits the requests that match one of these
}

func (g *gatewayRoute) isExempt(method, host string) bool {
	for i := range g.exempt {
		if p := &g.exempt[i]; p.Takes(method) && p.IsFor(host) {
			return true
		}
	}
	return false
}

// Unrouted is the route of a request that no pattern is for.
const Unrouted = "/*"

// NewRoutes returns the routes of these patterns, and of the patterns of requests that no rule limits. Of
// two for the same requests the first counts. If fold is set, upper and lower case are the same.
func NewRoutes(patterns, exempt []Pattern, fold bool) *Routes {
	s := &Routes{fold: fold}
	for _, p := range slices.Concat(patterns, exempt) {
		to, at := gatewayRoute{pattern: p.Path}, p
		if p.Below {
			to.pattern += "/*"
		}
		s.hosts = s.hosts || p.Host != ""
		covered := false
		for _, e := range exempt {
			if matchPath(e.Path, to.pattern, e.Below) {
				to.exempt = append(to.exempt, e)
			}
			covered = covered || e.Covers(&p)
		}
		if fold {
			at.Path = Fold(p.Path)
		}
		s.tree.Add(at, to)
		if !covered {
			s.limited.Add(at, to)
		}
	}
	return s
}

// Set has r.Pattern be the route of r, or returns why that cannot be told. A client's text is no part of
// the route. If the path has the values of parameters in a spelling that r.URL does not show, r.PathValue
// has them.
//
// Servers may read several paths in one. If some of these have a route and others none, r has that route. If two
// have different routes, r has none. A route that exempt has is the route of r only if all paths have such a
// route, in exactly the spelling of its pattern.
func (s *Routes) Set(r *http.Request) (reason string) {
	if reason = judge(r); reason != "" {
		return reason
	}
	host := ""
	if s.hosts {
		host = Host(r.Host)
	}
	var space [1]string
	paths := s.readings(space[:0], r.URL)
	tree, exempt := &s.limited, true
	for _, path := range paths {
		at := s.tree.route(r.Method, host, path)
		exempt = exempt && at != nil && at.value.isExempt(r.Method, host) && at.pattern.endsLike(path)
	}
	if exempt {
		tree, paths = &s.tree, paths[:1]
	}
	path, found := paths[len(paths)-1], (*leaf[gatewayRoute])(nil)
	for _, read := range paths {
		switch next := tree.route(r.Method, host, read); {
		case next == nil:
		case found != nil && found.value.pattern != next.value.pattern:
			return "The path can be read in more than one way."
		default:
			path, found = read, next
		}
	}
	r.Pattern = Unrouted
	if found != nil && (exempt || !found.value.isExempt(r.Method, host)) {
		r.Pattern = found.value.pattern
	}
	if s.fold || path != r.URL.Path || !isSimple(r.URL) && !IsPlain(r.URL) {
		setValues(r, path)
	}
	return ""
}

// setValues has r.PathValue be the values of r.Pattern's parameters in path.
func setValues(r *http.Request, path string) {
	want, rest, more := r.Pattern, path, true
	for more {
		var segment, value string
		segment, want, more = cut(want)
		before := rest
		value, rest, _ = strings.Cut(rest, "/")
		name, _, _ := strings.Cut(strings.Trim(segment, ":{}"), ":")
		switch parameter(segment) {
		case many:
			name, value = cmp.Or(strings.TrimSuffix(strings.TrimPrefix(name, "*"), "..."), "*"), before
			fallthrough
		case one:
			r.SetPathValue(name, url.PathEscape(strings.ReplaceAll(value, escapedSlash, "/")))
		}
	}
}

// endsLike reports whether a path ends in a slash if that is what p is for.
func (p *Pattern) endsLike(path string) bool {
	last := p.Path[strings.LastIndexByte(p.Path, '/')+1:]
	return p.Below || parameter(last) == many || strings.HasSuffix(path, "/") == (last == "" || last == "{$}")
}

// isSimple reports whether all servers that do not ignore case read the path of u alike, without dot segments. Most
// paths are simple, and this is faster than trying all spellings.
func isSimple(u *url.URL) bool {
	last := byte(0)
	for i := range len(u.Path) {
		c := u.Path[i]
		isLetter := 'a' <= c|' ' && c|' ' <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
		if !isLetter && (c != '/' && c != '.' || last == '/') {
			return false
		}
		last = c
	}
	return u.RawPath == "" && strings.HasPrefix(u.Path, "/")
}

// escapedSlash is an escaped slash in a path where it does not separate segments. judge refuses paths that have the
// character themselves.
const escapedSlash = "\x00"

// readings appends the paths that servers may read in that of u, the last of which is shortest: escaped slashes
// and backslashes are letters or slashes, parameters and empty segments are there or not, // begins a path or a
// host, and case in Unicode counts or not.
func (s *Routes) readings(paths []string, u *url.URL) []string {
	given := u.Path
	if !s.fold && isSimple(u) {
		return append(paths, given)
	}
	if u.RawPath != "" {
		given = Unescape(escapedSlashes.Replace(u.RawPath))
	}
	changes := spellings[:]
	if s.fold {
		given = strings.Map(lowerASCII, given)
	} else {
		changes = changes[1:]
	}
	paths = append(paths, given)
	for _, change := range changes {
		for _, path := range paths {
			if other := change(path); other != path {
				paths = append(paths, other)
			}
		}
	}
	return paths
}

var escapedSlashes = strings.NewReplacer("%2F", "%00", "%2f", "%00")

// spellings are what some servers do to a path, and others do not.
var spellings = [...]func(string) string{
	Fold,
	func(path string) string { return strings.ReplaceAll(path, `\`, "/") },
	withoutHost,
	func(path string) string { return strings.ReplaceAll(path, escapedSlash, "/") },
	bare,
	clean,
}

func lowerASCII(c rune) rune {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// Fold returns text without the differences that a program may ignore which ignores case: as is İ, the letter ı is i,
// ſ is s, the Kelvin sign is k, and ß is ss.
func Fold(text string) string {
	if !strings.ContainsFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }) {
		return strings.ToLower(text)
	}
	return ligatures.Replace(strings.Map(func(c rune) rune { return unicode.ToLower(unicode.ToUpper(c)) }, text))
}

// ligatures are letters whose upper case is several letters of ASCII.
var ligatures = strings.NewReplacer("ß", "ss", "ﬀ", "ff", "ﬁ", "fi", "ﬂ", "fl", "ﬃ", "ffi", "ﬄ", "ffl", "ﬅ", "st", "ﬆ", "st")

// route is the leaf for a request: that of the pattern that says most about it, or nil.
func (t *Tree[T]) route(method, host, path string) *leaf[T] {
	anywhere := t.any.choose(method, path, true)
	if len(t.hosts) == 0 {
		return anywhere
	}
	at, here := t.atHost(host, func(n *node[T]) *leaf[T] { return n.choose(method, path, true) })
	if here == nil {
		return anywhere
	}
	isPlain := here.pattern.Below && !strings.ContainsAny(here.pattern.Path, "{:*")
	if isPlain && anywhere != nil && at.find(method, anywhere.pattern.Path) == here {
		// As a route for all that is below is for this path too, a list of routes without hosts may
		// name it: allow.routes.
		return anywhere
	}
	return here
}

// choose is the leaf that says most about a path, behind the segments that lead to n: letters
// before a parameter, and that before all that follows. A segment of the path is never taken for
// a parameter itself.
func (n *node[T]) choose(method, path string, more bool) *leaf[T] {
	segment, rest, further := strings.Cut(path, "/")
	if !more || segment == "" && !further {
		return n.ended(method, more)
	}
	if next := n.literals[segment]; next != nil && segment != "{$}" {
		if found := next.choose(method, rest, further); found != nil {
			return found
		}
	}
	if n.one != nil && segment != "" {
		if found := n.one.choose(method, rest, further); found != nil {
			return found
		}
	}
	if n.many != nil {
		if found := best(n.many.here, method); found != nil {
			return found
		}
	}
	return best(n.below, method)
}

// ended is the leaf for a path that ends at n, with or without a slash. If there is none for its
// spelling, it is that of the other.
func (n *node[T]) ended(method string, slash bool) *leaf[T] {
	places := []*node[T]{n, n.literals[""], n.literals["{$}"], n.many}
	if slash {
		places = []*node[T]{n.literals["{$}"], n.literals[""], n, n.many}
	}
	for _, at := range places {
		if at == nil {
			continue
		}
		if found := best(at.here, method); found != nil {
			return found
		}
	}
	return best(n.below, method)
}

// withoutHost is the path that a program finds in a path such as //host/path which it takes for a URL, as
// JavaScript's new URL(path, base) does.
func withoutHost(given string) string {
	if !strings.HasPrefix(given, "//") {
		return given
	}
	_, below, _ := strings.Cut(strings.TrimLeft(given, "/"), "/")
	return "/" + below
}

// bare is a path without the parameters of its segments.
func bare(given string) string {
	if strings.IndexByte(given, ';') < 0 {
		return given
	}
	segments := strings.Split(given, "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	return strings.Join(segments, "/")
}

// clean is a path without empty and dot segments.
func clean(given string) string {
	if !strings.HasPrefix(given, "/") {
		return given
	}
	short := path.Clean(given)
	switch {
	case !strings.HasSuffix(given, "/") || short == "/":
		return short
	case len(given) == len(short)+1: // only the slash is gone
		return given
	}
	return short + "/"
}

// IsWhole reports whether a gateway can route by p, whose parameters have to be whole segments.
func (p *Pattern) IsWhole() bool {
	for rest, more := p.Path, true; more; {
		var segment string
		segment, rest, more = cut(rest)
		if parameter(segment) == literal && segment != "{$}" && strings.ContainsAny(segment, "{}*") {
			return false
		}
	}
	return true
}
