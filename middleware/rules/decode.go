package rules

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/internal/nearest"
)

// wrapper is a key that may stand above the whole file, alone or beside version. The version is then
// not required.
const wrapper, beside = "rate_limits", "version"

// decode reads a file's text, YAML or JSON, into c.file and c.doc, and records everything that is
// wrong. If something is wrong, c.file has the rest. Paths begin below the wrapper.
//
// A document is JSON as encoding/json reads it, except for a character in two escapes
// (\ud83d\ude00), or YAML without tags, merge keys and keys that are not text. Aliases are followed.
// A field without a value ("limit:" and nothing after it) is a problem: an empty value is written as
// [] or {}. A single element may be written without the list around it.
func (c *checker) decode(text []byte) {
	root := readYAML(text, &c.problems)
	if root == nil {
		return
	}
	d := decoder{problems: &c.problems}
	if inner := unwrap(root); inner != nil {
		root, c.doc.wrapped = inner, true
	}
	c.doc.root = &location{key: positionOf(root), value: positionOf(root)}
	d.at, d.wrapped = c.doc.root, c.doc.wrapped
	d.decode(root, reflect.ValueOf(c.file).Elem(), field{})
}

// unwrap returns the value below the wrapper, with the version beside it, or nil without a wrapper.
func unwrap(root *yaml.Node) *yaml.Node {
	var inner *yaml.Node
	var version []*yaml.Node
	for i := 0; i+1 < len(root.Content) && root.Kind == yaml.MappingNode; i += 2 {
		switch key := root.Content[i]; {
		case key.Value == wrapper && inner == nil:
			inner = root.Content[i+1]
		case key.Value == beside:
			version = append(version, key, root.Content[i+1])
		default:
			return nil
		}
	}
	if inner == nil || inner.Kind != yaml.MappingNode {
		return inner
	}
	whole := *inner
	whole.Content = slices.Concat(inner.Content, version)
	return &whole
}

// A decoder moves nodes into Go values.
type decoder struct {
	problems *problems
	path     []string
	at       *location // of the value that is read
	wrapped  bool
}

func (d *decoder) complain(at position, format string, args ...any) {
	d.problems.add(at, d.path, format, args...)
}

// within runs do with name at the end of the path.
func (d *decoder) within(name string, key position, value *yaml.Node, do func()) {
	outer, here := d.at, &location{key: key, value: positionOf(value)}
	if outer.inside == nil {
		outer.inside = map[string]*location{}
	}
	if outer.inside[name] == nil { // the first of duplicate keys counts
		outer.inside[name] = here
	}
	d.path, d.at = append(d.path, name), here
	do()
	d.path, d.at = d.path[:len(d.path)-1], outer
}

// decode reads n into v, which is settable and zero. f is the field that v is in.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, f field) {
	if n.Alias != nil {
		n = n.Alias
	}
	t, is := v.Type(), kindOf(n)
	switch {
	case t.Kind() == reflect.Pointer:
		pointee := reflect.New(t.Elem())
		d.decode(n, pointee.Elem(), f)
		if is != nullKind {
			v.Set(pointee)
		}
	case is == nullKind:
		d.complain(d.at.key, "has no value")
	case t == reflect.TypeFor[client]() && is == mappingKind:
		if len(n.Content) != 2 || kindOf(n.Content[1]) != mappingKind {
			d.complain(d.at.value, "is a mapping: want a network alone, or {198.51.100.0/24: {until: 2026-12-24}}")
			return
		}
		d.decode(n.Content[0], v, f)
		d.fields(n.Content[1], v.FieldByName("dated"))
	case isText(t) && is.scalar():
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value)); err != nil {
			d.complain(d.at.value, "%s", err.Error())
		}
	case isObject(t) && is == mappingKind:
		d.fields(n, v)
	case isObject(t) && is.scalar() && shortOf(t) != nil:
		short := *shortOf(t)
		d.within(short.name, d.at.key, n, func() { d.decode(n, v.FieldByIndex(short.Index), short) })
	case (t == reflect.TypeFor[limitFields]() || t == reflect.TypeFor[override]()) && is == listKind:
		d.complain(d.at.value, "is a list: write several limits as {limits: [10/s, 1000/h]}")
	case t.Kind() == reflect.Map && is == mappingKind:
		d.mapping(n, v)
	case t.Kind() == reflect.Slice && is == listKind && len(n.Content) == 0 && f.min != "":
		d.complain(d.at.value, "%s", errEmpty)
	case t.Kind() == reflect.Slice && is == listKind:
		v.Set(reflect.MakeSlice(t, len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.within(strconv.Itoa(i), positionOf(item), item, func() { d.decode(item, v.Index(i), f) })
		}
	case t.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(t, 1, 1))
		d.decode(n, v.Index(0), f)
	default:
		if err := setScalar(v, n, f); err != nil {
			d.complain(d.at.value, "%s", err.Error())
		}
	}
}

