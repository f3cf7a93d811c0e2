package rules

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules/internal/document"
)

// schema.json is made here, of the types that files are read into.

func TestTheSchemaIsThatOfTheTypes(t *testing.T) {
	made := madeSchema()
	if os.Getenv("WEIR_UPDATE") != "" {
		require.NoError(t, os.WriteFile("schema.json", made, 0o644))
		return
	}
	if !bytes.Equal(made, Schema()) {
		t.Error("schema.json is older than file.go: WEIR_UPDATE=1 go test ./middleware/rules -run TheSchemaIs writes it")
	}
}

// madeSchema is the schema of a whole file, which stands by itself or below rate_limits.
func madeSchema() []byte {
	var defs definitions
	whole := defs.structSchema(reflect.TypeFor[file]())
	defs.add("whole", object{{"allOf", file{}.JSONConstraints()}})
	constraints := []map[string]any{{"$ref": "#/$defs/whole"}}
	inside := object{}
	for i := range whole {
		switch m := &whole[i]; m.name {
		case "properties":
			all := m.value.(object)
			for _, property := range all {
				inside = append(inside, member{property.name, object{{"$ref", "#/properties/" + property.name}}})
			}
			m.value = append(all, member{wrapper.Key, constrained(object{
				{"description", "The whole of it, as a part of a larger configuration."},
				{"type", "object"}, {"properties", inside}, {"additionalProperties", false},
			}, constraints)})
		case "required":
			*m = member{"anyOf", []object{{{"required", m.value}}, {{"required", []string{wrapper.Key}}}}}
		}
	}
	beside := append(slices.Sorted(maps.Keys(wrapper.Implied)), wrapper.Key)
	schema := append(object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"$id", "https://github.com/weirgo/weir/rules.schema.json"},
		{"title", "Weir rules"},
	}, whole...)
	return indent(append(schema,
		member{"if", object{{"required", []string{wrapper.Key}}}},
		member{"then", object{{"propertyNames", object{{"enum", beside}}}}},
		member{"else", object{{"allOf", constraints}}},
		member{"$defs", defs.list}))
}

// A schemaField is a field of a struct, as its tags describe it.
type schemaField struct {
	name, doc, fallback        string
	hasFallback, required      bool
	least, most, pattern, keys string
	typ                        reflect.Type
}

func schemaFields(t reflect.Type) (fields []schemaField) {
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("yaml"); name != "" {
			fallback, has := f.Tag.Lookup("default")
			fields = append(fields, schemaField{name, f.Tag.Get("doc"), fallback, has, f.Tag.Get("required") == "true",
				f.Tag.Get("min"), f.Tag.Get("max"), f.Tag.Get("pattern"), f.Tag.Get("keys"), f.Type})
		}
	}
	return fields
}

func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// isObject reports whether a t is read from a mapping.
func isObject(t reflect.Type) bool { return t.Kind() == reflect.Struct && len(schemaFields(t)) > 0 }

