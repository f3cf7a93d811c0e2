// Package document reads configuration into structs and says where every mistake is.
// It knows nothing of what is configured.
//
// # How a struct is read
//
// A field's tags are `yaml:"name"` (the name in the document) and `required:"true"`. A field
// without a name is passed over. Embedded structs are inlined.
//
//   - string, bool and integers of any size. An integer is decimal digits, a single _
//     between any two; 0x10, 010, 1e3, +5 and 1.0 are refused.
//   - map[string]T. Keys keep their spelling.
//   - slices. One element may be written without the list around it.
//   - structs, and pointers to anything here: nil where the document has nothing.
//   - encoding.TextUnmarshaler, by the pointer: it gets a scalar as it is written, without
//     quotes, and its error is the problem's message. If it is a struct too, a mapping is
//     read into its fields; likewise a list into a slice, and a mapping into a map. A
//     struct that embeds one is one, by Go's rules.
//
// A field without a value ("limit:" and nothing after it) is a problem, but for maps and
// slices: they are empty, as they are when each of their elements is commented out.
//
// # What is a document
//
// JSON as encoding/json reads it, or YAML without tags, merge keys and keys that are not
// text. Aliases are followed, within the bounds that hold for all (limits.go).
package document

import "strconv"

// A Document is what was read, for questions about where things are.
type Document struct {
	Wrapped string   // the key that it stands below; empty: none
	Implied []string // fields that it has because of that

	root *node // nil: it could not be read
}

// Has reports whether the document has a value at path.
func (d *Document) Has(path ...string) bool {
	return d.root != nil && len(d.find(path)) == len(path)+1
}

// Position is where the value at path begins, or the nearest of its ancestors that exists.
func (d *Document) Position(path ...string) Position {
	if d.root == nil {
		return Position{}
	}
	return last(d.find(path)).value.Position
}

// Key is where the key in front of the value at path begins, or the value itself where it
// has none: an element of a list.
func (d *Document) Key(path ...string) Position {
	if d.root == nil {
		return Position{}
	}
	return last(d.find(path)).where()
}

// find walks along path as far as it exists, and returns the root and every step.
func (d *Document) find(path []string) []entry {
	steps := []entry{{value: d.root}}
	for _, name := range path {
		next, ok := last(steps).value.child(name)
		if !ok {
			break
		}
		steps = append(steps, next)
	}
	return steps
}

func last[T any](s []T) T { return s[len(s)-1] }

// child is the value of a key, or the element of a list by its index.
func (n *node) child(name string) (entry, bool) {
	switch n.kind {
	case mapping:
		if i, ok := n.first[name]; ok {
			return n.entries[i], true
		}
	case list:
		i, err := strconv.Atoi(name)
		if err == nil && i >= 0 && i < len(n.items) && name == strconv.Itoa(i) {
			return entry{value: n.items[i]}, true
		}
	}
	return entry{}, false
}
