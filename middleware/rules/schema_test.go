package rules_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/middleware/rules"
)

// A schema is the part of JSON Schema that Schema uses. What it does not know is refused.
type schema struct {
	Schema               string            `json:"$schema"`
	ID                   string            `json:"$id"`
	Title                string            `json:"title"`
	Description          string            `json:"description"`
	Default              any               `json:"default"`
	Examples             []any             `json:"examples"`
	Type                 names             `json:"type"`
	Enum                 []any             `json:"enum"`
	Pattern              string            `json:"pattern"`
	Minimum              *float64          `json:"minimum"`
	Maximum              *float64          `json:"maximum"`
	AnyOf                []schema          `json:"anyOf"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties *orFalse          `json:"additionalProperties"`
	Required             []string          `json:"required"`
	Items                *schema           `json:"items"`
	Ref                  string            `json:"$ref"`
	PropertyNames        *schema           `json:"propertyNames"`

	root *schema // that a Ref begins at
}

// of is s, or what it refers to: a property of root.
func (s *schema) of(root *schema) *schema {
	name, isRef := strings.CutPrefix(s.Ref, "#/properties/")
	if !isRef {
		return s
	}
	to := root.Properties[name]
	return &to
}

// names are one, or a list.
type names []string

func (n *names) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		*n = names{""}
		return json.Unmarshal(text, &(*n)[0])
	}
	return json.Unmarshal(text, (*[]string)(n))
}

// orFalse is a schema, or nil for the one that nothing satisfies.
type orFalse struct{ *schema }

func (o *orFalse) UnmarshalJSON(text []byte) error {
	if string(text) == "false" {
		return nil
	}
	o.schema = &schema{}
	return strictly(text, o.schema)
}

func strictly(text []byte, into any) error {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// within says where refs begin, in all of s.
func (s *schema) within(root *schema) {
	s.root = root
	for name, p := range s.Properties {
		p.within(root)
		s.Properties[name] = p
	}
	for i := range s.AnyOf {
		s.AnyOf[i].within(root)
	}
	if s.Items != nil {
		s.Items.within(root)
	}
	if s.PropertyNames != nil {
		s.PropertyNames.within(root)
	}
	if a := s.AdditionalProperties; a != nil && a.schema != nil {
		a.schema.within(root)
	}
}

// wrong is what a value does not satisfy, or "".
func (s *schema) wrong(at string, v any) string {
	s = s.of(s.root)
	if len(s.AnyOf) > 0 {
		var all []string
		for i := range s.AnyOf {
			w := s.AnyOf[i].wrong(at, v)
			if w == "" {
				all = nil
				break
			}
			all = append(all, w)
		}
		if all != nil {
			return "(" + strings.Join(all, " or ") + ")"
		}
	}
	if len(s.Type) > 0 && !slices.ContainsFunc(s.Type, func(name string) bool { return isA(name, v) }) {
		return fmt.Sprintf("%s: %v (%T) is not %v", at, v, v, s.Type)
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return reflect.DeepEqual(e, v) }) {
		return fmt.Sprintf("%s: %v is not one of %v", at, v, s.Enum)
	}
	switch v := v.(type) {
	case string:
		if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
			return fmt.Sprintf("%s: %q does not match %s", at, v, s.Pattern)
		}
	case float64:
		if s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum {
			return fmt.Sprintf("%s: %v is out of range", at, v)
		}
	case []any:
		for i, item := range v {
			if s.Items != nil {
				if w := s.Items.wrong(fmt.Sprintf("%s[%d]", at, i), item); w != "" {
					return w
				}
			}
		}
	case map[string]any:
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				return fmt.Sprintf("%s: %s is missing", at, name)
			}
		}
		for name, value := range v {
			if s.PropertyNames != nil {
				if w := s.PropertyNames.wrong(at, name); w != "" {
					return w
				}
			}
			property, known := s.Properties[name]
			if !known {
				if s.AdditionalProperties == nil {
					continue
				}
				if s.AdditionalProperties.schema == nil {
					return fmt.Sprintf("%s: %s is not allowed", at, name)
				}
				property = *s.AdditionalProperties.schema
			}
			if w := property.wrong(at+"."+name, value); w != "" {
				return w
			}
		}
	}
	return ""
}

func isA(name string, v any) bool {
	switch v := v.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case float64:
		return name == "number" || name == "integer" && v == math.Trunc(v)
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return false
}

func readSchema(t testing.TB) *schema {
	t.Helper()
	s, err := readOnce()
	require.NoError(t, err)
	return s
}

var readOnce = sync.OnceValues(func() (*schema, error) {
	s := &schema{}
	err := strictly(rules.Schema(), s)
	s.within(s)
	return s, err
})

// requireSchema requires a file to be what the schema says. It is read as an editor would.
func requireSchema(t testing.TB, text string) {
	t.Helper()
	var raw, value any
	require.NoError(t, yaml.Unmarshal([]byte(text), &raw))
	plain, err := json.Marshal(raw)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(plain, &value))
	require.Empty(t, readSchema(t).wrong("file", value), "of\n%s", text)
}

func TestTheSchemaIsOneThatEditorsRead(t *testing.T) {
	require.True(t, json.Valid(rules.Schema()))
	s := readSchema(t)
	require.Equal(t, "https://json-schema.org/draft/2020-12/schema", s.Schema)
	require.True(t, strings.HasPrefix(s.ID, "https://"), s.ID)
	require.Equal(t, names{"object"}, s.Type)
	require.Equal(t, []string{"version"}, s.AnyOf[0].Required)
	require.Equal(t, []string{"rate_limits"}, s.AnyOf[1].Required, "or a part of a larger file, which has no version")
	require.Equal(t, rules.Schema(), rules.Schema())
}

func TestTheSampleSatisfiesTheSchema(t *testing.T) {
	requireSchema(t, string(sample(t)))
	text, err := os.ReadFile("../../_examples/rules/limits.yaml")
	require.NoError(t, err)
	requireSchema(t, string(text))
}

// An editor tells of most mistakes by the schema alone. The others are about what two values are
// to each other, such as a name that stands twice, or about what is in no schema: routes, keys.
func TestTheSchemaRefusesMostBrokenFiles(t *testing.T) {
	s, refused, all := readSchema(t), 0, 0
	for _, broken := range brokenFiles {
		var raw, value any
		if yaml.Unmarshal([]byte(broken.text), &raw) != nil {
			continue // which an editor tells without a schema
		}
		plain, err := json.Marshal(raw)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(plain, &value))
		if all++; s.wrong("file", value) != "" {
			refused++
		}
	}
	require.GreaterOrEqual(t, refused, 64, "of %d", all)
}

// Mistakes that an editor can tell, it tells.
func TestTheSchemaRefusesWhatAnEditorCanTell(t *testing.T) {
	s := readSchema(t)
	for _, text := range []string{
		`{}`, `[]`, `{"version": true}`, `{"version": 1, "colour": "green"}`, `{"version": 1, "default": 5}`,
		`{"version": 1, "default": {"limit": "3/s", "burts": 5}}`, `{"version": 1, "default": {"limit": "3/s", "algorithm": "magic"}}`,
		`{"version": 1, "soft": "100%"}`, `{"version": 1, "soft": {"at": 80}}`, `{"version": 1, "tiers": []}`,
		`{"version": 1, "ban": {"keys": [5]}}`, `{"version": 1, "proxies": {"header": {"cidrs": "10.0.0.0/8"}}}`,
		`{"version": 1, "default": {"requests": 1.5, "window": "1s"}}`, `{"version": 1, "default": {"requests": "010", "window": "1s"}}`,
		`{"version": 1, "endpoints": {"GET /x": {"escalate": {"after": 3}}}}`, `{"version": 1, "default": {"cost": 0}}`,
		`{"version": 1, "mode": "dark"}`, `{"version": 1, "default": {"limit": null}}`,
	} {
		var value any
		require.NoError(t, json.Unmarshal([]byte(text), &value))
		assert.NotEmpty(t, s.wrong("file", value), text)
		_, err := rules.Parse([]byte(text), rules.Options{})
		assert.Error(t, err, "and so does Parse: %s", text)
	}
}

// Every field of the schema is one that files are read by, and all that it lists or gives
// as an example can be written there.
func TestTheSchemaKnowsNothingThatTheDecoderDoesNot(t *testing.T) {
	fields := 0
	var walk func(s schema, field string, wrap func(value string) string)
	walk = func(s schema, field string, wrap func(string) string) {
		for _, value := range append(slices.Clone(s.Enum), s.Examples...) {
			plain, err := json.Marshal(value)
			require.NoError(t, err)
			for _, p := range problemsAt(t, wrap(string(plain)), field) {
				t.Errorf("%s is %s, which the schema says it can: %s", field, plain, p)
			}
		}
		for _, form := range s.AnyOf {
			walk(form, field, wrap)
		}
		if s.Items != nil {
			walk(*s.Items, field+".0", func(v string) string { return wrap("[" + v + "]") })
		}
		if a := s.AdditionalProperties; a != nil && a.schema != nil {
			walk(*a.schema, field+`."GET /any"`, func(v string) string { return wrap(`{"GET /any": ` + v + `}`) })
		}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			fields++
			inside := strings.TrimPrefix(field+"."+name, ".")
			into := func(v string) string { return wrap(fmt.Sprintf(`{%q: %s}`, name, v)) }
			_, err := rules.Parse([]byte(into("null")), rules.Options{})
			for _, p := range problemsOf(t, err) {
				require.NotContains(t, p, "unknown field", "%s", into("null"))
			}
			walk(s.Properties[name], inside, into)
		}
	}
	walk(*readSchema(t), "", func(v string) string { return v })
	require.Greater(t, fields, 100)
}

// problemsAt are those with one field itself, however it was to be written.
func problemsAt(t testing.TB, text, field string) (problems []string) {
	t.Helper()
	_, err := rules.Parse([]byte(text), rules.Options{})
	if err == nil {
		return nil
	}
	for _, p := range problemsOf(t, err) {
		if _, rest, _ := strings.Cut(p, " "); strings.HasPrefix(rest, field+": ") && strings.Contains(rest, " is not ") {
			problems = append(problems, p)
		}
	}
	return problems
}
