package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

func TestYAMLAndJSONSayTheSameHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	want := parse(t, `version: 1 # a comment
default: {requests: 10_000, window: 1m, key: ["header:X-A", ip], counts: [401, 5xx], tiers: {"a b": 5/s}}
global: {limit: 7/s, refusal: {message: "é b"}, tiers: {"a b": 5/s}, key: global}
`, rules.Options{})
	for name, text := range map[string]string{
		"blocks and shorthand": `
global:
  limit: 7/s
  refusal:
    message: >-
      é
      b
  tiers:
    a b:
      limit:	5/s # behind a tab
  key: global
default:
  requests: "10_000"
  window: 60
  key:
  - header:X-A
  - ip
  counts: [401,
    "5xx"]
  tiers:
    'a b': 5/s
version: 1
...
`,
		"Windows' line ends": "\ufeffversion: 1\r\nglobal: {limit: 7/s, refusal: {message: 'é\r\n  b'}, tiers: {a b: 5/s}, key: global}\r\ndefault:\r\n  requests: 10000\r\n  window: 1m\r\n  key:\r\n  - header:X-A\r\n  - ip\r\n  counts: [401, 5xx]\r\n  tiers: {a b: 5/s}\r\n",
		"aliases":            "version: 1\nglobal: {limit: 7/s, refusal: {message: é b}, tiers: &t {a b: 5/s}, key: global}\ndefault: {requests: 10000, window: 60, key: [header:X-A, ip], counts: [401, 5xx], tiers: *t}\n",
		"JSON with tabs":     "{\n\t\"version\": 1,\t\"default\":{\"requests\": 10000, \"window\": \"1m\",\n\t\"key\": [\"header:X-\\u0041\", \"ip\"], \"counts\": [401, \"5xx\"], \"tiers\": {\"a b\": \"5\\/s\"}},\n\t\"global\": {\"limit\": \"7/s\", \"refusal\": {\"message\": \"\\u00e9 b\"}, \"tiers\": {\"a b\": {\"limit\": \"5/s\"}}, \"key\": \"global\"}\n}\n",
	} {
		got, err := rules.Parse([]byte(text), rules.Options{})
		if assert.NoError(t, err, name) {
			assert.Empty(t, rules.Diff(want, got), name)
		}
	}
}

// What testdata/problems.txt can't hold, or shows better in one line.
func TestBytesThatAreNoDocumentAreRefusedWhereTheyAre(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"name: é\xff\n":           "1:8: the byte 0xff is not UTF-8",
		"a: 1\r\nname: é\x00\n":   "2:8: the control character U+0000 is not allowed",
		"? {version: 1}\n: 1\n":   "1:3: the key is a list, a mapping or an alias: want text",
		"# a\n---\n# b\n":         "1:1: the document is empty",
		"null":                    "1:1: the document is empty",
		"global:\n\tlimit: 1/s\n": "2:1: syntax: lines are indented with spaces, not with tabs",
	} {
		_, err := rules.Parse([]byte(text), rules.Options{})
		assert.Equal(t, want, problemsOf(t, err)[0], "%q", text)
	}
}

func TestADocumentThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	stairs := ""
	for i := range 40 {
		stairs += strings.Repeat(" ", i) + "a:\n"
	}
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 8 {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	for claim, c := range map[string]struct{ text, want string }{
		"bytes":                      {strings.Repeat("# padding\n", 1<<17), "1:1: the document is 1310720 bytes long: want at most 1048576"},
		"depth of lists":             {strings.Repeat("[", 40) + "a" + strings.Repeat("]", 40), "1:34: nested more than 32 deep"},
		"depth of mappings":          {strings.Repeat("{a: ", 40) + strings.Repeat("}", 40), "1:133: nested more than 32 deep"},
		"depth of blocks":            {stairs, "34:34: nested more than 32 deep"},
		"depth of dashes":            {strings.Repeat("- ", 40), "1:67: nested more than 32 deep"},
		"depth, where aliases lead":  {"a: &a " + strings.Repeat("[", 20) + strings.Repeat("]", 20) + "\nb: " + strings.Repeat("[", 20) + "*a" + strings.Repeat("]", 20), "2:24: nested more than 32 deep"},
		"values, where aliases lead": {laughs, "6:15: more than 200000 values; those of an alias count at each use"},
		"values":                     {"[" + strings.Repeat("1,", 200_000) + "1]", "1:400000: more than 200000 values; those of an alias count at each use"},
	} {
		_, err := rules.Parse([]byte(c.text), rules.Options{})
		assert.Equal(t, c.want, problemsOf(t, err)[0], claim)
	}
}

