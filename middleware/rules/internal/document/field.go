package document

import (
	"encoding"
	"reflect"
	"sync"
)

// A field is a field of a struct that is read.
type field struct {
	name     string
	required bool
	index    []int
}

// fieldsOf lists the fields of a struct, those of embedded structs in their place. The list is
// not to be changed.
func fieldsOf(t reflect.Type) []field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]field)
	}
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("yaml"); name != "" && name != "-" {
			fields = append(fields, field{name, f.Tag.Get("required") == "true", f.Index})
		}
	}
	knownFields.Store(t, fields)
	return fields
}

var knownFields sync.Map // of what fieldsOf was asked for, by its reflect.Type

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// isText reports whether a t reads itself from a scalar.
func isText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(textUnmarshaler) }

// isObject reports whether a t is read from a mapping.
func isObject(t reflect.Type) bool { return t.Kind() == reflect.Struct && len(fieldsOf(t)) > 0 }

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
