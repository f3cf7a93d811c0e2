package document

import (
	"encoding"
	"fmt"
	"reflect"
	"sync"
	"time"
)

// A field is a field of a struct, as its tags describe it.
type field struct {
	name        string
	doc         string
	fallback    string // documentation of the default
	hasFallback bool
	required    bool
	least, most string // of an integer
	pattern     string // of text
	keys        string // pattern of a mapping's keys
	typ         reflect.Type
	index       []int
}

// fieldsOf lists the fields of a struct, those of embedded structs in their place. Fields
// that can't be read, here or in structs below, are a mistake in the program, and panic. The
// list is not to be changed.
func fieldsOf(t reflect.Type) []field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]field)
	}
	fields := readFields(t)
	knownFields.Store(t, fields)
	return fields
}

var knownFields sync.Map // of what fieldsOf was asked for, by its reflect.Type

func readFields(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct && f.Tag.Get("yaml") == "" {
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}
			continue
		}
		name := f.Tag.Get("yaml")
		if name == "-" || !f.IsExported() && name == "" {
			continue
		}
		if name == "" || !f.IsExported() {
			panic(fmt.Sprintf("document: field %s of %s: want it exported, with a yaml tag", f.Name, t))
		}
		if !readable(f.Type) {
			panic(fmt.Sprintf("document: field %s of %s: a %s can't be read", f.Name, t, f.Type))
		}
		fallback, has := f.Tag.Lookup("default")
		fields = append(fields, field{
			name: name, doc: f.Tag.Get("doc"), fallback: fallback, hasFallback: has,
			least: f.Tag.Get("min"), most: f.Tag.Get("max"), pattern: f.Tag.Get("pattern"), keys: f.Tag.Get("keys"),
			required: f.Tag.Get("required") == "true", typ: f.Type, index: f.Index,
		})
	}
	return fields
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// isText reports whether a t reads itself from a scalar.
func isText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(textUnmarshaler) }

// isObject reports whether a t is read from a mapping: a struct, unless it reads itself and
// has no fields that are for a document.
func isObject(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && (!isText(t) || isTagged(t))
}

func isTagged(t reflect.Type) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		if tag := f.Tag.Get("yaml"); tag != "" && tag != "-" || tag == "" && f.Anonymous && f.Type.Kind() == reflect.Struct && isTagged(f.Type) {
			return true
		}
	}
	return false
}

// readable reports whether decode knows what to do with a t. A Duration it would take for
// a number, of nanoseconds.
func readable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return readable(t.Elem())
	case reflect.Map:
		return t.Key().Kind() == reflect.String && readable(t.Elem())
	case reflect.Struct:
		if isObject(t) {
			fieldsOf(t)
		}
		return true
	case reflect.String, reflect.Bool:
		return true
	}
	return isText(t) || reflect.Zero(t).CanInt() && t != reflect.TypeFor[time.Duration]()
}

// inWords is what is written for a t.
func inWords(t reflect.Type) string {
	switch {
	case isText(t) && isObject(t):
		return "text, or a mapping"
	case isText(t), t.Kind() == reflect.String:
		return string(text)
	case t.Kind() == reflect.Bool:
		return string(boolean)
	case isObject(t), t.Kind() == reflect.Map:
		return string(mapping)
	}
	return "a whole number"
}

// structOf is the struct type that v points to.
func structOf(v any) reflect.Type {
	t := reflect.TypeOf(v)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		panic(fmt.Sprintf("document: %T is not a struct", v))
	}
	return t
}