func TestAFileOfThousandsOfEndpointsIsRead(t *testing.T) {
	t.Parallel()
	var yaml, json strings.Builder
	yaml.WriteString("version: 1\nendpoints:\n")
	json.WriteString(`{"version": 1, "endpoints": {"GET /first": "1/s"`)
	for i := range 3000 {
		fmt.Fprintf(&yaml, "  \"GET /v1/things/%d\":\n    limit: 10/s\n    key:\n    - user\n    - ip\n", i)
		fmt.Fprintf(&json, `, "GET /v1/things/%d": {"limit": "10/s", "key": ["user", "ip"]}`, i)
	}
	json.WriteString("}}")
	for _, text := range []string{yaml.String(), json.String()} {
		r, err := rules.Parse([]byte(text), rules.Options{})
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(r.Routes()), 3000)
	}
}

// Some YAML parsers need time that grows with the square of the length for these, or all of the
// stack. The parser in use needs no more for them than for the files that people write.
func TestReadingEndsWhateverTheBytes(t *testing.T) {
	t.Parallel()
	const size = 1 << 14
	for _, c := range [][2]string{
		{"", "a:\n"}, {"", "a: 1\n"}, {"", "-\n"}, {"", "- a\n"}, {"", "<"}, {"", "\"\t"}, {"", "- "}, {"", "? "}, {"", "? a\n"}, {"", "&a "}, {"", "!a "},
		{"", "["}, {"", "{"}, {"", "{a: "}, {"", "]"}, {"", "@"}, {"", "---\n"}, {"", "...\n"}, {"", "%a\n"}, {"", ">\n a\n"}, {"{", "a,"}, {"{", "a:\n"}, {"{", "? "},
		{"[", "a: b,"}, {"[", ","}, {"[", "- "}, {"a: |\n ", "\n"}, {"a: >\n ", " \n"}, {"|+\n", "\n"}, {"'", " \n"}, {"\"", "\t\n"}, {"\"", "\\"}, {"a: b\n", "  c\n"}, {"a: b\n", "# \\\n"},
		{"", "#a\n"}, {"a: b\n", "\n"}, {"a: b\n", "#\n\n"}, {"", "- #\n"}, {"[", "#\n,"}, {"", "\t"}, {"", "a: &a1\n"}, {"[", "&a b,"}, {"a: &a b\nc: [", "*a,"},
		{"", "a: [b] # c\n"}, {"a:\n  - b\n", " #c\n\n"}, {"", "x"}, {"", "''"}, {"[", "'',"}, {"a: ", "b "}, {"", "a: b: "}, {"", "é"}, {"[", "{},"}, {"", "- - - -\n"},
		{"k: \"", "\\n"}, {"", "|\n"}, {"", "%TAG ! a\n"}, {"[", "!!int 1,"}, {"{?", "["}, {"{", "[a]: b,"}, {"", "? - a\n"}, {"[", "\n"}, {"a: >\n", "  a\n b\n"},
	} {
		for _, line := range []int{1, 4000} {
			piece := strings.Repeat(c[1], max(1, line/len(c[1])))
			if line > 1 {
				piece += "\n"
			}
			text := c[0] + strings.Repeat(piece, (size-len(c[0]))/len(piece))
			_, err := rules.Parse([]byte(text), rules.Options{})
			require.Error(t, err, "%.20q", text)
		}
	}
}