func (d *decoder) fields(n *yaml.Node, v reflect.Value) {
	fields, whole := fieldsOf(v.Type()), len(d.path) == 0
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	known := d.entries(n, func(key string) bool { return nearest.Of(key, names) != "" }, func(key string, at position, value *yaml.Node) {
		if i := slices.Index(names, key); i >= 0 {
			d.decode(value, v.FieldByIndex(fields[i].Index), fields[i])
		} else if near := nearest.Of(key, names); near != "" {
			d.complain(at, "unknown field %s: did you mean %q?", quote(key), near)
		} else {
			d.complain(at, "unknown field: want one of %s", strings.Join(names, ", "))
		}
	})
	for _, f := range fields {
		if _, ok := known[f.name]; f.required && !ok && !(whole && d.wrapped && f.name == beside) {
			d.problems.add(d.at.key, append(d.path, f.name), "is required, and missing")
		}
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value) {
	t := v.Type()
	v.Set(reflect.MakeMapWithSize(t, len(n.Content)/2))
	d.entries(n, func(string) bool { return true }, func(key string, _ position, value *yaml.Node) {
		element := reflect.New(t.Elem()).Elem()
		d.decode(value, element, field{})
		v.SetMapIndex(reflect.ValueOf(key), element)
	})
}

// entries calls do for each entry of a mapping, at its path, and returns the lines of the keys. The
// first of duplicate keys counts. A key that shows rejects is left out of paths and messages: an
// unknown field may be a credential.
func (d *decoder) entries(n *yaml.Node, shows func(key string) bool, do func(key string, at position, value *yaml.Node)) map[string]int {
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at, value := n.Content[i].Value, positionOf(n.Content[i]), n.Content[i+1]
		check := func() {
			if first, twice := lines[key]; twice {
				d.complain(at, "duplicate key: the first is on line %d", first)
				return
			}
			lines[key] = at.line
			do(key, at, value)
		}
		if shows(key) {
			d.within(key, at, value, check)
		} else {
			check()
		}
	}
	return lines
}

var errEmpty = errors.New("is empty: leave it out")

// setScalar reads n into v, which is no collection.
func setScalar(v reflect.Value, n *yaml.Node, f field) error {
	is := kindOf(n)
	wrong := fmt.Errorf("is %s: want %s", is, kindName(v.Type()))
	switch {
	case len(f.words) > 0 && is.scalar():
		if !slices.Contains(f.words, n.Value) {
			return fmt.Errorf("%s is not allowed here: %s", quote(n.Value), suggest(n.Value, f.words))
		}
		v.SetString(n.Value)
	case v.Kind() == reflect.String && is == textKind && n.Value == "":
		return errEmpty
	case v.Kind() == reflect.String && is == textKind:
		v.SetString(n.Value)
	case v.Kind() == reflect.String && is.scalar():
		return fmt.Errorf("%w, so put it in quotes", wrong)
	case v.Kind() == reflect.String && is == mappingKind: // as [user:42] is read, or a: b: c
		return fmt.Errorf("%w; what has a colon in it needs quotes", wrong)
	case v.Kind() == reflect.Bool && is == booleanKind:
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case v.Kind() == reflect.Bool && is == textKind:
		return errors.New("is text: want true or false, without quotes")
	case v.CanInt() && (is == numberKind || is == textKind):
		i, err := parseInteger(n.Value)
		if err != nil {
			quoted := string(textKind)
			if is == numberKind {
				quoted = quote(n.Value)
			}
			return fmt.Errorf("is %s: %w", quoted, err)
		}
		v.SetInt(i)
		return f.bounds(i)
	default:
		return wrong
	}
	return nil
}

// suggest names the word that was probably meant, or all words that there are.
func suggest(word string, known []string) string {
	if near := nearest.Of(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "there are " + strings.Join(known, ", ")
}

// A field is a field of the types in file.go, with its tags.
type field struct {
	reflect.StructField
	name            string // in a document
	required, short bool
	words           []string
	min, max        string
}

// bounds is an error for a number outside of the field's min and max.
func (f *field) bounds(n int64) error {
	least, err := parseInteger(f.min)
	below := err == nil && n < least
	most, err := parseInteger(f.max)
	above := err == nil && n > most
	switch {
	case !below && !above:
		return nil
	case f.max == "":
		return fmt.Errorf("is %d: it must be at least %s", n, f.min)
	case f.min == f.max:
		return fmt.Errorf("is %d: it must be %s", n, f.min)
	}
	return fmt.Errorf("is %d: it must be from %s to %s", n, f.min, f.max)
}

// fieldsOf lists the fields of a struct, and in their order those of embedded structs. It lists
// none for other types. Callers must not change the list.
func fieldsOf(t reflect.Type) []field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]field)
	}
	var fields []field
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			if name := f.Tag.Get("yaml"); name != "" {
				fields = append(fields, field{f, name, f.Tag.Get("required") == "true", f.Tag.Get("short") == "true",
					strings.Fields(f.Tag.Get("words")), f.Tag.Get("min"), f.Tag.Get("max")})
			}
		}
	}
	knownFields.Store(t, fields)
	return fields
}

var knownFields sync.Map // []field by reflect.Type

// shortOf is the field that a scalar in place of the struct sets, or nil.
func shortOf(t reflect.Type) *field {
	fields := fieldsOf(t)
	if i := slices.IndexFunc(fields, func(f field) bool { return f.short }); i >= 0 {
		return &fields[i]
	}
	return nil
}

// isText reports whether a t reads itself from a scalar.
func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// isObject reports whether a t is read from a mapping of fields.
func isObject(t reflect.Type) bool { return len(fieldsOf(t)) > 0 }

// kindName is what a t is written as, for a message.
func kindName(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return kindName(t.Elem())
	case isObject(t) && shortOf(t) != nil:
		return kindName(t.FieldByIndex(shortOf(t).Index).Type) + ", or a mapping"
	case isText(t), t.Kind() == reflect.String:
		return string(textKind)
	case t.Kind() == reflect.Bool:
		return string(booleanKind)
	case isObject(t), t.Kind() == reflect.Map:
		return string(mappingKind)
	}
	return "a whole number"
}
