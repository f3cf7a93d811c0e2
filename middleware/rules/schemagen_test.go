package rules

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/yamlfile"
)

// schema.json is made here, of the types that files are read into. It says which fields there are
// and how each is written; what fields say of each other is check's alone.

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

// says is a schema, or a part of one.
type says = map[string]any

// madeSchema is the schema of a whole file, which stands by itself or below rate_limits.
func madeSchema() []byte {
	defs := says{}
	whole := structSchema(defs, reflect.TypeFor[file]())
	whole["properties"].(says)["global"].(says)["anyOf"] = oneOrMore(keyed)
	inside := says{"type": "object", "properties": whole["properties"], "additionalProperties": false}
	outside := says{"type": "object", "additionalProperties": false, "required": []string{wrapper}, "properties": says{
		wrapper:   says{"$ref": "#/$defs/inside", "description": "The whole of it, as a part of a larger configuration."},
		"version": whole["properties"].(says)["version"],
	}}
	defs["whole"], defs["inside"] = whole, inside
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(says{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://raw.githubusercontent.com/weirgo/weir/main/middleware/rules/schema.json", "title": "Weir rules",
		"if": says{"required": []string{wrapper}}, "then": outside, "else": says{"$ref": "#/$defs/whole"}, "$defs": defs,
	})
	if err != nil {
		panic(err)
	}
	return out.Bytes()
}

