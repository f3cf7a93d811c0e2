package document

import "reflect"

// A Field is a row of a reference: where it is, what is written there, and what for.
type Field struct {
	Path    string // endpoints.*.limit: * is any key, windows[].limit is in each element
	Type    string // in words
	Default string // "(required)" if there is none because of that
	Doc     string
}

// Fields are the fields of the struct that of is, or points to, and all below them, in
// order. A struct can't contain itself.
func Fields(of any) []Field { return fieldsBelow("", structOf(of)) }

func fieldsBelow(prefix string, t reflect.Type) []Field {
	var rows []Field
	for _, f := range fieldsOf(t) {
		row := Field{Path: prefix + f.name, Type: typeName(f.typ), Default: f.fallback, Doc: f.doc}
		if f.required && !f.hasFallback {
			row.Default = "(required)"
		}
		rows = append(rows, row)
		if path, inner := below(row.Path, f.typ); isObject(inner) {
			rows = append(rows, fieldsBelow(path+".", inner)...)
		}
	}
	return rows
}

// below is where the values in all collections of a t at path are, and their type.
func below(path string, t reflect.Type) (string, reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer:
		return below(path, t.Elem())
	case reflect.Map:
		return below(path+".*", t.Elem())
	case reflect.Slice:
		return below(path+"[]", t.Elem())
	}
	return path, t
}

// typeName is what a t calls itself in its schema, or else what it is.
func typeName(t reflect.Type) string {
	title, _ := described(t)["title"].(string)
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Slice:
		if !isText(t) {
			return typeName(t.Elem()) + ", or a list"
		}
	case reflect.Struct:
		if title != "" && isObject(t) {
			return title + ", or a mapping"
		}
	}
	if title != "" {
		return title
	}
	return inWords(t)
}
