// Package yamlfile reads a YAML file into structs, and reports what is wrong with the file, and where. It is for rules
// files and for the command's test files.
package yamlfile

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

// A Report records a problem: where it is, in which value, and what is wrong.
type Report func(at Position, path []string, message string)

// A Wrapper is a key that may stand above the whole file, alone or beside another key, which is then not required. Paths
// begin below the wrapper.
type Wrapper struct{ Above, Beside string }

// Read reads a file's text, YAML or JSON, into the struct that into points to, and reports everything that is wrong. If
// something is wrong, the struct has the rest. The Document says where each value is written; it is empty if the text
// cannot be read.
//
// A document is JSON as encoding/json reads it, except for a character in two escapes (\ud83d\ude00), or YAML without
// tags, merge keys and keys that are not text. Aliases are followed. A field without a value ("limit:" and nothing after
// it) is a problem: an empty value is written as [] or {}. A single element may be written without the list around it.
//
// The tags of a field are its name (yaml), whether it is required, min and max of an integer, min of a list that may not
// be empty, words that can be written, and whether it is what a scalar in place of the mapping says (short). A type with
// UnmarshalText is read from any scalar. If it has fields too, it can be the only key of a mapping to them.
func Read(text []byte, into any, w Wrapper, report Report) *Document {
	doc := &Document{}
	root := readYAML(text, report)
	if root == nil {
		return doc
	}
	d := decoder{report: report, wrapper: w}
	if inner := d.unwrap(root); inner != nil {
		root, doc.Wrapped = inner, true
	}
	doc.root = &location{key: positionOf(root), value: positionOf(root)}
	d.at, d.wrapped = doc.root, doc.Wrapped
	d.decode(root, reflect.ValueOf(into).Elem(), Field{})
	return doc
}

// unwrap returns the value below the wrapper, with the version beside it, or nil without a wrapper.
func (d *decoder) unwrap(root *yaml.Node) *yaml.Node {
	var inner *yaml.Node
	var version []*yaml.Node
	for i := 0; i+1 < len(root.Content) && root.Kind == yaml.MappingNode; i += 2 {
		switch key := root.Content[i]; {
		case key.Value == d.wrapper.Above && key.Value != "" && inner == nil:
			inner = root.Content[i+1]
		case key.Value == d.wrapper.Beside:
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
	report  Report
	wrapper Wrapper
	path    []string
	at      *location // of the value that is read
	wrapped bool
}

func (d *decoder) complain(at Position, format string, args ...any) {
	d.report(at, d.path, fmt.Sprintf(format, args...))
}

// within runs do with name at the end of the path.
func (d *decoder) within(name string, key Position, value *yaml.Node, do func()) {
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
func (d *decoder) decode(n *yaml.Node, v reflect.Value, f Field) {
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
	case IsText(t) && IsObject(t) && is == mappingKind && len(n.Content) == 2 && kindOf(n.Content[1]) == mappingKind:
		d.decode(n.Content[0], v, f)
		d.fields(n.Content[1], v)
	case hint(v, is) != "":
		d.complain(d.at.value, "is %s: %s", is, hint(v, is))
	case IsText(t) && is.scalar():
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value)); err != nil {
			d.complain(d.at.value, "%s", err.Error())
		}
	case IsObject(t) && is == mappingKind:
		d.fields(n, v)
	case IsObject(t) && is.scalar() && ShortOf(t) != nil:
		short := *ShortOf(t)
		d.within(short.Name, d.at.key, n, func() { d.decode(n, v.FieldByIndex(short.Index), short) })
	case t.Kind() == reflect.Map && is == mappingKind:
		d.mapping(n, v)
	case t.Kind() == reflect.Slice && is == listKind && len(n.Content) == 0 && f.Min != "":
		d.complain(d.at.value, "%s", ErrEmpty)
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

// A Hinter knows what to write in place of a value of a wrong kind, such as "a list"; "" if that kind is read.
type Hinter interface{ Hint(kind string) string }

func hint(v reflect.Value, is kind) string {
	if h, ok := v.Interface().(Hinter); ok {
		return h.Hint(string(is))
	}
	return ""
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
			d.complain(at, "unknown field %s: did you mean %q?", Quote(key), near)
		} else {
			d.complain(at, "unknown field: want one of %s", strings.Join(names, ", "))
		}
	})
	for _, f := range fields {
		if _, ok := known[f.Name]; f.Required && !ok && !(whole && d.wrapped && f.Name == d.wrapper.Beside) {
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
		v.SetMapIndex(reflect.ValueOf(key), element)
	})
}

