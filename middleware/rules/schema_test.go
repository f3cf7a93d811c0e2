package rules_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
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

	"github.com/weirgo/weir/internal/race"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// A schema is the part of JSON Schema that Schema uses. What it does not know is refused.
type schema struct {
	Schema               string              `json:"$schema"`
	ID                   string              `json:"$id"`
	Title                string              `json:"title"`
	Description          string              `json:"description"`
	Default              any                 `json:"default"`
	Examples             []any               `json:"examples"`
	Defs                 map[string]*schema  `json:"$defs"`
	Ref                  string              `json:"$ref"`
	Type                 names               `json:"type"`
	Enum                 []any               `json:"enum"`
	Pattern              *pattern            `json:"pattern"`
	MinLength            int                 `json:"minLength"`
	Minimum              *float64            `json:"minimum"`
	ExclusiveMinimum     *float64            `json:"exclusiveMinimum"`
	Maximum              *float64            `json:"maximum"`
	AnyOf                []*schema           `json:"anyOf"`
	AllOf                []*schema           `json:"allOf"`
	Not                  *schema             `json:"not"`
	If                   *schema             `json:"if"`
	Then                 *schema             `json:"then"`
	Else                 *schema             `json:"else"`
	Properties           map[string]*schema  `json:"properties"`
	PatternProperties    map[string]*schema  `json:"patternProperties"`
	AdditionalProperties *orFalse            `json:"additionalProperties"`
	PropertyNames        *schema             `json:"propertyNames"`
	Required             []string            `json:"required"`
	DependentRequired    map[string][]string `json:"dependentRequired"`
	Items                *schema             `json:"items"`
	MinItems             int                 `json:"minItems"`
	UniqueItems          bool                `json:"uniqueItems"`

	to *schema // what Ref is of
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

type pattern struct{ *regexp.Regexp }

func (p *pattern) UnmarshalText(text []byte) (err error) {
	p.Regexp, err = regexp.Compile(string(text))
	return err
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

// resolve finds what refs are of, in all of s.
func (s *schema) resolve(root *schema) error {
	if s == nil {
		return nil
	}
	if s.Ref != "" {
		if s.to = root.at(s.Ref); s.to == nil {
			return fmt.Errorf("there is no %s", s.Ref)
		}
	}
	all := slices.Concat(s.AnyOf, s.AllOf, []*schema{s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.Items})
	for _, inside := range []map[string]*schema{s.Defs, s.Properties, s.PatternProperties} {
		all = slices.AppendSeq(all, maps.Values(inside))
	}
	if a := s.AdditionalProperties; a != nil {
		all = append(all, a.schema)
	}
	for _, inside := range all {
		if err := inside.resolve(root); err != nil {
			return err
		}
	}
	return nil
}

func (s *schema) at(ref string) *schema {
	if name, ok := strings.CutPrefix(ref, "#/$defs/"); ok {
		return s.Defs[name]
	}
	name, _ := strings.CutPrefix(ref, "#/properties/")
	return s.Properties[name]
}

// wrong is what a value does not satisfy, or "".
func (s *schema) wrong(at string, v any) string {
	if s == nil {
		return ""
	}
	if w := s.to.wrong(at, v); w != "" {
		return w
	}
	if len(s.AnyOf) > 0 {
		var all []string
		for _, form := range s.AnyOf {
			w := form.wrong(at, v)
			if w == "" {
				all = nil
				break
			}
			all = append(all, w)
		}
		if all != nil {
			return "(" + strings.Join(all, " or ") + ") " + s.Description
		}
	}
	for _, part := range s.AllOf {
		if w := part.wrong(at, v); w != "" {
			return w
		}
	}
	if s.Not != nil && s.Not.wrong(at, v) == "" {
		return fmt.Sprintf("%s: %v is what it must not be: %s", at, v, s.Description)
	}
	if s.If != nil {
		then := s.Then
		if s.If.wrong(at, v) != "" {
			then = s.Else
		}
		if w := then.wrong(at, v); w != "" {
			return w + " " + s.Description
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
		if s.Pattern != nil && !s.Pattern.MatchString(v) {
			return fmt.Sprintf("%s: %q does not match %s", at, v, s.Pattern)
		}
		if len(v) < s.MinLength {
			return fmt.Sprintf("%s: %q is too short", at, v)
		}
	case float64:
		if s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum || s.ExclusiveMinimum != nil && v <= *s.ExclusiveMinimum {
			return fmt.Sprintf("%s: %v is out of range", at, v)
		}
	case []any:
		return s.wrongList(at, v)
	case map[string]any:
		return s.wrongMapping(at, v)
	}
	return ""
}

func (s *schema) wrongList(at string, v []any) string {
	if len(v) < s.MinItems {
		return at + ": has too few items"
	}
	for i, item := range v {
		if s.UniqueItems && slices.ContainsFunc(v[:i], func(other any) bool { return reflect.DeepEqual(item, other) }) {
			return fmt.Sprintf("%s[%d]: %v is there twice", at, i, item)
		}
		if w := s.Items.wrong(fmt.Sprintf("%s[%d]", at, i), item); w != "" {
			return w
		}
	}
	return ""
}

func (s *schema) wrongMapping(at string, v map[string]any) string {
	required := slices.Clone(s.Required)
	for name, others := range s.DependentRequired {
		if _, ok := v[name]; ok {
			required = append(required, others...)
		}
	}
	for _, name := range required {
		if _, ok := v[name]; !ok {
			return fmt.Sprintf("%s: %s is missing", at, name)
		}
	}
	for name, value := range v {
		if w := s.PropertyNames.wrong(at, name); w != "" {
			return w
		}
		property, known := s.Properties[name]
		w := property.wrong(at+"."+name, value)
		for p, inside := range s.PatternProperties {
			if regexp.MustCompile(p).MatchString(name) {
				known = true
				w += inside.wrong(at+"."+name, value)
			}
		}
		switch a := s.AdditionalProperties; {
		case known, a == nil:
		case a.schema == nil:
			return fmt.Sprintf("%s: %s is not allowed", at, name)
		default:
			w += a.wrong(at+"."+name, value)
		}
		if w != "" {
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
	return s, errors.Join(strictly(rules.Schema(), s), s.resolve(s))
})

// requireSchema requires a file to be what the schema says. It is read as an editor would.
func requireSchema(t testing.TB, text string) {
	t.Helper()
	value, err := asEditorsRead(text)
	require.NoError(t, err)
	require.Empty(t, readSchema(t).wrong("file", value), "of\n%s", text)
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

// beyondSchema are the broken files that a schema cannot know of, each with the reason.
var beyondSchema = map[string]string{
	"nothing but a version":                                              "the application may have rules of its own",
	"more requests than can be, in a limit":                              "how many can be depends on the window",
	"a window of digits that may be octal":                               "a parser has made a number of it, and how it was written is gone",
	"a burst that takes years to come back":                              "the burst is compared with the limit",
	"a key there is not":                                                 "the application may have a key of that name",
	"a key without its name":                                             "the application may have a key of that name",
	"an escalation that ends below its beginning":                        "two durations are compared",
	"an escalation that bans everybody":                                  "the application may have keys of those names, which tell clients apart",
	"two rules of one name":                                              "names are compared all over the file",
	"a tier that no request is in":                                       "names are compared all over the file",
	"endpoints with quotes and angle brackets, which nothing matches":    "expressions in braces may have both",
	"keys of an API with the name of their header, which no request has": "headers' names are compared all over the file",
	"the whole name of a field in place of a prefix":                     "its parts are compared",
	"limits of keys beside nothing but a concurrency":                    "two fields are compared",
	"a name that another rule's second window has":                       "names are compared all over the file",
	"a parameter that the endpoint does not have":                        "a key is compared with a pattern",
	"endpoints that are the same but for how the host is spelled":        "patterns are compared",
	"endpoints that are the same":                                        "patterns are compared",
	"an endpoint that is allowed":                                        "patterns are compared",
	"a fixed cost that the limit never allows":                           "the cost is compared with the limit",
	"bans of keys that no request has":                                   "the application may have keys of those kinds",
	"a file of bans in rules that are in none":                           "it is about where the text is",
	"a merge key": "a parser has merged it",
}

// An editor tells of all other mistakes by the schema alone.
func TestTheSchemaRefusesBrokenFiles(t *testing.T) {
	s, beyond := readSchema(t), maps.Clone(beyondSchema)
	for _, broken := range brokenFiles {
		value, err := asEditorsRead(broken.text)
		if err != nil {
			continue // which an editor tells without a schema
		}
		if why, ok := beyond[broken.name]; ok {
			delete(beyond, broken.name)
			assert.Empty(t, s.wrong("file", value), "it can tell %q, though %s", broken.name, why)
			continue
		}
		assert.NotEmpty(t, s.wrong("file", value), "%s:\n%s", broken.name, broken.text)
	}
	assert.Empty(t, beyond, "there are no such files")
}

// Files are made up of parts, most of them right by themselves. What the schema refuses, Parse
// refuses too, with whatever the application has.
func TestTheSchemaRefusesNoFileThatIsRight(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			right, n := 0, race.Draws(2_500, 250)
			for range n {
				value := madeUp(random)
				text, err := json.Marshal(value)
				require.NoError(t, err)
				if _, err := rules.Parse(text, rules.Options{Config: middleware.Config{Rules: []middleware.Rule{ownRule}}}); err != nil {
					continue
				}
				right++
				requireSchema(t, string(text))
			}
			require.Greater(t, right, n/20, "or this test tries too little")
		})
	}
}

var ownRule = middleware.Rule{Name: "the application's own", Limit: limiter.PerSecond(1)}

// madeUp is a file at random.
func madeUp(random *rand.Rand) map[string]any {
	pick := func(of ...any) any { return of[random.IntN(len(of))] }
	some := func(chance int, parts map[string]func() any) map[string]any {
		made := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			if random.IntN(100) < chance {
				made[name] = parts[name]()
			}
		}
		return made
	}
	of := func(values ...any) func() any { return func() any { return pick(values...) } }
	limit := of("100/1m", "10/s burst 20", "5/10m sliding_log", "5/m leaky-bucket", "1000/h GCRA", "7/10s fixed_window", "7/s sliding-window burst 9",
		"9/day Fixed-Window burst 2", "3/s burst 4 token_bucket", "100/30d sliding_window_counter", "1/us", "5/s\tburst\t6", "1000/month", "10/day UTC", "10/week from monday", "9/month burst 5", "")
	period := of("60s", 60, "1m", "30d", "366d", "367d", "1h30m", "500us", "1000us", "999µs", "1ms", "millisecond", "day", 31622400, 31622401, "3_600", "0d5h", "012d", "1d", "month", "day UTC", "year")
	number := of(1, 2, 5, 10, 100, "10_000", 10001, 0, "0", "7")
	limits := func() map[string]any {
		made := some(7, map[string]func() any{
			"limits": of([]any{"10/s", "1000/h"}, "10/s", []any{}, nil), "algorithm": of("gcra", "fixed_window", "Sliding-Log", "sliding_window", "leaky_bucket"), "burst": number,
			"concurrency": func() any {
				return pick(5, "5", some(60, map[string]func() any{"max": number, "queue": number, "max_wait": period}))
			},
		})
		switch random.IntN(8) {
		case 0:
		case 1, 2:
			made["requests"], made["window"] = number(), period()
		default:
			made["limit"] = limit()
		}
		return made
	}
	key := of("ip", "user|ip", "header:X-Tenant", "header: X-Tenant | ip", []any{"ip", "route"}, []any{"method", "method"}, "global", "path:id", "query:a b", "cookie:session", "apikey:X-Key", "", []any{}, "tenant")
	refused := func() any {
		return some(30, map[string]func() any{"status": of(403, 429, 503, 404, "403"), "type": of("about:blank", ""), "title": of("No", ""), "message": of("Wait {retry_after}.", ""), "retry_after": period})
	}
	var rule func() any
	one := func() any {
		if random.IntN(4) == 0 {
			return limit()
		}
		made := limits()
		maps.Copy(made, some(6, map[string]func() any{
			"key": key, "no_key": of("share", "skip"), "cost": func() any {
				return pick(1, 5, "2", some(25, map[string]func() any{"units": number, "header": of("Content-Length", "X-Cost"), "per": of("1MiB", 500), "missing": number, "max": number, "settle": of(true, false)}))
			},
			"counts": of("2xx", []any{401, "!5xx"}, 401, []any{}), "when": of("before", "after"), "on_outage": of("open", "closed", "local"), "mode": of("enforce", "shadow", "off", "deny"),
			"refusal": refused, "soft": of("80%", "off", map[string]any{"at": "50%"}, map[string]any{}),
			"tiers": func() any { return map[string]any{"gold": pick(limit(), limits()), "free": limit()} },
			"overrides": func() any {
				return map[string]any{fmt.Sprint(pick("user:42", "192.0.2.7", "2rhsDB77NOyjo59J_5XpDg")): pick(limit(), limits())}
			},
			"escalate": func() any {
				made := some(20, map[string]func() any{"factor": of(1, 2.5), "max": period, "of": of("refusals", "outcomes")})
				made["after"], made["within"], made["ban"] = number(), period(), period()
				return made
			},
			"name": func() any { return fmt.Sprint("rule ", random.IntN(1_000_000)) },
		}))
		return made
	}
	rule = func() any {
		if random.IntN(10) == 0 {
			return []any{one(), one()}[:random.IntN(3)]
		}
		return one()
	}
	networks := of("10.0.0.0/8", []any{"192.0.2.7", "2001:db8::/32"}, []any{}, "localhost", nil)
	file := some(20, map[string]func() any{
		"mode": of("enforce", "shadow"), "global": rule, "default": rule, "soft": of("80%", "off"), "refusal": refused,
		"endpoints": func() any {
			return map[string]any{fmt.Sprint(pick("GET /a", "/*", "/süß", "POST *.example.org/x", "/b/{id}")): rule()}
		},
		"tiers": func() any { return map[string]any{"gold": rule(), "free": rule()} },
		"proxies": func() any {
			return some(30, map[string]func() any{"trusted": networks, "forwarded": networks, "hops": number, "unix_socket": of(true, false), "ipv6_prefix": of(64, 32),
				"header": func() any { return map[string]any{"name": pick("X-Real-IP", "x-forwarded-for"), "cidrs": networks()} }})
		},
		"ban": func() any {
			return some(40, map[string]func() any{"cidrs": networks, "keys": of("user:42", []any{}), "status": of(403, 429, 418, "429")})
		},
		"allow": func() any {
			return some(40, map[string]func() any{"cidrs": networks, "routes": of("/ok", "GET /ok/*", []any{"/a", "OPTIONS  /b"}, "example.org/x"), "preflights": of(true)})
		},
		"headers": func() any {
			return some(50, map[string]func() any{"send": of("both", "legacy", "draft", "none"), "limit": of("X-Rate", ""), "reset": of("unix", "delta")})
		},
	})
	file["version"] = 1
	if random.IntN(10) == 0 {
		delete(file, "version")
		file = map[string]any{"rate_limits": file}
	}
	return file
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
	var walk func(s *schema, field string, wrap func(value string) string)
	walk = func(s *schema, field string, wrap func(string) string) {
		if s == nil {
			return
		}
		walk(s.to, field, wrap)
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
		walk(s.Items, field+".0", func(v string) string { return wrap("[" + v + "]") })
		if a := s.AdditionalProperties; a != nil {
			walk(a.schema, field+`."GET /any"`, func(v string) string { return wrap(`{"GET /any": ` + v + `}`) })
		}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			fields++
			inside := strings.TrimPrefix(field+"."+name, ".")
			into := func(v string) string { return wrap(fmt.Sprintf(`{%q: %s}`, name, v)) }
			_, err := rules.Parse([]byte(into("null")), rules.Options{})
			if err != nil {
				for _, p := range problemsOf(t, err) {
					require.NotContains(t, p, "unknown field", "%s", into("null"))
				}
			}
			walk(s.Properties[name], inside, into)
		}
	}
	walk(readSchema(t), "", func(v string) string { return v })
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
