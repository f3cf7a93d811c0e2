package rules_test

import (
	"encoding/json"
	"fmt"
	"math"
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
	Schema               string             `json:"$schema"`
	ID                   string             `json:"$id"`
	Title                string             `json:"title"`
	Description          string             `json:"description"`
	Default              any                `json:"default"`
	Examples             []any              `json:"examples"`
	Defs                 map[string]*schema `json:"$defs"`
	Ref                  string             `json:"$ref"`
	Type                 any                `json:"type"` // a name, or a list of some
	Enum                 []any              `json:"enum"`
	Pattern              string             `json:"pattern"`
	Minimum              *float64           `json:"minimum"`
	Maximum              *float64           `json:"maximum"`
	AnyOf                []*schema          `json:"anyOf"`
	If                   *schema            `json:"if"`
	Then                 *schema            `json:"then"`
	Else                 *schema            `json:"else"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties any                `json:"additionalProperties"` // false, or a schema
	PropertyNames        *schema            `json:"propertyNames"`
	Required             []string           `json:"required"`
	Items                *schema            `json:"items"`
	MinItems             int                `json:"minItems"`
}

// of is what Ref is of, or nil.
func (s *schema) of(t testing.TB) *schema {
	if s.Ref == "" {
		return nil
	}
	to := readSchema(t).Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
	require.NotNil(t, to, s.Ref)
	return to
}

// others is what properties that are not named have to satisfy: nil if none may be there.
func (s *schema) others(t testing.TB) *schema {
	if s.AdditionalProperties == nil {
		return &schema{}
	}
	if s.AdditionalProperties == false {
		return nil
	}
	text, err := json.Marshal(s.AdditionalProperties)
	require.NoError(t, err)
	made := &schema{}
	require.NoError(t, strictly(text, made))
	return made
}

func strictly(text []byte, into any) error {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// wrong is what a value does not satisfy, or "".
func (s *schema) wrong(t testing.TB, at string, v any) string {
	if s == nil {
		return ""
	}
	if w := s.of(t).wrong(t, at, v); w != "" {
		return w
	}
	var forms []string
	for _, form := range s.AnyOf {
		w := form.wrong(t, at, v)
		if forms = append(forms, w); w == "" {
			forms = nil
			break
		}
	}
	if forms != nil {
		return "(" + strings.Join(forms, " or ") + ")"
	}
	if s.If != nil {
		then := s.Then
		if s.If.wrong(t, at, v) != "" {
			then = s.Else
		}
		if w := then.wrong(t, at, v); w != "" {
			return w
		}
	}
	if kinds, ok := s.Type.([]any); ok && !slices.ContainsFunc(kinds, func(name any) bool { return isA(name.(string), v) }) {
		return fmt.Sprintf("%s: %v (%T) is not %v", at, v, v, s.Type)
	}
	if name, ok := s.Type.(string); ok && !isA(name, v) {
		return fmt.Sprintf("%s: %v (%T) is not %v", at, v, v, s.Type)
	}
	if s.Enum != nil && !slices.Contains(s.Enum, v) {
		return fmt.Sprintf("%s: %v is not one of %v", at, v, s.Enum)
	}
	switch v := v.(type) {
	case string:
		if !regexp.MustCompile(s.Pattern).MatchString(v) {
			return fmt.Sprintf("%s: %q does not match %s", at, v, s.Pattern)
		}
	case float64:
		if s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum {
			return fmt.Sprintf("%s: %v is out of range", at, v)
		}
	case []any:
		if len(v) < s.MinItems {
			return at + ": is empty"
		}
		for i, item := range v {
			if w := s.Items.wrong(t, fmt.Sprintf("%s[%d]", at, i), item); w != "" {
				return w
			}
		}
	case map[string]any:
		return s.wrongMapping(t, at, v)
	}
	return ""
}

func (s *schema) wrongMapping(t testing.TB, at string, v map[string]any) string {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return fmt.Sprintf("%s: %s is missing", at, name)
		}
	}
	for name, value := range v {
		property := s.Properties[name]
		if property == nil {
			property = s.others(t)
		}
		if property == nil {
			return fmt.Sprintf("%s: %s is not allowed", at, name)
		}
		if w := s.PropertyNames.wrong(t, at, name) + property.wrong(t, at+"."+name, value); w != "" {
			return w
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
	return s, strictly(rules.Schema(), s)
})

// requireSchema requires a file to be what the schema says. It is read as an editor would.
func requireSchema(t testing.TB, text string) {
	t.Helper()
	value, err := asEditorsRead(text)
	require.NoError(t, err)
	require.Empty(t, readSchema(t).wrong(t, "file", value), "of\n%s", text)
}

// asEditorsRead is a file as JSON has it.
func asEditorsRead(text string) (value any, _ error) {
	var raw any
	if err := yaml.Unmarshal([]byte(text), &raw); err != nil {
		return nil, err
	}
	plain, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(plain, &value)
	return value, err
}

func TestTheSchemaIsOneThatEditorsRead(t *testing.T) {
	require.True(t, json.Valid(rules.Schema()))
	s := readSchema(t)
	require.Equal(t, "https://json-schema.org/draft/2020-12/schema", s.Schema)
	require.True(t, strings.HasPrefix(s.ID, "https://"), s.ID)
	require.Equal(t, rules.Schema(), rules.Schema())
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
		assert.NotEmpty(t, s.wrong(t, "file", value), text)
		_, err := rules.Parse([]byte(text), rules.Options{})
		assert.Error(t, err, "and so does Parse: %s", text)
	}
}
