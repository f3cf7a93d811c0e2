package keyfunc_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/keyfunc"
)

func TestAToolIsAKeyInBothItsSpellings(t *testing.T) {
	for _, tt := range []struct {
		methods, names []string
		want           string // "" for no key, "?" for an ambiguous request
	}{
		{[]string{"tools/call"}, []string{"search"}, "tool:search"},
		{[]string{" tools/call "}, []string{"\tsearch "}, "tool:search"},
		{[]string{"tools/call"}, []string{"=?base64?c2VhcmNo?="}, "tool:search"},
		{[]string{"tools/call"}, []string{"=?base64?xZtjaWFuYQ==?="}, "tool:ściana"},
		{[]string{"tools/call"}, []string{"Search"}, "tool:Search"},
		{[]string{"tools/call"}, []string{"a, b"}, "tool:a, b"},

		{nil, nil, ""},
		{nil, []string{"search"}, ""},
		{[]string{"tools/list"}, nil, ""},
		{[]string{"prompts/get"}, []string{"search"}, ""},
		{[]string{"tools/call"}, nil, ""},
		{[]string{"tools/call"}, []string{""}, ""},

		{[]string{"tools/call", "tools/list"}, []string{"search"}, "?"},
		{[]string{"tools/list", "tools/call"}, []string{"search"}, "?"},
		{[]string{"tools/call", "tools/call"}, []string{"search"}, "?"},
		{[]string{"tools/list, tools/call"}, []string{"search"}, "?"},
		{[]string{"Tools/Call"}, []string{"search"}, "?"},
		{[]string{"=?base64?dG9vbHMvY2FsbA==?="}, []string{"search"}, "?"},
		{[]string{"tools/call"}, []string{"search", "fetch"}, "?"},
		{[]string{"tools/call"}, []string{"search", "search"}, "?"},
		{[]string{"tools/call"}, []string{"=?base64?c2VhcmNo"}, "?"},
		{[]string{"tools/call"}, []string{"=?base64?c2VhcmN?="}, "?"},
		{[]string{"tools/call"}, []string{"=?base64?c2VhcmNp=?="}, "?"},
		{[]string{"tools/call"}, []string{"=?base64?c2VhcmN=?="}, "?"},
		{[]string{"tools/call"}, []string{"=?base64??="}, "?"},
		{[]string{"tools/call"}, []string{"=?base64?/w==?="}, "?"},
		{[]string{"tools/call"}, []string{"=?BASE64?c2VhcmNo?="}, "?"},
		{[]string{"tools/call"}, []string{"=?utf-8?q?search?="}, "?"},
		{[]string{"tools/call"}, []string{"ściana"}, "?"},
		{[]string{"tools/call"}, []string{"se\x00arch"}, "?"},
	} {
		r := from("192.0.2.1:1", append(lines("Mcp-Method", tt.methods), lines("Mcp-Name", tt.names)...)...)
		key, err := keyfunc.Tool(r)
		switch tt.want {
		case "":
			assert.Equal(t, keyfunc.ErrNoKey, err, "%q", tt)
		case "?":
			require.ErrorIs(t, err, keyfunc.ErrAmbiguous, "%q", tt)
			assert.NotContains(t, err.Error(), "search")
		default:
			require.NoError(t, err, "%q", tt)
			text, class := keyfunc.Classify(key)
			assert.Equal(t, tt.want, text)
			assert.Equal(t, keyfunc.Shared, class)
		}
	}
}

