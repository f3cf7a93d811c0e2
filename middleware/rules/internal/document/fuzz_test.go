package document_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules/internal/document"
)

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "version: 1", "version: 1\n---\n", "{\n\t\"version\": 1,\n\t\"name\": \"a\\u00e9\\ud83d\\ude00\"\n}", "version: 1\r\nname: >-\r\n  a\r\n\r\n  b\r\n",
		"version: 1\nrooms:\n  hall: &h {size: 1m, windows: [{width: 10_000, panes: [1, [2]]}]}\n  \"a b\": *h\n",
		"version: 1\ncolors:\n- red\n-\n", "a: &a [*a]", "<<: {a: b}", "? a\n: b", "!!str a", "%YAML 1.2\n---\na", "\ufeffversion:\t1\n\n...\n", "a: 'b''c\n  d'\n",
		"{a, b: , ? c}", "[a: b, - c]", "name: \"\\x41\\U0001F600\\\n  b\"", "- - - a\n  - b\n", "a: |2+\n   b\n\n", "rooms:\n  hall:\n    size: a\n   windows: []\n", "*: a", "a\rb: c", "\r0", "é: ü # ö\nö", "a: !\"", "a: !b!c d", "%TAG ! a",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var h, again house
		d, problems := decode(string(data), &h)
		_, same := decode(string(data), &again)
		require.Equal(t, problems, same)
		require.Equal(t, h, again, "what is read is what is written, and nothing else")

		text := strings.TrimPrefix(string(data), "\ufeff")
		text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
		lines := strings.Split(text, "\n")
		within := func(p document.Position) {
			require.GreaterOrEqual(t, p.Line, 1)
			require.LessOrEqual(t, p.Line, len(lines))
			require.GreaterOrEqual(t, p.Column, 1)
			require.LessOrEqual(t, p.Column, len([]rune(lines[p.Line-1]))+1)
		}
		for i, p := range problems {
			within(p.Position)
			require.NotEmpty(t, p.message)
			if strings.HasPrefix(p.message, "syntax: ") {
				require.NotContains(t, p.message, `"`, "the parser does not quote the document")
			}
			if i > 0 {
				before := problems[i-1]
				require.True(t, before.Line < p.Line || before.Line == p.Line && before.Column <= p.Column, "%v before %v", before, p)
			}
		}
		if len(problems) > 0 {
			return
		}
		require.True(t, d.Has("version"), "it is required")
		for name := range h.Rooms {
			require.True(t, d.Has("rooms", name))
			within(d.Position("rooms", name))
			within(d.Key("rooms", name))
		}
	})
}
