package route

import "strings"

// A Tree finds the most specific of many patterns for a request: a pattern with its host wins over one
// without, as in http.ServeMux, and a host over a wildcard. Then the longest path wins, then a pattern with a
// method. The zero Tree is empty.
type Tree[T any] struct {
	any   node[T]
	hosts map[string]*node[T] // by host, or by the part behind the * of a wildcard
	dots  int                 // the most dots in a wildcard
}

// A node is reached by a path, segment by segment.
type node[T any] struct {
	literals  map[string]*node[T]
	one, many *node[T] // parameters for one segment, and for all segments that follow

	here  []leaf[T] // for the path that ends here
	below []leaf[T] // for this path and all below
}

// A leaf is a pattern with its value.
type leaf[T any] struct {
	pattern Pattern
	value   T
}

// Add adds a rule's pattern with a value. If the tree has a pattern for the same requests, Add returns the
// value of that pattern and false.
func (t *Tree[T]) Add(p Pattern, value T) (T, bool) {
	at := t.host(p.Host)
	for rest, more := p.Path, true; more; {
		var segment string
		segment, rest, more = cut(rest)
		at = at.grow(segment)
	}
	leaves := &at.here
	if p.Below {
		leaves = &at.below
	}
	for _, other := range *leaves {
		if other.pattern.Method == p.Method {
			return other.value, false
		}
	}
	*leaves = append(*leaves, leaf[T]{p, value})
	return value, true
}

// host returns the root of the paths of a pattern's host.
func (t *Tree[T]) host(host string) *node[T] {
	if host == "" {
		return &t.any
	}
	host, wild := strings.CutPrefix(host, "*")
	if wild {
		t.dots = max(t.dots, strings.Count(host, "."))
	}
	if t.hosts == nil {
		t.hosts = map[string]*node[T]{}
	}
	if t.hosts[host] == nil {
		t.hosts[host] = &node[T]{}
	}
	return t.hosts[host]
}

func (n *node[T]) grow(segment string) *node[T] {
	if next := n.next(segment); next != nil {
		return next
	}
	next := &node[T]{}
	switch parameter(segment) {
	case one:
		n.one = next
	case many:
		n.many = next
	default:
		if n.literals == nil {
			n.literals = map[string]*node[T]{}
		}
		n.literals[segment] = next
	}
	return next
}

func (n *node[T]) next(segment string) *node[T] {
	switch parameter(segment) {
	case one:
		return n.one
	case many:
		return n.many
	default:
		return n.literals[segment]
	}
}

// Find returns the value for a request that was routed by pattern. The host is that of http.Request. Find does
// not allocate, except for an unusual spelling of the host.
func (t *Tree[T]) Find(method, host, pattern string) (value T, ok bool) {
	route := Parse(pattern)
	var found *leaf[T]
	if len(t.hosts) > 0 {
		_, found = t.atHost(Host(host), func(n *node[T]) *leaf[T] { return n.find(method, route.Path) })
	}
	if found == nil {
		found = t.any.find(method, route.Path)
	}
	if found == nil {
		return value, false
	}
	return found.value, true
}

// atHost returns the first leaf that find returns: of the patterns for a host, then of those with a wildcard, the
// longest first. It tries no more labels of the host than wildcards have.
func (t *Tree[T]) atHost(host string, find func(*node[T]) *leaf[T]) (*node[T], *leaf[T]) {
	if n := t.hosts[host]; n != nil {
		if found := find(n); found != nil {
			return n, found
		}
	}
	at := len(host)
	for range t.dots {
		dot := strings.LastIndexByte(host[:at], '.')
		if dot < 0 {
			break
		}
		at = dot
	}
	for at < len(host) {
		if n := t.hosts[host[at:]]; n != nil {
			if found := find(n); found != nil {
				return n, found
			}
		}
		dot := strings.IndexByte(host[at+1:], '.')
		if dot < 0 {
			break
		}
		at += 1 + dot
	}
	return nil, nil
}

// find returns the most specific leaf for a path, or nil.
func (n *node[T]) find(method, path string) (found *leaf[T]) {
	for more := true; more; {
		var segment string
		segment, path, more = cut(path)
		if n = n.next(segment); n == nil {
			return found
		}
		if leaf := best(n.below, method); leaf != nil {
			found = leaf
		}
	}
	if leaf := best(n.here, method); leaf != nil {
		found = leaf
	}
	return found
}

// best returns the most specific leaf for a method, or nil.
func best[T any](leaves []leaf[T], method string) (found *leaf[T]) {
	most := 0
	for i := range leaves {
		p := &leaves[i].pattern
		if !p.Takes(method) {
			continue
		}
		says := 1
		if isSameMethod(p.Method, method) {
			says = 3
		} else if p.Method != "" {
			says = 2 // a GET pattern for HEAD
		}
		if says > most {
			found, most = &leaves[i], says
		}
	}
	return found
}
