package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatIsTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	stairs := func(deep int) string {
		var text strings.Builder
		for i := range deep {
			text.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return text.String()
	}
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 8 {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	for claim, c := range map[string]struct{ text, want string }{
		"bytes":                      {strings.Repeat("# padding\n", 1<<17), "1:1: the document is 1310720 bytes long: want at most 1048576"},
		"depth of lists":             {strings.Repeat("[", 40) + "a" + strings.Repeat("]", 40), "1:34: nested more than 32 deep"},
		"depth of mappings":          {strings.Repeat("{a: ", 40) + strings.Repeat("}", 40), "1:133: nested more than 32 deep"},
		"depth of blocks":            {stairs(40), "34:34: nested more than 32 deep"},
		"depth of dashes":            {strings.Repeat("- ", 40), "1:67: nested more than 32 deep"},
		"depth of JSON":              {strings.Repeat("[", 40) + strings.Repeat("]", 40), "1:34: nested more than 32 deep"},
		"depth, where aliases lead":  {"a: &a " + strings.Repeat("[", 20) + strings.Repeat("]", 20) + "\nb: " + strings.Repeat("[", 20) + "*a" + strings.Repeat("]", 20), "2:24: nested more than 32 deep"},
		"values, where aliases lead": {laughs, "6:15: more than 200000 values, counting those of an alias wherever it stands"},
		"values":                     {"[" + strings.Repeat("1,", 200_000) + "1]", "1:400000: more than 200000 values, counting those of an alias wherever it stands"},
	} {
		lines := complaints(c.text)
		require.NotEmpty(t, lines, claim)
		assert.Equal(t, c.want, lines[0], claim)
	}
}

func TestWhatPeopleWriteIsNotTooMuch(t *testing.T) {
	t.Parallel()
	var yaml, json strings.Builder
	yaml.WriteString("version: 1\nrooms:\n")
	json.WriteString(`{"version": 1, "rooms": {"first": {"size": "x"}`)
	for i := range 9000 {
		fmt.Fprintf(&yaml, "  \"GET /v1/things/%d\":\n    size: large\n    windows:\n    - width: 1_000\n", i)
		fmt.Fprintf(&json, `, "GET /v1/things/%d": {"size": "large", "windows": {"width": 1000}}`, i)
	}
	json.WriteString("}}")
	for _, text := range []string{yaml.String(), json.String()} {
		h, _ := read(t, text)
		require.GreaterOrEqual(t, len(h.Rooms), 9000)
	}
	colors := "version: 1\ncolors:\n" + strings.Repeat("- white # as ever\n", 30_000)
	h, _ := read(t, colors)
	require.Len(t, h.Colors, 30_000)
}

// These are what parsers of YAML need the square of the length for, or all of the stack. The
// one in use needs at most a second for a megabyte of any of them, and no more than it needs
// for a megabyte of what people write.
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
			decode(text, new(house))
		}
	}
}
