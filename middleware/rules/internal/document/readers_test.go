package document

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// JSON is YAML: where the YAML parser is up to it, it must find the same values in the
// same places. Two readers that don't know of each other check one another.
func TestBothReadersFindTheSameInJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		data, err := json.MarshalIndent(value(t, 4), "", "  ")
		require.NoError(t, err)
		asJSON, problems := readJSON(data)
		require.Empty(t, problems)
		asYAML, problems := readYAML(data)
		require.Empty(t, problems, "%s", data)
		require.Equal(t, asJSON, asYAML, "%s", data)
	})
}

func value(t *rapid.T, depth int) any {
	word := rapid.StringMatching(`[a-z0-9 :*#é,\[{<&"\\/-]{0,8}`)
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return word.Draw(t, "text")
	case 1:
		return rapid.IntRange(-100, 100_000).Draw(t, "number")
	case 2:
		return rapid.Bool().Draw(t, "boolean")
	case 3:
		return nil
	case 4:
		items := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range items {
			items[i] = value(t, depth-1)
		}
		return items
	}
	entries := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "size") {
		entries[word.Draw(t, "key")] = value(t, depth-1)
	}
	return entries
}

func TestANameIsFoundDespiteItsMistakes(t *testing.T) {
	t.Parallel()
	names := []string{"limit", "requests", "window", "algorithm", "on_outage", "key"}
	for typed, meant := range map[string]string{
		"limt": "limit", "LIMIT": "limit", "limits": "limit", "request": "requests", "widnow": "window", "algoritm": "algorithm",
		"onOutage": "on_outage", "on-outage": "on_outage", "keys": "key", "burst": "", "": "", "zebra": "", "k": "",
	} {
		require.Equal(t, meant, Nearest(typed, names), typed)
	}
}

func TestTheDistanceIsOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := []byte(rapid.StringMatching(`[a-c]{0,8}`).Draw(t, "a"))
		b := []byte(rapid.StringMatching(`[a-c]{0,8}`).Draw(t, "b"))
		require.Equal(t, string(a) == string(b), distance(string(a), string(b)) == 0)
		require.Equal(t, distance(string(a), string(b)), distance(string(b), string(a)))
		require.LessOrEqual(t, distance(string(a), string(b)), max(len(a), len(b)))
		if len(a) > 1 {
			swapped := append([]byte{a[1], a[0]}, a[2:]...)
			require.LessOrEqual(t, distance(string(a), string(swapped)), 1)
		}
	})
}
