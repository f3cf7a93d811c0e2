package document

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

// A Wrapper is a key that a whole document may stand below, alone or beside one of its fields. That
// field is not required then.
type Wrapper struct{ Key, Beside string }

// Decode reads one document, YAML or JSON, into a pointer to a struct. It reports everything that is
// wrong; what could be read is in into. The Document is never nil.
//
// A document below the key of the wrapper is read as if it stood by itself, and its paths begin
// there.
func Decode(data []byte, into any, w Wrapper, report Report) *Document {
	doc := &Document{}
	root := read(data, report)
	if root == nil {
		return doc
	}
	d := decoder{report: report}
	if inner := w.unwrap(root); inner != nil {
		root, doc.Wrapped, d.optional = inner, true, w.Beside
	}
	doc.root = &place{key: positionOf(root), value: positionOf(root)}
	d.at = doc.root
	d.decode(root, reflect.ValueOf(into).Elem(), Field{})
	return doc
}

// unwrap is what stands below w's key, with the field beside it, or nil if the document has no such
// form.
func (w Wrapper) unwrap(root *yaml.Node) *yaml.Node {
	var inner *yaml.Node
	var beside []*yaml.Node
	for i := 0; i+1 < len(root.Content) && root.Kind == yaml.MappingNode; i += 2 {
		switch key := root.Content[i]; {
		case key.Value == w.Key && inner == nil:
			inner = root.Content[i+1]
		case key.Value == w.Beside:
			beside = append(beside, key, root.Content[i+1])
		default:
			return nil
		}
	}
	if inner == nil || inner.Kind != yaml.MappingNode {
		return inner
	}
	whole := *inner
	whole.Content = slices.Concat(inner.Content, beside)
	return &whole
}

// A decoder moves nodes into Go values.
type decoder struct {
	report   Report
	path     []string
	at       *place // of the value that is read
	optional string // a field of the whole that is not required
}

func (d *decoder) complain(at Position, format string, args ...any) {
	d.report(at, d.path, format, args...)
}

// within runs do with name at the end of the path.
func (d *decoder) within(name string, key Position, value *yaml.Node, do func()) {
	outer, here := d.at, &place{key: key, value: positionOf(value)}
	if outer.inside == nil {
		outer.inside = map[string]*place{}
	}
	if outer.inside[name] == nil { // of a key that is there twice, the first counts
		outer.inside[name] = here
	}
	d.path, d.at = append(d.path, name), here
	do()
	d.path, d.at = d.path[:len(d.path)-1], outer
}

// decode reads n into v, which is settable and zero. The field is the one that v is in.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, f Field) {
	if n.Alias != nil {
		n = n.Alias
	}
	t, is := v.Type(), kindOf(n)
	switch {
	case t.Kind() == reflect.Pointer:
		pointee := reflect.New(t.Elem())
		d.decode(n, pointee.Elem(), f)
		if is != null {
			v.Set(pointee)
		}
	case is == null:
		d.complain(d.at.key, "has no value")
	case IsText(t) && is.scalar():
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value)); err != nil {
			d.complain(d.at.value, "%s", err.Error())
		}
	case IsObject(t) && is == mapping:
		d.fields(n, v)
	case IsObject(t) && is.scalar() && ShortOf(t) != nil:
		short := *ShortOf(t)
		d.within(short.Name, d.at.key, n, func() { d.decode(n, v.FieldByIndex(short.Index), short) })
	case t.Kind() == reflect.Map && is == mapping:
		d.mapping(n, v)
	case t.Kind() == reflect.Slice && is == list && len(n.Content) == 0 && f.min != "":
		d.complain(d.at.value, "%s", errEmpty)
	case t.Kind() == reflect.Slice && is == list:
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
	fields, whole := FieldsOf(v.Type()), len(d.path) == 0
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	known := d.entries(n, func(key string) bool { return nearest.Of(key, names) != "" }, func(key string, at Position, value *yaml.Node) {
		if i := slices.Index(names, key); i >= 0 {
			d.decode(value, v.FieldByIndex(fields[i].Index), fields[i])
		} else if near := nearest.Of(key, names); near != "" {
			d.complain(at, "unknown field %s: did you mean %q?", quote(key), near)
		} else {
			d.complain(at, "unknown field: want one of %s", strings.Join(names, ", "))
		}
	})
	for _, f := range fields {
		if _, ok := known[f.Name]; f.Required && !ok && !(whole && f.Name == d.optional) {
			d.report(d.at.key, append(d.path, f.Name), "is required, and missing")
		}
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value) {
	t := v.Type()
	v.Set(reflect.MakeMapWithSize(t, len(n.Content)/2))
	d.entries(n, func(string) bool { return true }, func(key string, _ Position, value *yaml.Node) {
		element := reflect.New(t.Elem()).Elem()
		d.decode(value, element, Field{})
		v.SetMapIndex(reflect.ValueOf(key).Convert(t.Key()), element)
	})
}

