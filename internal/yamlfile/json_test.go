package yamlfile

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"
)

// JSON is YAML.
func TestJSONIsWhatEncodingJSONReads(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		indent := rapid.SampledFrom([]string{"", " ", "\t"}).Draw(t, "indent")
		data, err := json.MarshalIndent(jsonValue(t, 4), "", indent)
		require.NoError(t, err)
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		var want any
		require.NoError(t, decoder.Decode(&want))
		var wrong []string
		root := readYAML(data, func(_ Position, _ []string, message string) { wrong = append(wrong, message) })
		if want == nil {
			require.Len(t, wrong, 1, "is empty")
			return
		}
		require.Empty(t, wrong, "%s", data)
		require.Equal(t, want, plainValue(root), "%s", data)
	})
}

// plainValue is n as encoding/json has it.
func plainValue(n *yaml.Node) any {
	switch kindOf(n) {
	case nullKind:
		return nil
	case numberKind:
		return json.Number(n.Value)
	case booleanKind:
		return n.Value == "true"
	case listKind:
		items := make([]any, len(n.Content))
		for i, item := range n.Content {
			items[i] = plainValue(item)
		}
		return items
	case mappingKind:
		entries := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			entries[n.Content[i].Value] = plainValue(n.Content[i+1])
		}
		return entries
	}
	return n.Value
}

func jsonValue(t *rapid.T, depth int) any {
	word := rapid.StringMatching(`[a-z0-9 :*#é😀,\[{<&"\\/-]{0,8}`)
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
			items[i] = jsonValue(t, depth-1)
		}
		return items
	}
	entries := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "size") {
		entries[word.Draw(t, "key")] = jsonValue(t, depth-1)
	}
	return entries
}