const (
	integerPattern  = `^-?(0|[1-9][0-9]*(_[0-9]+)*)$`
	positivePattern = `^[1-9][0-9]*(_[0-9]+)*$`
)

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
		panic(fmt.Sprintf("%s and %s are of one name", t, other))
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
	for _, f := range schemaFields(t) {
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
func (f *schemaField) bounded(schema object) object {
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
		n, err := document.ParseInteger(tag, 64)
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
				schema[i].value = positivePattern
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
func fallbackValue(f schemaField) any {
	switch t := f.typ; {
	case isText(t):
	case t.Kind() == reflect.Bool:
		return f.fallback == "true"
	case reflect.Zero(t).CanInt():
		if n, err := document.ParseInteger(f.fallback, t.Bits()); err == nil {
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
		panic("" + err.Error())
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

// How scalars are written.

// unburstPattern is that of limits with a burst by an algorithm that has none.
const unburstPattern = `\s([Ff]ixed|[Ss]liding)[-_].*\s[Bb]urst\s|\s[Bb]urst\s.*\s([Ff]ixed|[Ss]liding)[-_]`

// longPattern is that of more days than a period may have.
const longPattern = `^0*(36[7-9]|3[7-9][0-9]|[4-9][0-9]{2}|[1-9][0-9]{3,})d`

// periodPattern is how package limiter reads periods, for the schema, and calendarPattern those that
// are of a calendar in any case.
const calendarPattern = `week|month|year`

const periodPattern = `(micro|milli)?second|sec|minute|min|hour|day|us|ms|[smhd]|([0-9]+\.?[0-9]*(ns|us|µs|μs|ms|s|m|h|d)|\.[0-9]+(ns|us|µs|μs|ms|s|m|h))+`

func (limitText) JSONSchema() map[string]any {
	return map[string]any{"type": "string", "title": "limit", "not": map[string]any{"pattern": unburstPattern}, "pattern": "^\\s*0*[1-9][0-9_]*\\s*/\\s*(" + periodPattern + "|" + calendarPattern + ")(\\s.*)?$", "examples": []string{"100/1m", "10/s burst 20", "1000/h token_bucket", "10000/month Europe/Berlin"}}
}

func (period) JSONSchema() map[string]any {
	return map[string]any{"type": []string{"string", "integer"}, "title": "duration", "minimum": 1, "maximum": 366 * 24 * 60 * 60, "not": map[string]any{"type": "string", "pattern": longPattern}, "pattern": "^(" + periodPattern + "|[1-9][0-9_]*)$", "examples": []any{"60s", "1m", "24h", "30d", 60}}
}

func (window) JSONSchema() map[string]any {
	schema := period{}.JSONSchema()
	schema["pattern"] = "^(" + periodPattern + "|[1-9][0-9_]*|(day|" + calendarPattern + ")( .*)?)$"
	schema["examples"] = []any{"60s", "1m", "24h", "30d", 60, "month Europe/Berlin"}
	return schema
}

func (algorithm) JSONSchema() map[string]any {
	return map[string]any{"title": "algorithm", "anyOf": []any{
		map[string]any{"enum": algorithms},
		map[string]any{"type": "string", "pattern": "^(" + anyCase(algorithms) + ")$"},
	}}
}

func (outage) JSONSchema() map[string]any {
	return map[string]any{"enum": []string{"local", "open", "closed"}, "title": "local, open or closed"}
}

func (mode) JSONSchema() map[string]any {
	return map[string]any{"enum": shadows.words, "title": "enforce or shadow"}
}

func (ruleMode) JSONSchema() map[string]any {
	return map[string]any{"enum": ruleModes.words, "title": "enforce, shadow, off or deny"}
}

func (fields) JSONSchema() map[string]any {
	return map[string]any{"enum": families.words, "title": "both, legacy, draft or none"}
}

func (reset) JSONSchema() map[string]any {
	return map[string]any{"enum": resets.words, "title": "unix or delta"}
}

func (when) JSONSchema() map[string]any {
	return map[string]any{"enum": whens.words, "title": "before or after"}
}

func (answers) JSONSchema() map[string]any {
	return map[string]any{
		"anyOf": []any{
			map[string]any{"type": "integer", "minimum": 100, "maximum": 599},
			map[string]any{"type": "string", "pattern": "^!?[1-5]([0-9]{2}|xx)$"},
		},
		"title": "status or class", "examples": []any{401, "2xx", "!5xx"},
	}
}

func (strikes) JSONSchema() map[string]any {
	return map[string]any{"enum": strikeKind.words, "title": "refusals or outcomes"}
}

func (noKey) JSONSchema() map[string]any {
	return map[string]any{"enum": noKeys.words, "title": "share, skip, bad_request or unauthorized"}
}

func (percent) JSONSchema() map[string]any {
	return map[string]any{"type": "string", "pattern": "^([1-9][0-9]?%|off)$", "title": "percentage", "examples": []string{"80%", "off"}}
}

func (factor) JSONSchema() map[string]any {
	return map[string]any{"type": "number", "minimum": 1, "maximum": 1000, "title": "number"}
}

func (size) JSONSchema() map[string]any {
	return map[string]any{"type": []string{"string", "integer"}, "title": "size", "minimum": 1, "pattern": "^[1-9][0-9_]*([kK]?B|[MG]B|[KMG]iB)?$", "examples": []any{"1MiB", "500KB", 4096}}
}

func (network) JSONSchema() map[string]any {
	return map[string]any{"type": "string", "title": "network", "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$", "examples": []string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32"}}
}

func (limitFields) JSONSchema() map[string]any { return limitText{}.JSONSchema() }

func (cost) JSONSchema() map[string]any {
	return map[string]any{"type": []string{"integer", "string"}, "minimum": 1, "pattern": positivePattern, "title": "number"}
}

func (concurrency) JSONSchema() map[string]any {
	return map[string]any{"type": []string{"integer", "string"}, "minimum": 1, "pattern": positivePattern, "title": "number"}
}

func (soft) JSONSchema() map[string]any { return percent{}.JSONSchema() }

// What follows is what fields say of each other, as far as a schema can tell: what it refuses
// is a problem of check too, whatever the application's Options are. Mistakes that need more
// than one field's neighbors, or arithmetic, are check's alone.

// says is a schema. Each constraint has a description, for people who read the schema.
type says = map[string]any

// never refuses what one of these schemas is true of.
func never(why string, schemas ...says) says {
	return says{"description": why, "not": either(schemas...)}
}

// implied has a mapping that is like one schema be like another.
func implied(why string, condition, then says) says {
	return says{"description": why, "if": condition, "then": then}
}

func either(schemas ...says) says {
	if len(schemas) == 1 {
		return schemas[0]
	}
	return says{"anyOf": schemas}
}

// having is a mapping with all of the fields: of what is no mapping, required says nothing.
func having(fields ...string) says { return says{"type": "object", "required": fields} }

// havingAny is a mapping with one of the fields.
func havingAny(fields ...string) says {
	var each []says
	for _, f := range fields {
		each = append(each, having(f))
	}
	return either(each...)
}

// havingTwo is a mapping with two of the fields.
func havingTwo(fields ...string) says {
	var pairs []says
	for i, f := range fields {
		for _, other := range fields[i+1:] {
			pairs = append(pairs, having(f, other))
		}
	}
	return either(pairs...)
}

// with is a mapping with all of these fields, each like its schema.
func with(fields says) says {
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return says{"type": "object", "required": names, "properties": fields}
}

func oneOfWords(words ...string) says { return says{"enum": words} }

func like(pattern string) says { return says{"type": "string", "pattern": pattern} }

// isTrue is a mapping in which a field is true.
func isTrue(field string) says { return with(says{field: says{"enum": []bool{true}}}) }

// above is a number from n on; text such as 10_000 it does not know.
func above(n int64) says { return says{"type": "number", "exclusiveMinimum": n} }

// filled is a list that is not empty.
var filled = says{"type": []string{"array", "string"}, "minItems": 1}

// eachLike is a text, or a list of them.
func eachLike(pattern string) says {
	return says{"pattern": pattern, "items": says{"pattern": pattern}}
}

func (ruleList) JSONConstraints() []map[string]any {
	return []says{{"description": "A rule, or a list of some.", "type": []string{"object", "string", "array"}, "minItems": 1}}
}

const (
	routePattern  = `^([^/ a-z]+\s+)?/`                                                                // without a host
	choicePattern = `([A-Za-z0-9_-]+|(apikey|header|cookie):\s*[^|\s]+|(path|query):[^|]*[^|\s][^|]*)` // the application may call its own by any word
	keyPattern    = `^\s*` + choicePattern + `\s*(\|\s*` + choicePattern + `\s*)*$`
)

func (file) JSONConstraints() []map[string]any {
	unkeyed := never("These need a key: without one there is one counter for all.",
		says{"not": having("key"), "anyOf": []says{having("no_key"), having("escalate"), having("overrides")}})
	named := says{"required": []string{"name"}, "type": []string{"object", "array"}, "items": says{"required": []string{"name"}, "type": "object"}}
	on := says{"type": []string{"string", "object"}, "not": with(says{"mode": oneOfWords("off")})}
	return []says{
		{"properties": says{"global": unkeyed}},
		{"properties": says{"global": says{"items": unkeyed}}},
		{"properties": says{"endpoints": says{
			"description":       "A name is at most 128 characters of ASCII, so other endpoints need one of their own.",
			"patternProperties": says{"[^ -~]|^.{129}": named},
		}}},
		never("An endpoint for every request leaves nothing to default.", with(says{"default": says{}, "endpoints": with(says{"/*": on})})),
		{"properties": says{"refusal": never("It is for mode: deny: a limit knows by itself when to come back.", having("retry_after"))}},
	}
}

func (proxies) JSONConstraints() []map[string]any {
	return []says{
		never("An address is found in one way.", havingTwo("trusted", "forwarded", "header", "hops")),
		implied("It needs a way that says which header to read.", isTrue("unix_socket"), havingAny("trusted", "forwarded", "header", "hops")),
		{"description": "None is trusted over a unix socket alone.", "if": isTrue("unix_socket"),
			"else": says{"properties": says{"trusted": filled, "forwarded": filled}}},
	}
}

func (clientHeader) JSONConstraints() []map[string]any {
	return []says{
		never("It is a list that the client may have begun; use trusted, or forwarded.",
			with(says{"name": like("^(" + anyCase([]string{"x-forwarded-for", "forwarded"}) + ")$")})),
		{"properties": says{"cidrs": filled}},
	}
}

func (banned) JSONConstraints() []map[string]any {
	return []says{{"properties": says{"status": says{"enum": []any{403, 429, "403", "429"}}, "file": says{"minLength": 1}}}}
}

func (allowed) JSONConstraints() []map[string]any {
	return []says{{"properties": says{"routes": eachLike(routePattern), "file": says{"minLength": 1}}}}
}

func (overload) JSONConstraints() []map[string]any {
	return []says{
		{"properties": says{"exempt": filled, "priority": filled}},
		{"properties": says{"exempt": eachLike(routePattern), "priority": says{"uniqueItems": true}}},
	}
}

// algorithmNames are what a limit may call an algorithm, by the algorithm.
func algorithmNames() map[limiter.Algorithm][]string {
	names := map[limiter.Algorithm][]string{}
	for _, name := range algorithms {
		var a algorithm
		if a.UnmarshalText([]byte(name)) == nil {
			names[a.Algorithm] = append(names[a.Algorithm], name)
		}
	}
	return names
}

// inLimit is a limit in one piece that has one of these words behind the window.
func inLimit(words ...string) says {
	return like(`\s(` + anyCase(words) + `)(\s|$)`)
}

// anyCase is a pattern of these words in any case, with - or _ between their parts.
func anyCase(words []string) string {
	var pattern strings.Builder
	for _, r := range strings.Join(words, "|") {
		switch {
		case r == '_':
			pattern.WriteString("[-_]")
		case 'a' <= r && r <= 'z':
			pattern.WriteString("[" + strings.ToUpper(string(r)) + string(r) + "]")
		default:
			pattern.WriteRune(r)
		}
	}
	return pattern.String()
}

var waiting = algorithmNames()[limiter.LeakyBucket]

// queued is a limit whose requests wait.
func queued() says {
	return either(with(says{"limit": inLimit(waiting...)}), with(says{"algorithm": oneOfWords(waiting...)}))
}

func (limitFields) JSONConstraints() []map[string]any {
	var several, unburst []says
	names := algorithmNames()
	for a := limiter.TokenBucket; len(names[a]) > 0; a++ {
		others := slices.DeleteFunc(slices.Clone(algorithms), func(name string) bool { return slices.Contains(names[a], name) })
		several = append(several, with(says{"limit": inLimit(names[a]...), "algorithm": oneOfWords(others...)}))
		if a != limiter.TokenBucket && a != limiter.LeakyBucket {
			unburst = append(unburst, with(says{"burst": says{}, "algorithm": oneOfWords(names[a]...)}), with(says{"burst": says{}, "limit": inLimit(names[a]...)}))
		}
	}
	return []says{
		never("A limit is written in one way.", having("limit", "requests"), having("limit", "window"),
			having("limits", "limit"), having("limits", "requests"), having("limits", "window"), having("limits", "algorithm"), having("limits", "burst")),
		{"dependentRequired": says{"requests": []string{"window"}, "window": []string{"requests"}}},
		never("The algorithm is given once.", several...),
		never("The burst is given once.", with(says{"burst": says{}, "limit": inLimit("burst")})),
		never("Only buckets have a burst.", unburst...),
		never("A log remembers at most 10,000 requests.", with(says{"requests": above(10_000), "algorithm": oneOfWords(names[limiter.SlidingLog]...)})),
		{"properties": says{"limits": filled}},
		{"description": "There is a limit, or a concurrency, unless nothing is let through.",
			"anyOf": []says{havingAny("limit", "limits", "requests", "concurrency"), with(says{"mode": oneOfWords("deny")})}},
	}
}

func (concurrency) JSONConstraints() []map[string]any {
	return []says{
		having("max"),
		{"dependentRequired": says{"queue": []string{"max_wait"}, "max_wait": []string{"queue"}}},
		{"properties": says{"max": says{"minimum": 1, "maximum": 1_000_000_000}, "queue": says{"minimum": 1, "maximum": 10_000}}},
	}
}

func (r rule) JSONConstraints() []map[string]any {
	deny := with(says{"mode": oneOfWords("deny")})
	after := with(says{"when": oneOfWords("after")})
	settling := with(says{"cost": isTrue("settle")})
	queuedTier := with(says{"tiers": says{"not": says{"additionalProperties": says{"not": either(inLimit(waiting...), queued())}}}})
	return append(r.limitFields.JSONConstraints(),
		says{"properties": says{"key": filled}},
		says{"properties": says{"key": says{"uniqueItems": true}}},
		says{"properties": says{"key": eachLike(keyPattern)}},
		implied("Of a concurrency alone each request takes one place, and returns it when it ends.",
			says{"type": "object", "required": []string{"concurrency"}, "not": havingAny("limit", "limits", "requests", "window", "algorithm", "burst")},
			says{"not": havingAny("cost", "counts", "when")}),
		never("The requests of a leaky_bucket have waited when they are answered.",
			says{"allOf": []says{either(queued(), queuedTier), either(having("counts"), after)}}),
		implied("Nothing but counts and cost.settle is known only afterwards.", after, either(having("counts"), settling)),
		implied("What is settled was reserved, or is charged when it is known.",
			with(says{"cost": says{"type": "object", "required": []string{"settle"}, "properties": says{"settle": says{"enum": []bool{true}}}, "not": havingAny("units", "header")}}), after),
		implied("Outcomes are those that counts names.", with(says{"escalate": with(says{"of": oneOfWords("outcomes")})}), having("counts")),
		never("A key in overrides has one limit.",
			with(says{"overrides": says{"not": says{"additionalProperties": says{"not": havingAny("limits", "concurrency")}}}})),
		says{"if": deny, "then": says{"properties": says{"refusal": says{"properties": says{"status": says{"enum": []any{403, 429, 503, "403", "429", "503"}}}}}},
			"else": says{"properties": says{"refusal": never("It is for mode: deny: a limit knows by itself when to come back.", having("retry_after"))}}},
	)
}

func (cost) JSONConstraints() []map[string]any {
	return []says{
		never("A cost is either fixed or read from a header.", having("units", "header"), having("units", "per"), having("units", "missing"), having("units", "max")),
		says{"description": "It is fixed, or read from a header, or said later.",
			"anyOf": []says{having("units"), having("header"), {"allOf": []says{isTrue("settle"), {"not": havingAny("per", "missing", "max")}}}}},
	}
}

func (soft) JSONConstraints() []map[string]any { return []says{having("at")} }

func (headers) JSONConstraints() []map[string]any {
	return []says{never("These are about the legacy fields, which are not sent.",
		says{"allOf": []says{with(says{"send": oneOfWords("draft", "none")}), havingAny("limit", "reset")}})}
}

func (refusal) JSONConstraints() []map[string]any {
	text := says{"minLength": 1}
	return []says{{"properties": says{"type": text, "title": text, "message": text}}}
}

func (escalate) JSONConstraints() []map[string]any {
	return []says{never("A ban is at least a millisecond.", with(says{"ban": like(`^(0*[0-9]{1,3}(us|µs|μs)|us|microsecond|0*[0-9]{1,5}ns)$`)}))}
}
