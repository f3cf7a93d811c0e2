package route

// A Tree finds, among the patterns of many rules, the one that says most about a request:
// it has the longest path, then a host, then a method. The zero Tree is empty.
type Tree[T any] struct{ root node[T] }

// A node is a place that paths lead to, segment by segment.
type node[T any] struct {
	literals  map[string]*node[T]
	one, many *node[T] // parameters for one segment, and for all that follow

	here  leaves[T] // for the path that ends here
	below leaves[T] // for this path and those below it
}

// leaves are what was added for a place: for some host, or for all under "".
type leaves[T any] map[string][]leaf[T]

// A leaf is what was added for some method, or for all.
type leaf[T any] struct {
	pattern Pattern
	value   T
}

// Add puts a rule's pattern into the tree, or returns the value of the one that is there
// for the same requests, and false.
func (t *Tree[T]) Add(p Pattern, value T) (T, bool) {
	at := &t.root
	for rest, more := p.Path, true; more; {
		var segment string
		segment, rest, more = cut(rest)
		at = at.grow(segment)
	}
	place := &at.here
	if p.Below {
		place = &at.below
	}
	if *place == nil {
		*place = leaves[T]{}
	}
	for _, other := range (*place)[p.Host] {
		if other.pattern.Method == p.Method {
			return other.value, false
		}
	}
	(*place)[p.Host] = append((*place)[p.Host], leaf[T]{p, value})
	return value, true
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

// Find is the value for a request that was routed by pattern. It does not allocate.
func (t *Tree[T]) Find(method, pattern string) (value T, ok bool) {
	route := Parse(pattern)
	var found *leaf[T]
	at, rest, more := &t.root, route.Path, true
	for more {
		var segment string
		segment, rest, more = cut(rest)
		if at = at.next(segment); at == nil {
			break
		}
		if leaf := at.below.best(method, route.Host); leaf != nil {
			found = leaf
		}
	}
	if at != nil {
		if leaf := at.here.best(method, route.Host); leaf != nil {
			found = leaf
		}
	}
	if found == nil {
		return value, false
	}
	return found.value, true
}

// best is the leaf that says most about a request, or nil.
func (all leaves[T]) best(method, host string) *leaf[T] {
	if all == nil {
		return nil
	}
	if host != "" {
		if found := bestOf(all[host], method); found != nil {
			return found
		}
	}
	return bestOf(all[""], method)
}

func bestOf[T any](leaves []leaf[T], method string) (found *leaf[T]) {
	most := 0
	for i := range leaves {
		p := &leaves[i].pattern
		if !p.takes(method) {
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
