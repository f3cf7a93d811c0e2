package route

import (
	"cmp"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// Routes chooses routes for the requests of a gateway, which has no router: the patterns of its
// rules are the routes. It is for many goroutines. Spellings of a path that servers may take for
// another one have the route of that one: with a slash at the end or without, with parameters
// (/a;b=c), with empty and dot segments, and with backslashes.
type Routes struct {
	tree Tree[string] // by pattern, the route as Of returns it
	fold bool
}

// Unrouted is the route of a request that no pattern is for.
const Unrouted = "/*"

// NewRoutes returns the routes of these patterns. Of two for the same requests the first counts. If
// fold is set, upper and lower case are the same.
func NewRoutes(patterns []Pattern, fold bool) *Routes {
	r := &Routes{fold: fold}
	for _, p := range patterns {
		text := p.Path
		if p.Below {
			text += "/*"
		}
		p.Path = r.folded(p.Path)
		r.tree.Add(p, text)
	}
	return r
}

func (s *Routes) folded(path string) string {
	if s.fold {
		return strings.ToLower(path)
	}
	return path
}

// Set has r.Pattern be the route of r. A client's text is no part of it. If the path has the
// values of parameters in a spelling that r.URL does not show, r.PathValue has them.
func (s *Routes) Set(r *http.Request) {
	plain := normal(r.URL.Path)
	r.Pattern = s.Of(r.Method, r.Host, plain)
	if plain == r.URL.Path && !s.fold {
		return
	}
	want, rest, more := r.Pattern, plain, true
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
			r.SetPathValue(name, url.PathEscape(s.folded(value)))
		}
	}
}

// Of is the route of a request for a path that normal has returned: the path of the pattern that
// says most about it, or Unrouted.
func (s *Routes) Of(method, host, path string) string {
	path = s.folded(path)
	anywhere := s.tree.any.choose(method, path, true)
	if len(s.tree.hosts) > 0 {
		at, here := s.tree.chooseHost(method, Host(host), path)
		switch {
		case here == nil:
		case here.pattern.Below && anywhere != nil && !strings.ContainsAny(here.pattern.Path, "{:*") && at.find(method, anywhere.pattern.Path) == here:
			// As a route for all that is below is for this path too, a list of routes without hosts may
			// name it: allow.routes.
		default:
			return here.value
		}
	}
	if anywhere == nil {
		return Unrouted
	}
	return anywhere.value
}

// chooseHost is choose among the patterns for a host, and those with a wildcard, the longest first.
func (t *Tree[T]) chooseHost(method, host, path string) (*node[T], *leaf[T]) {
	for at, name := 0, host; ; name = host[at:] {
		if n := t.hosts[name]; n != nil && (at == 0 || strings.Count(name, ".") <= t.dots) {
			if found := n.choose(method, path, true); found != nil {
				return n, found
			}
		}
		next := strings.IndexByte(host[min(at+1, len(host)):], '.')
		if next < 0 {
			return nil, nil
		}
		at += 1 + next
	}
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

// normal is a path as most servers read it. It allocates only for what is not spelled so.
func normal(given string) string { return clean(bare(given)) }

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

// clean is a path without backslashes, empty and dot segments.
func clean(given string) string {
	text := given
	if strings.IndexByte(text, '\\') >= 0 {
		text = strings.ReplaceAll(text, `\`, "/")
	}
	if !strings.HasPrefix(text, "/") {
		return text
	}
	short := path.Clean(text)
	if strings.HasSuffix(text, "/") && short != "/" {
		short += "/"
		if short == text {
			return text
		}
	}
	return short
}

// IsAmbiguous reports whether servers may read a path as another one than it seems: it has empty
// or dot segments, backslashes or escaped slashes, control characters, or bytes that are no UTF-8.
func IsAmbiguous(u *url.URL) bool {
	given := u.Path
	if given == "" || given[0] != '/' {
		return given != "*" // of OPTIONS
	}
	escaped := strings.ToLower(u.RawPath)
	if strings.Contains(escaped, "%2f") || strings.Contains(given, `\`) || strings.ToValidUTF8(given, "") != given {
		return true
	}
	for _, c := range []byte(given) {
		if c < ' ' || c == 0x7f {
			return true
		}
	}
	named := bare(given)
	return clean(named) != named
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
