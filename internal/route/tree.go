package route

import "strings"

// A Tree finds, among the patterns of many rules, the one that says most about a request:
// one for its host before one for any, as in http.ServeMux, and a host before a wildcard;
// of those the one with the longest path, then one with a method. The zero Tree is empty.
type Tree[T any] struct {
	any   node[T]
	hosts map[string]*node[T] // by host, and by what follows the * of a wildcard
	dots  int                 // most in a wildcard
}

// A node is a place that paths lead to, segment by segment.
type node[T any] struct {
	literals  map[string]*node[T]
	one, many *node[T] // parameters for one segment, and for all that follow

	here  []leaf[T] // for the path that ends here
	below []leaf[T] // for this path and those below it
}

// A leaf is what was added for some method, or for all.
type leaf[T any] struct {
	pattern Pattern
	value   T
}

// Add puts a rule's pattern into the tree, or returns the value of the one that is there
// for the same requests, and false.
func (t *Tree[T]) Add(p Pattern, value T) (T, bool) {
	at := t.host(p.Host)
	for rest, more := p.Path, true; more; {
		var segment string
		segment, rest, more = cut(rest)
		at = at.grow(segment)
	}
	if other := at.same(&p); other != nil {
		return other.value, false
	}
	place := &at.here
	if p.Below {
		place = &at.below
	}
	*place = append(*place, leaf[T]{p, value})
	return value, true
}

// same is the leaf at n for the same requests, or nil.
func (n *node[T]) same(p *Pattern) *leaf[T] {
	leaves := n.here
	if p.Below {
		leaves = n.below
	}
	for i := range leaves {
		if leaves[i].pattern.Method == p.Method {
			return &leaves[i]
		}
	}
	return nil
}

// host is where the paths of a pattern's host begin.
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

// Find is the value for a request to host, as it is in http.Request, that was routed by
// pattern. It does not allocate, but for a host that is spelled as few clients do.
func (t *Tree[T]) Find(method, host, pattern string) (value T, ok bool) {
	route := Parse(pattern)
	var found *leaf[T]
	if len(t.hosts) > 0 {
		found = t.findHost(method, Host(host), route.Path)
	}
	if found == nil {
		found = t.any.find(method, route.Path)
	}
	if found == nil {
		return value, false
	}
	return found.value, true
}

// findHost looks at the patterns for a host, then at those with a wildcard, the longest
// first. A host of many labels costs no more than one of as many as wildcards have.
func (t *Tree[T]) findHost(method, host, path string) *leaf[T] {
	if found := t.hosts[host].find(method, path); found != nil {
		return found
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
		if found := t.hosts[host[at:]].find(method, path); found != nil {
			return found
		}
		dot := strings.IndexByte(host[at+1:], '.')
		if dot < 0 {
			break
		}
		at += 1 + dot
	}
	return nil
}

// find is the leaf that says most about a path, or nil.
func (n *node[T]) find(method, path string) (found *leaf[T]) {
	if n == nil {
		return nil
	}
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

// best is the leaf that says most about a method, or nil.
func best[T any](leaves []leaf[T], method string) (found *leaf[T]) {
	most := 0
	for i := range leaves {
		p := &leaves[i].pattern
		if !p.Takes(method) {
			continue
		}
		says := 1
		if p.Method == method {
			says = 3
		} else if p.Method != "" {
			says = 2 // GET, of a HEAD
		}
		if says > most {
			found, most = &leaves[i], says
		}
	}
	return found
}