// entries calls do for each entry of a mapping, at its path, and returns the lines of their keys. Of
// a key that is there twice the first counts. A key that is not to be told is left out of paths and
// messages: what stands where a field is expected, and is none, may be a credential.
func (d *decoder) entries(n *yaml.Node, tells func(key string) bool, do func(key string, at Position, value *yaml.Node)) map[string]int {
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at, value := n.Content[i].Value, positionOf(n.Content[i]), n.Content[i+1]
		check := func() {
			if first, twice := lines[key]; twice {
				d.complain(at, "duplicate key: the first is on line %d", first)
				return
			}
			lines[key] = at.Line
			do(key, at, value)
		}
		if tells(key) {
			d.within(key, at, value, check)
		} else {
			check()
		}
	}
	return lines
}

var errEmpty = errors.New("is empty: leave it out")

// setScalar reads n into v, which is no collection.
func setScalar(v reflect.Value, n *yaml.Node, f Field) error {
	is := kindOf(n)
	wrong := fmt.Errorf("is %s: want %s", is, inWords(v.Type()))
	switch {
	case len(f.Words) > 0 && is.scalar():
		if !slices.Contains(f.Words, n.Value) {
			return fmt.Errorf("%s is not what can be written here: %s", quote(n.Value), Suggest(n.Value, f.Words))
		}
		v.SetString(n.Value)
	case v.Kind() == reflect.String && is == text && n.Value == "":
		return errEmpty
	case v.Kind() == reflect.String && is == text:
		v.SetString(n.Value)
	case v.Kind() == reflect.String && is.scalar():
		return fmt.Errorf("%w, so put it in quotes", wrong)
	case v.Kind() == reflect.String && is == mapping: // as [user:42] is read, or a: b: c
		return fmt.Errorf("%w; what has a colon in it needs quotes", wrong)
	case v.Kind() == reflect.Bool && is == boolean:
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case v.Kind() == reflect.Bool && is == text:
		return errors.New("is text: want true or false, without quotes")
	case v.CanInt() && (is == number || is == text):
		i, err := ParseInteger(n.Value, v.Type().Bits())
		if err != nil {
			quoted := string(text)
			if is == number {
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

// Suggest says which of these words was probably meant, or what there is.
func Suggest(word string, known []string) string {
	if near := nearest.Of(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "there are " + strings.Join(known, ", ")
}

// A Field is a field of a struct that is read.
type Field struct {
	reflect.StructField
	Name            string // in a document
	Required, Short bool
	Words           []string
	min, max        string
}

// bounds is an error for a number that is none of the field's.
func (f *Field) bounds(n int64) error {
	least, err := ParseInteger(f.min, 64)
	below := err == nil && n < least
	most, err := ParseInteger(f.max, 64)
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

// FieldsOf lists the fields of a struct, those of embedded structs in their place: none of what is
// no struct. The list is not to be changed.
func FieldsOf(t reflect.Type) []Field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]Field)
	}
	var fields []Field
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			if name := f.Tag.Get("yaml"); name != "" && name != "-" {
				fields = append(fields, Field{f, name, f.Tag.Get("required") == "true", f.Tag.Get("short") == "true",
					strings.Fields(f.Tag.Get("words")), f.Tag.Get("min"), f.Tag.Get("max")})
			}
		}
	}
	knownFields.Store(t, fields)
	return fields
}

var knownFields sync.Map // of what FieldsOf was asked for, by its reflect.Type

// ShortOf is the field of a struct that a scalar is, or nil.
func ShortOf(t reflect.Type) *Field {
	fields := FieldsOf(t)
	if i := slices.IndexFunc(fields, func(f Field) bool { return f.Short }); i >= 0 {
		return &fields[i]
	}
	return nil
}

// IsText reports whether a t reads itself from a scalar.
func IsText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// IsObject reports whether a t is read from a mapping of fields.
func IsObject(t reflect.Type) bool { return len(FieldsOf(t)) > 0 }

// inWords is what is written for a t.
func inWords(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return inWords(t.Elem())
	case IsObject(t) && ShortOf(t) != nil:
		return inWords(t.FieldByIndex(ShortOf(t).Index).Type) + ", or a mapping"
	case IsText(t), t.Kind() == reflect.String:
		return string(text)
	case t.Kind() == reflect.Bool:
		return string(boolean)
	case IsObject(t), t.Kind() == reflect.Map:
		return string(mapping)
	}
	return "a whole number"
}