// entries calls do for each entry of a mapping, at its path, and returns the lines of the keys. The
// first of duplicate keys counts. A key that shows rejects is left out of paths and messages: an
// unknown field may be a credential.
func (d *decoder) entries(n *yaml.Node, shows func(key string) bool, do func(key string, at Position, value *yaml.Node)) map[string]int {
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
		if shows(key) {
			d.within(key, at, value, check)
		} else {
			check()
		}
	}
	return lines
}

var ErrEmpty = errors.New("is empty: leave it out")

// setScalar reads n into v, which is no collection.
func setScalar(v reflect.Value, n *yaml.Node, f Field) error {
	is := kindOf(n)
	wrong := fmt.Errorf("is %s: want %s", is, kindName(v.Type()))
	switch {
	case len(f.Words) > 0 && is.scalar():
		if !slices.Contains(f.Words, n.Value) {
			return fmt.Errorf("%s is not allowed here: %s", Quote(n.Value), Suggest(n.Value, f.Words))
		}
		v.SetString(n.Value)
	case v.Kind() == reflect.String && is == textKind && n.Value == "":
		return ErrEmpty
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
		i, err := ParseInteger(n.Value)
		if err != nil {
			quoted := string(textKind)
			if is == numberKind {
				quoted = Quote(n.Value)
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

// Suggest names the word that was probably meant, or all words that there are.
func Suggest(word string, known []string) string {
	if near := nearest.Of(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "there are " + strings.Join(known, ", ")
}

// A field is a field of the types in file.go, with its tags.
type Field struct {
	reflect.StructField
	Name            string // in a document
	Required, short bool
	Words           []string
	Min, Max        string
}

// bounds is an error for a number outside of the field's min and max.
func (f *Field) bounds(n int64) error {
	least, err := ParseInteger(f.Min)
	below := err == nil && n < least
	most, err := ParseInteger(f.Max)
	above := err == nil && n > most
	switch {
	case !below && !above:
		return nil
	case f.Max == "":
		return fmt.Errorf("is %d: it must be at least %s", n, f.Min)
	case f.Min == f.Max:
		return fmt.Errorf("is %d: it must be %s", n, f.Min)
	}
	return fmt.Errorf("is %d: it must be from %s to %s", n, f.Min, f.Max)
}

// FieldsOf lists the fields of a struct in order, with the fields of embedded structs in place. It lists
// none for other types. Callers must not change the list.
func FieldsOf(t reflect.Type) []Field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]Field)
	}
	var fields []Field
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			if name := f.Tag.Get("yaml"); name != "" {
				fields = append(fields, Field{f, name, f.Tag.Get("required") == "true", f.Tag.Get("short") == "true",
					strings.Fields(f.Tag.Get("words")), f.Tag.Get("min"), f.Tag.Get("max")})
			}
		}
	}
	knownFields.Store(t, fields)
	return fields
}

var knownFields sync.Map // []Field by reflect.Type

// ShortOf is the field that a scalar in place of the struct sets, or nil.
func ShortOf(t reflect.Type) *Field {
	fields := FieldsOf(t)
	if i := slices.IndexFunc(fields, func(f Field) bool { return f.short }); i >= 0 {
		return &fields[i]
	}
	return nil
}

// IsText reports whether a t reads itself from a scalar.
func IsText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// IsObject reports whether a t is read from a mapping of Fields.
func IsObject(t reflect.Type) bool { return len(FieldsOf(t)) > 0 }

// kindName is what a t is written as, for a message.
func kindName(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return kindName(t.Elem())
	case IsObject(t) && ShortOf(t) != nil:
		return kindName(t.FieldByIndex(ShortOf(t).Index).Type) + ", or a mapping"
	case IsText(t), t.Kind() == reflect.String:
		return string(textKind)
	case t.Kind() == reflect.Bool:
		return string(booleanKind)
	case IsObject(t), t.Kind() == reflect.Map:
		return string(mappingKind)
	}
	return "a whole number"
}