func structSchema(defs says, t reflect.Type) says {
	properties, required := says{}, []string{}
	for _, f := range yamlfile.FieldsOf(t) {
		schema := schemaOf(defs, f, f.Type)
		schema["description"] = f.Tag.Get("doc")
		if fallback, ok := f.Tag.Lookup("default"); ok {
			schema["default"] = fallbackValue(f.Type, fallback)
		}
		properties[f.Name] = schema
		if f.Required {
			required = append(required, f.Name)
		}
	}
	return says{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// keyed is a rule in global, which names its key or denies.
var keyed = says{"$ref": "#/$defs/rule", "type": "object", "anyOf": []says{
	{"required": []string{"key"}},
	{"required": []string{"mode"}, "properties": says{"mode": says{"enum": []string{"deny"}}}},
}}

func oneOrMore(element says) []says {
	return []says{element, {"type": "array", "items": element}}
}

// schemaOf is what can be written in a field, or in what is in it, of a t.
func schemaOf(defs says, f yamlfile.Field, t reflect.Type) says {
	switch {
	case t.Kind() == reflect.Pointer:
		return schemaOf(defs, f, t.Elem())
	case len(f.Words) > 0:
		var words []any
		for _, word := range f.Words {
			if is, err := strconv.ParseBool(word); err == nil {
				words = append(words, is)
			} else {
				words = append(words, word)
			}
		}
		return says{"enum": words}
	case scalars[t.Name()] != nil && yamlfile.IsText(t):
		return maps.Clone(scalars[t.Name()])
	case t == reflect.TypeFor[client]():
		return says{"anyOf": []says{scalars["network"], {"type": "object",
			"propertyNames": says{"pattern": scalars["network"]["pattern"]}, "additionalProperties": structSchema(defs, reflect.TypeFor[dated]())}}}
	case yamlfile.IsObject(t):
		if defs[t.Name()] == nil {
			defs[t.Name()] = says{} // for what is made of itself
			schema := structSchema(defs, t)
			if short := yamlfile.ShortOf(t); short != nil {
				schema = says{"anyOf": []says{schemaOf(defs, *short, short.Type), schema}}
			}
			defs[t.Name()] = schema
		}
		return says{"$ref": "#/$defs/" + t.Name()}
	}
	switch t.Kind() {
	case reflect.Map:
		schema := says{"type": "object", "additionalProperties": schemaOf(defs, yamlfile.Field{}, t.Elem())}
		if keys := f.Tag.Get("keys"); keys != "" {
			schema["propertyNames"] = says{"pattern": keys}
		}
		return schema
	case reflect.Slice:
		either := oneOrMore(schemaOf(defs, f, t.Elem()))
		if f.Tag.Get("min") != "" {
			either[1]["minItems"] = 1
		}
		return says{"anyOf": either}
	case reflect.Bool:
		return says{"type": "boolean"}
	case reflect.String:
		schema := says{"type": "string"}
		if pattern := f.Tag.Get("pattern"); pattern != "" {
			schema["pattern"] = pattern
		}
		return schema
	}
	schema := says{"type": []string{"integer", "string"}, "pattern": `^-?(0|[1-9][0-9]*(_[0-9]+)*)$`} // 10_000 is a string to a parser of YAML 1.2
	for name, tag := range map[string]string{"minimum": f.Tag.Get("min"), "maximum": f.Tag.Get("max")} {
		if n, err := yamlfile.ParseInteger(tag); err == nil {
			schema[name] = n
			schema["pattern"] = `^[1-9][0-9]*(_[0-9]+)*$`
		}
	}
	return schema
}

// fallbackValue is a default as a value of its type, where that is not text.
func fallbackValue(t reflect.Type, fallback string) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch n, err := yamlfile.ParseInteger(fallback); {
	case t.Kind() == reflect.Bool:
		return fallback == "true"
	case t.Kind() == reflect.Int64 && err == nil:
		return n
	}
	return fallback
}

// periodPattern is how package limiter reads periods.
const periodPattern = `(micro|milli)?second|sec|minute|min|hour|day|week|us|ms|[smhd]|([0-9]+\.?[0-9]*(ns|us|µs|μs|ms|s|m|h|d)|\.[0-9]+(ns|us|µs|μs|ms|s|m|h))+`

// anyCase is a pattern of these words in any case, with - or _ between their parts.
func anyCase(words []string) string {
	return regexp.MustCompile(`[a-z_]`).ReplaceAllStringFunc(strings.Join(words, "|"), func(c string) string {
		return "[" + strings.Replace(strings.ToUpper(c), "_", "-", 1) + c + "]"
	})
}

// scalars are how types are written that read themselves, by their names.
var scalars = map[string]says{
	"limitText": {"type": "string", "title": "limit", "pattern": "^\\s*0*[1-9][0-9_]*(\\s*/\\s*(" + periodPattern + ")|\\s+(daily|weekly|monthly|yearly))(\\s.*)?$",
		"examples": []string{"100/1m", "10/s burst 20", "1000/h token_bucket", "10000 monthly Europe/Berlin"}},
	"period": {"type": []string{"string", "integer"}, "title": "duration", "minimum": 1, "maximum": 366 * 24 * 60 * 60, "pattern": "^(" + periodPattern + "|[1-9][0-9_]*)$",
		"examples": []any{"60s", "1m", "24h", "30d", 60}},
	"stopAbove": {"type": []string{"string", "integer"}, "title": "duration", "minimum": 1, "maximum": 366 * 24 * 60 * 60, "pattern": "^(off|" + periodPattern + "|[1-9][0-9_]*)$",
		"examples": []string{"1m", "off"}},
	"window": {"type": []string{"string", "integer"}, "title": "duration", "minimum": 1, "maximum": 366 * 24 * 60 * 60, "pattern": "^(" + periodPattern + "|[1-9][0-9_]*|(daily|weekly|monthly|yearly)( .*)?)$",
		"examples": []any{"60s", "1m", "24h", "30d", 60, "monthly Europe/Berlin"}},
	"algorithm": {"title": "algorithm", "anyOf": []any{says{"enum": algorithms}, says{"type": "string", "pattern": "^(" + anyCase(algorithms) + ")$"}}},
	"answers": {"title": "status or class", "anyOf": []any{says{"type": "integer", "minimum": 100, "maximum": 599}, says{"type": "string", "pattern": "^!?[1-5]([0-9]{2}|xx)$"}},
		"examples": []any{401, "2xx", "!5xx"}},
	"percent":    {"type": "string", "pattern": "^([1-9][0-9]?%|off)$", "title": "percentage", "examples": []string{"80%", "off"}},
	"factor":     {"type": "number", "minimum": 1, "maximum": 1000, "title": "number"},
	"weight":     {"type": "number", "minimum": 0, "maximum": 1_000_000, "title": "number"},
	"date":       {"type": "string", "title": "date or time", "pattern": "^[2-9][0-9]{3}-[01][0-9]-[0-3][0-9](T[0-9:.]+(Z|[+-][0-9:]+))?$", "examples": []string{"2026-12-24", "2026-12-24T18:00:00+01:00"}},
	"size":       {"type": []string{"string", "integer"}, "title": "size", "minimum": 1, "pattern": "^[1-9][0-9_]*([kK]?B|[MG]B|[KMG]iB)?$", "examples": []any{"1MiB", "500KB", 4096}},
	"network":    {"type": "string", "title": "network", "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$", "examples": []string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32"}},
	"mcpVersion": {"type": "string", "title": "date", "pattern": "^[2-9][0-9]{3}-[01][0-9]-[0-3][0-9](T00:00:00Z)?$", "examples": []string{"2026-07-28"}},
}
