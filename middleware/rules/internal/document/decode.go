package document

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/internal/nearest"
)

// Decode reads one document, YAML or JSON, into a pointer to a struct. The problems are
// everything that is wrong, in the order of the document; what could be read is in into.
// The Document is never nil.
//
// A document below the key of a wrapper is read as if it stood by itself, and its paths begin
// there.
func Decode(data []byte, into any, wrappers ...Wrapper) (*Document, []Problem) {
	target := reflect.ValueOf(into)
	root, found := read(data)
	doc := &Document{root: root}
	for _, w := range wrappers {
		if root == nil || doc.Wrapped != "" {
			break
		}
		if inner, implied := w.unwrap(root); inner != nil {
			doc.root, doc.Wrapped, doc.Implied = inner, w.Key, implied
		}
	}
	if root != nil {
		d := decoder{problems: found}
		d.decode(entry{value: doc.root}, target.Elem())
		found = d.problems
	}
	return doc, found.inOrder()
}

// read makes nodes of data. Without a root there are problems.
func read(data []byte) (*node, problems) {
	data, found := checkBytes(data)
	if found != nil {
		return nil, found
	}
	if json.Valid(data) {
		data = surrogates.ReplaceAllFunc(data, character)
	}
	root, found := readYAML(data)
	if root != nil && root.kind == null {
		found.add(Position{1, 1}, nil, "the document is empty")
		root = nil
	}
	return root, found
}

// surrogates are a character in two escapes, which is all of JSON that is not YAML, or an
// escaped backslash, behind which none begins.
var surrogates = regexp.MustCompile(`\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)

// character is what surrogates stand for, and a backslash as it is written.
func character(escaped []byte) []byte {
	var s string
	if string(escaped) == `\\` || json.Unmarshal(slices.Concat([]byte{'"'}, escaped, []byte{'"'}), &s) != nil {
		return escaped
	}
	return []byte(s)
}

// A decoder moves nodes into Go values.
type decoder struct {
	problems problems
	path     []string
}

func (d *decoder) complain(at Position, format string, args ...any) {
	d.problems.add(at, d.path, format, args...)
}

// within runs do with name at the end of the path.
func (d *decoder) within(name string, do func()) {
	d.path = append(d.path, name)
	do()
	d.path = d.path[:len(d.path)-1]
}

// decode reads e into v, which is settable and zero.
func (d *decoder) decode(e entry, v reflect.Value) {
	n, t := e.value, v.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		pointee := reflect.New(t.Elem())
		d.decode(e, pointee.Elem())
		if n.kind != null {
			v.Set(pointee)
		}
	case n.kind == null && !isText(t) && (t.Kind() == reflect.Map || t.Kind() == reflect.Slice):
		// Empty: all that was in it is commented out.
	case n.kind == null:
		d.complain(e.where(), "has no value")
	case isText(t) && n.kind.scalar():
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.text)); err != nil {
			d.complain(n.Position, "%s", err.Error())
		}
	case isObject(t) && n.kind == mapping:
		d.fields(e, v)
	case t.Kind() == reflect.Map && n.kind == mapping:
		d.mapping(n, v)
	case t.Kind() == reflect.Slice && n.kind == list:
		d.list(n.items, v)
	case t.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(t, 1, 1))
		d.decode(e, v.Index(0))
	default:
		if err := setScalar(v, n); err != nil {
			d.complain(n.Position, "%s", err.Error())
		}
	}
}

func (d *decoder) fields(e entry, v reflect.Value) {
	n, fields := e.value, fieldsOf(v.Type())
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	isNear := func(key string) bool { return nearest.Of(key, names) != "" }
	d.unique(n, isNear, func(inner entry) {
		for _, f := range fields {
			if f.name == inner.key {
				d.decode(inner, v.FieldByIndex(f.index))
				return
			}
		}
		if near := nearest.Of(inner.key, names); near != "" {
			d.complain(inner.at, "unknown field %s: did you mean %q?", quote(inner.key), near)
			return
		}
		d.complain(inner.at, "unknown field: want one of %s", strings.Join(names, ", "))
	})
	for _, f := range fields {
		if _, ok := n.child(f.name); f.required && !ok {
			d.within(f.name, func() { d.complain(e.where(), "is required, and missing") })
		}
	}
}

func (d *decoder) mapping(n *node, v reflect.Value) {
	t := v.Type()
	v.Set(reflect.MakeMapWithSize(t, len(n.entries)))
	isChosen := func(string) bool { return true }
	d.unique(n, isChosen, func(e entry) {
		value := reflect.New(t.Elem()).Elem()
		d.decode(e, value)
		v.SetMapIndex(reflect.ValueOf(e.key).Convert(t.Key()), value)
	})
}

func (d *decoder) list(items []*node, v reflect.Value) {
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		d.within(strconv.Itoa(i), func() { d.decode(entry{value: item}, v.Index(i)) })
	}
}

// unique calls do for each entry of a mapping, at its path. Of a key that is there twice
// the first counts. A key that is not to be told is left out of paths and messages: what
// stands where a field is expected, and is none, may be a credential.
func (d *decoder) unique(n *node, tells func(key string) bool, do func(entry)) {
	for i, e := range n.entries {
		check := func() {
			if first := n.first[e.key]; first != i {
				d.complain(e.at, "duplicate key: the first is on line %d", n.entries[first].at.Line)
				return
			}
			do(e)
		}
		if tells(e.key) {
			d.within(e.key, check)
		} else {
			check()
		}
	}
}

// setScalar reads n into v, which is no collection.
func setScalar(v reflect.Value, n *node) error {
	wrong := fmt.Errorf("is %s: want %s", n.kind, inWords(v.Type()))
	switch {
	case v.Kind() == reflect.String && n.kind == text:
		v.SetString(n.text)
	case v.Kind() == reflect.String && n.kind.scalar():
		return fmt.Errorf("%w, so put it in quotes", wrong)
	case v.Kind() == reflect.String && n.kind == mapping: // as [user:42] is read, or a: b: c
		return fmt.Errorf("%w; what has a colon in it needs quotes", wrong)
	case v.Kind() == reflect.Bool && n.kind == boolean:
		v.SetBool(strings.EqualFold(n.text, "true"))
	case v.Kind() == reflect.Bool && n.kind == text:
		return errors.New("is text: want true or false, without quotes")
	case v.CanInt() && (n.kind == number || n.kind == text):
		i, err := ParseInteger(n.text, v.Type().Bits())
		if err != nil {
			is := string(text)
			if n.kind == number {
				is = quote(n.text)
			}
			return fmt.Errorf("is %s: %w", is, err)
		}
		v.SetInt(i)
	default:
		return wrong
	}
	return nil
}
