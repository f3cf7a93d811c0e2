package rules

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules/internal/document"
)

// The tables of fields in docs/rules.md are those that files are read by. To write them anew:
// WEIR_UPDATE=1 go test ./middleware/rules -run EveryField
func TestTheDocsListEveryField(t *testing.T) {
	const path = "../../docs/rules.md"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), "<!-- fields -->\n")
	require.True(t, ok)
	written, after, ok := strings.Cut(rest, "<!-- /fields -->")
	require.True(t, ok)

	want := reference()
	if os.Getenv("WEIR_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(before+"<!-- fields -->\n"+want+"<!-- /fields -->"+after), 0o644))
		return
	}
	require.Equal(t, want, written)
}

// reference is a table of the file's fields and one of a rule's.
func reference() string {
	var b strings.Builder
	row := func(path, kind, fallback, doc string) {
		escape := strings.NewReplacer("|", "\\|").Replace
		if fallback != "" && fallback != "(required)" && fallback != "off" && !strings.Contains(fallback, " ") {
			fallback = "`" + fallback + "`"
		}
		if fallback == "(required)" {
			fallback = "required"
		}
		if fallback == "" {
			fallback = "none"
		}
		b.WriteString("| `" + path + "` | " + escape(kind) + " | " + escape(fallback) + " | " + escape(doc) + " |\n")
	}
	head := func(of string) {
		b.WriteString("\n| " + of + " | written as | default | |\n|---|---|---|---|\n")
	}
	head("field")
	for _, f := range document.Fields(file{}) {
		section, _, below := strings.Cut(f.Path, ".")
		kind := f.Type
		switch strings.TrimSuffix(section, "[]") {
		case "global", "default":
			kind = "rule, or a list"
		case "tiers", "endpoints":
			kind = "rules or lists, by name"
		default:
			below = false
		}
		if below {
			continue
		}
		row(f.Path, kind, f.Default, f.Doc)
	}
	head("field of a rule")
	for _, f := range document.Fields(rule{}) {
		if strings.HasPrefix(f.Path, "tiers.") || strings.HasPrefix(f.Path, "overrides.") {
			continue // a limit's fields, once more
		}
		if f.Path == "tiers" {
			f.Type = "limits, by tier"
		}
		if f.Path == "overrides" {
			f.Type = "limits, by key"
		}
		row(f.Path, f.Type, f.Default, f.Doc)
	}
	b.WriteString("\n")
	return b.String()
}
