package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Schema is the JSON Schema (draft 2020-12) of the documents Decode reads into a struct of
// the type that of has, or points to. A type that is written as a scalar may say how, by a
// method on its value, and a struct or a list what its parts say of each other, in schemas that
// all hold:
//
//	JSONSchema() map[string]any
//	JSONConstraints() []map[string]any
//
// Its title is also the name of the type in Fields. A type that has a name is in $defs by it. A
// struct can't contain itself.
func Schema(of any, id, title string, wrappers ...Wrapper) []byte {
	schema := object{{"$schema", "https://json-schema.org/draft/2020-12/schema"}}
	if id != "" {
		schema = append(schema, member{"$id", id})
	}
	schema = append(schema, member{"title", title})
	var defs definitions
	whole, constraints := defs.structSchema(structOf(of)), constraintsOf(structOf(of))
	if len(wrappers) > 0 && constraints != nil {
		defs.add("whole", object{{"allOf", constraints}})
		constraints = []map[string]any{{"$ref": "#/$defs/whole"}}
	}
	schema = append(schema, wrapping(whole, constraints, wrappers)...)
	if len(defs.list) > 0 {
		schema = append(schema, member{"$defs", defs.list})
	}
	return indent(schema)
}

// wrapping is a schema for a document that stands by itself or below a wrapper's key, and whose
// parts say of each other what constraints hold.
func wrapping(schema object, constraints []map[string]any, wrappers []Wrapper) object {
	if len(wrappers) == 0 {
		return constrained(schema, constraints)
	}
	for _, w := range wrappers {
		inside := object{}
		for i := range schema {
			switch m := &schema[i]; m.name {
			case "properties":
				all := m.value.(object)
				for _, property := range all {
					inside = append(inside, member{property.name, object{{"$ref", "#/properties/" + property.name}}})
				}
				m.value = append(all, member{w.Key, constrained(object{
					{"description", "The whole of it, as a part of a larger configuration."},
					{"type", "object"}, {"properties", inside}, {"additionalProperties", false},
				}, constraints)})
			case "required":
				*m = member{"anyOf", []object{{{"required", m.value}}, {{"required", []string{w.Key}}}}}
			}
		}
		beside := append(slices.Sorted(maps.Keys(w.Implied)), w.Key)
		schema = append(schema,
			member{"if", object{{"required", []string{w.Key}}}},
			member{"then", object{{"propertyNames", object{{"enum", beside}}}}})
		if constraints != nil {
			schema = append(schema, member{"else", object{{"allOf", constraints}}})
		}
	}
	return schema
}

// describer is what says how it is written, and constrainer what its parts say of each other.
type (
	describer   interface{ JSONSchema() map[string]any }
	constrainer interface{ JSONConstraints() []map[string]any }
)

// constraintsOf are those of a t, or nil.
func constraintsOf(t reflect.Type) []map[string]any {
	if c, ok := reflect.Zero(t).Interface().(constrainer); ok && t.Kind() != reflect.Pointer {
		return c.JSONConstraints()
	}
	return nil
}

func constrained(schema object, constraints []map[string]any) object {
	if constraints == nil {
		return schema
	}
	return append(schema, member{"allOf", constraints})
}

// definitions are the schemas of types, by their names.
type definitions struct {
	list  object
	types map[string]reflect.Type
}

// add puts a schema behind all others.
func (d *definitions) add(name string, schema object) { d.list = append(d.list, member{name, schema}) }

// schemaOf is the schema of what can be read into a t, or a reference to it.
func (d *definitions) schemaOf(t reflect.Type) object {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := t.Name()
	if name == "" || t.PkgPath() == "" {
		return d.formsOf(t)
	}
	switch other, known := d.types[name]; {
	case known && other != t:
		panic(fmt.Sprintf("document: %s and %s are of one name", t, other))
	case !known:
		if d.types == nil {
			d.types = map[string]reflect.Type{}
		}
		d.types[name] = t
		at := len(d.list)
		d.add(name, nil) // before those that it is made of
		d.list[at].value = d.formsOf(t)
	}
	return object{{"$ref", "#/$defs/" + name}}
}

