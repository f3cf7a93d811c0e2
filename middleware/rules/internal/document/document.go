// Package document reads configuration into structs and says where every mistake is.
// It knows nothing of what is configured.
//
// # How a struct is read
//
// A field's tags are `yaml:"name"` (the name in the document), `required:"true"`, `min:"1"` and
// `max:"9"` of an integer, or `min:"1"` of a list that may not be empty, `words:"a b"` (the texts that can be written), and `short:"true"`: a
// scalar where the struct should be is this field alone. A field without a name is passed over.
// Embedded structs are inlined.
//
//   - string, which is not empty, bool and integers of any size. An integer is decimal digits, a single _
//     between any two; 0x10, 010, 1e3, +5 and 1.0 are refused.
//   - map[string]T. Keys keep their spelling.
//   - slices. One element may be written without the list around it.
//   - structs, and pointers to anything here: nil where the document has nothing.
//   - encoding.TextUnmarshaler, by the pointer: it gets a scalar as it is written, without
//     quotes, and its error is the problem's message.
//
// A field without a value ("limit:" and nothing after it) is a problem, also where each element of a
// list is commented out: what is meant to be empty is written as [] or {}.
//
// # What is a document
//
// JSON as encoding/json reads it, but for a character in two escapes (\ud83d\ude00), or YAML without tags, merge keys and keys that are not
// text. Aliases are followed, within the bounds that hold for all (yaml.go).
package document

// A Document is what was read, for questions about where things are.
type Document struct {
	Wrapped bool // it stands below the key of its Wrapper

	root *place // nil: it could not be read
}

// A place is where a value is written.
type place struct {
	key, value Position // key is that of the value, where it has none: an element of a list
	inside     map[string]*place
}

// Has reports whether the document has a value at path.
func (d *Document) Has(path ...string) bool {
	_, all := d.find(path)
	return all
}

// Position is where the value at path begins, or the nearest of its ancestors that exists.
func (d *Document) Position(path ...string) Position {
	at, _ := d.find(path)
	return at.value
}

// Key is where the key in front of the value at path begins, or the value itself where it
// has none: an element of a list.
func (d *Document) Key(path ...string) Position {
	at, _ := d.find(path)
	return at.key
}

// find walks along path as far as it exists, and reports whether all of it does.
func (d *Document) find(path []string) (at place, all bool) {
	if d.root == nil {
		return place{}, false
	}
	here := d.root
	for _, name := range path {
		next := here.inside[name]
		if next == nil {
			return *here, false
		}
		here = next
	}
	return *here, true
}
