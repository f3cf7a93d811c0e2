package document

import "maps"

// A Wrapper is a key that a whole document may stand below, as the part of a larger
// configuration that it was: alone, or beside fields that it implies.
type Wrapper struct {
	Key     string
	Implied map[string]string // fields that the document need not have then, and their scalars
}

// unwrap is what stands below w's key, with the fields that it implied, or nil if the document
// has no such form.
func (w Wrapper) unwrap(root *node) (_ *node, implied []string) {
	outer, ok := root.child(w.Key)
	if !ok || root.kind != mapping {
		return nil, nil
	}
	for _, e := range root.entries {
		if _, implied := w.Implied[e.key]; !implied && e.key != w.Key {
			return nil, nil
		}
	}
	if outer.value.kind != mapping {
		return outer.value, nil
	}
	inner := *outer.value                                          // which may have an anchor
	if inner.first = maps.Clone(inner.first); inner.first == nil { // of an empty mapping
		inner.first = map[string]int{}
	}
	add := func(e entry) {
		if _, given := inner.first[e.key]; !given {
			inner.first[e.key] = len(inner.entries)
		}
		inner.entries = append(inner.entries[:len(inner.entries):len(inner.entries)], e)
	}
	for _, e := range root.entries {
		if e.key != w.Key {
			add(e)
		}
	}
	for name, text := range w.Implied {
		if _, given := inner.first[name]; !given {
			implied = append(implied, name)
			add(entry{name, outer.at, &node{Position: outer.at, kind: scalarOf(text), text: text, values: 1}})
		}
	}
	return &inner, implied
}

func scalarOf(s string) kind {
	if _, err := ParseInteger(s, 64); err == nil {
		return number
	}
	return text
}