// formsOf is the schema of what can be read into a t. It agrees with decoder.decode.
func (d *definitions) formsOf(t reflect.Type) object {
	var forms []object
	if isText(t) || described(t) != nil {
		forms = append(forms, scalarSchema(t))
	}
	switch t.Kind() {
	case reflect.Struct:
		if isObject(t) {
			forms = append(forms, constrained(d.structSchema(t), constraintsOf(t)))
		}
	case reflect.Map:
		forms = append(forms, object{{"type", orNull(t, "object")}, {"additionalProperties", d.schemaOf(t.Elem())}})
	case reflect.Slice:
		element := d.schemaOf(t.Elem())
		if !isText(t) {
			forms = append(forms, element)
		}
		forms = append(forms, object{{"type", orNull(t, "array")}, {"items", element}})
		if c := constraintsOf(t); c != nil {
			return object{{"anyOf", forms}, {"allOf", c}}
		}
	default:
		return scalarSchema(t)
	}
	if len(forms) == 1 {
		return forms[0]
	}
	return object{{"anyOf", forms}}
}

// orNull is the type of a collection, which may also be left empty.
func orNull(t reflect.Type, name string) any {
	if isText(t) {
		return name
	}
	return []string{name, "null"}
}

func (d *definitions) structSchema(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range fieldsOf(t) {
		var schema object
		if f.doc != "" {
			schema = append(schema, member{"description", f.doc})
		}
		if f.hasFallback {
			schema = append(schema, member{"default", fallbackValue(f)})
		}
		for _, m := range f.bounded(d.schemaOf(f.typ)) {
			if m.name != "description" || f.doc == "" {
				schema = append(schema, m)
			}
		}
		properties = append(properties, member{f.name, schema})
		if f.required {
			required = append(required, f.name)
		}
	}
	schema := object{{"type", "object"}, {"properties", properties}}
	if len(required) > 0 {
		schema = append(schema, member{"required", required})
	}
	return append(schema, member{"additionalProperties", false})
}

// bounded is a schema with what the tags of a field say of its values.
func (f *field) bounded(schema object) object {
	add := func(name, tag string) {
		if tag != "" {
			schema = append(schema, member{name, tag})
		}
	}
	add("pattern", f.pattern)
	if f.keys != "" {
		schema = append(schema, member{"propertyNames", object{{"pattern", f.keys}}})
	}
	for name, tag := range map[string]string{"minimum": f.least, "maximum": f.most} {
		n, err := ParseInteger(tag, 64)
		if err != nil {
			continue
		}
		schema = append(schema, member{name, n})
	}
	slices.SortStableFunc(schema, func(a, b member) int {
		return rank(a.name) - rank(b.name)
	})
	if f.least != "" && f.least != "0" { // of text such as 10_000
		for i := range schema {
			if schema[i].name == "pattern" {
				schema[i].value = PositivePattern
			}
		}
	}
	return schema
}

// rank puts the maximum behind the minimum.
func rank(name string) int {
	switch name {
	case "minimum":
		return 1
	case "maximum":
		return 2
	}
	return 0
}

func scalarSchema(t reflect.Type) object {
	if given := described(t); given != nil {
		var schema object
		for _, name := range slices.Sorted(maps.Keys(given)) {
			schema = append(schema, member{name, given[name]})
		}
		return schema
	}
	switch {
	case isText(t):
		return object{{"type", []string{"string", "number"}}}
	case t.Kind() == reflect.Bool:
		return object{{"type", "boolean"}}
	case t.Kind() == reflect.String:
		return object{{"type", "string"}}
	}
	// 10_000 is a string to a parser of YAML 1.2.
	return object{{"type", []string{"integer", "string"}}, {"pattern", integerPattern}}
}

// described is what a t says of itself, or nil.
func described(t reflect.Type) map[string]any {
	if d, ok := reflect.Zero(t).Interface().(describer); ok && t.Kind() != reflect.Pointer {
		return d.JSONSchema()
	}
	return nil
}

// fallbackValue is a default as a value of its type, where that is not text.
func fallbackValue(f field) any {
	switch t := f.typ; {
	case isText(t):
	case t.Kind() == reflect.Bool:
		return f.fallback == "true"
	case reflect.Zero(t).CanInt():
		if n, err := ParseInteger(f.fallback, t.Bits()); err == nil {
			return n
		}
	}
	return f.fallback
}

// An object is a JSON object that keeps the order of its members.
type object []member

type member struct {
	name  string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		for j, part := range []any{m.name, m.value} {
			if j > 0 {
				out.WriteByte(':')
			}
			text, err := plainJSON(part)
			if err != nil {
				return nil, err
			}
			out.Write(text)
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// indent writes o for people. What types say of themselves must be JSON.
func indent(o object) []byte {
	text, err := plainJSON(o)
	if err != nil {
		panic("document: " + err.Error())
	}
	var out bytes.Buffer
	_ = json.Indent(&out, text, "", "  ") // it is JSON
	out.WriteByte('\n')
	return out.Bytes()
}

// plainJSON keeps <, > and & as they are.
func plainJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSpace(out.Bytes()), err
}