// However a client encodes a name that it may send in plain text, the key is the same.
func TestNoSpellingOfAToolIsAnotherKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[!-<>-~]([ -~]{0,20}[!-~])?`).Draw(t, "name")
		var keys []string
		for _, field := range []string{name, "=?base64?" + base64.StdEncoding.EncodeToString([]byte(name)) + "?="} {
			key, err := keyfunc.Tool(from("192.0.2.1:1", "Mcp-Method", "tools/call", "Mcp-Name", field))
			require.NoError(t, err)
			keys = append(keys, key)
		}
		assert.Equal(t, keys[0], keys[1])
	})
}

func TestAWholeNumberIsOneParamHoweverItIsWritten(t *testing.T) {
	account := keyfunc.ToolParam("account")
	for _, tt := range []struct {
		methods, values []string
		want            string // "" for no key, "?" for an ambiguous request
	}{
		{[]string{"tools/call"}, []string{"acme"}, "param:Account:acme"},
		{[]string{"tools/call"}, []string{" a, b\t"}, "param:Account:a, b"},
		{[]string{"tools/call"}, []string{"=?base64?YWNtZQ==?="}, "param:Account:acme"},
		{[]string{"tools/call"}, []string{"=?base64?xZtjaWFuYQ==?="}, "param:Account:ściana"},
		{[]string{"tools/call"}, []string{"true"}, "param:Account:true"},
		{[]string{"tools/call"}, []string{"nan"}, "param:Account:nan"},
		{[]string{"tools/call"}, []string{"Infinity"}, "param:Account:Infinity"},
		{[]string{"tools/call"}, []string{"1.2.3"}, "param:Account:1.2.3"},

		{[]string{"tools/call"}, []string{"42"}, "param:Account:42"},
		{[]string{"tools/call"}, []string{"42.0"}, "param:Account:42"},
		{[]string{"tools/call"}, []string{"4.2e1"}, "param:Account:42"},
		{[]string{"tools/call"}, []string{"+0042."}, "param:Account:42"},
		{[]string{"tools/call"}, []string{"=?base64?NDI=?="}, "param:Account:42"},
		{[]string{"tools/call"}, []string{"=?base64?IDQyCg==?="}, "param:Account:42"}, // " 42\n"
		{[]string{"tools/call"}, []string{"-0"}, "param:Account:0"},
		{[]string{"tools/call"}, []string{"-7e0"}, "param:Account:-7"},
		{[]string{"tools/call"}, []string{"9007199254740993"}, "param:Account:9007199254740992"},
		{[]string{"tools/call"}, []string{"1.5"}, "?"},
		{[]string{"tools/call"}, []string{"1e-400"}, "param:Account:0"},
		{[]string{"tools/call"}, []string{"1e400"}, "?"},

		{[]string{"tools/call"}, nil, ""},
		{[]string{"tools/call"}, []string{""}, ""},
		{[]string{"tools/list"}, []string{"acme"}, ""},
		{nil, []string{"acme"}, ""},
		{[]string{"tools/call", "tools/call"}, []string{"acme"}, "?"},
		{[]string{"Tools/Call"}, []string{"acme"}, "?"},
		{[]string{"tools/call"}, []string{"acme", "acme"}, "?"},
		{[]string{"tools/call"}, []string{"ściana"}, "?"},
		{[]string{"tools/call"}, []string{"=?base64?YWNtZQ"}, "?"},
	} {
		r := from("192.0.2.1:1", append(lines("Mcp-Method", tt.methods), lines("Mcp-Param-Account", tt.values)...)...)
		key, err := account(r)
		switch tt.want {
		case "":
			assert.Equal(t, keyfunc.ErrNoKey, err, "%q", tt)
		case "?":
			require.ErrorIs(t, err, keyfunc.ErrAmbiguous, "%q", tt)
			assert.NotContains(t, err.Error(), "acme")
		default:
			require.NoError(t, err, "%q", tt)
			text, class := keyfunc.Classify(key)
			assert.Equal(t, tt.want, text)
			assert.Equal(t, keyfunc.Claimed, class)
			kind, source, _ := keyfunc.KindOf(text)
			assert.Equal(t, "param", kind)
			_, err := keyfunc.Parse(source, nil)
			assert.NoError(t, err)
		}
	}
	for _, name := range []string{"", "a b", "a:b", "ä"} {
		assert.Panics(t, func() { keyfunc.ToolParam(name) }, "%q", name)
	}
}
