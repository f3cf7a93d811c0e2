package rules

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/yamlfile"
)

// The fields in docs/fields.md are those that files are read by. To write them anew:
// WEIR_UPDATE=1 go test ./middleware/rules -run EveryField
func TestTheDocsListEveryField(t *testing.T) {
	const path = "../../docs/fields.md"
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

// reference lists the file's fields and those of a rule, nested as in the file.
func reference() string {
	var b strings.Builder
	row := func(path, kind, fallback, doc string) {
		what := kind
		if fallback == "(required)" {
			what += ", required"
		} else if fallback == "off" || strings.Contains(fallback, " ") {
			what += ", default: " + fallback
		} else if fallback != "" {
			what += ", default `" + fallback + "`"
		}
		depth := strings.Count(path, ".")
		name := path[strings.LastIndexByte(path, '.')+1:]
		b.WriteString(strings.Repeat("  ", depth) + "- `" + name + "` (" + what + "): " + strings.ReplaceAll(doc, "*", `\*`) + "\n")
	}
	b.WriteString("\n")
	for _, f := range fieldsBelow("", reflect.TypeFor[file]()) {
		section, rest, below := strings.Cut(f.path, ".")
		kind := f.written
		switch strings.TrimSuffix(section, "[]") {
		case "global", "default":
			kind = "rule or list"
		case "descriptors":
			kind = "mapping or list"
			below = below && !strings.HasPrefix(f.path, "descriptors[].domain") && !strings.HasPrefix(f.path, "descriptors[].entries")
			if strings.Contains(f.path, ".") {
				kind = f.written
			}
		case "tiers", "endpoints":
			kind = "rules or lists, by name"
		case "allow":
			below = strings.HasPrefix(rest, "cidrs[]") // as in ban.cidrs
		default:
			below = false
		}
		if below {
			continue
		}
		row(f.path, kind, f.fallback, f.doc)
	}
	b.WriteString("\n## A rule\n\n")
	for _, f := range fieldsBelow("", reflect.TypeFor[rule]()) {
		switch section, _, below := strings.Cut(f.path, "."); {
		case below && (section == "tiers" || section == "overrides"):
			continue // a limit's fields, once more; until and because are in the first list
		case below && (section == "refusal" || section == "soft"):
			continue // those of the first list
		}
		if f.path == "tiers" {
			f.written = "limits, by tier"
		}
		if f.path == "overrides" {
			f.written = "limits, by key"
		}
		row(f.path, f.written, f.fallback, f.doc)
	}
	b.WriteString("\n")
	return b.String()
}

// A referenceRow is a row of the lists: where a field is, what is written there, and what for.
type referenceRow struct{ path, written, fallback, doc string }

func fieldsBelow(prefix string, t reflect.Type) (rows []referenceRow) {
	for _, f := range yamlfile.FieldsOf(t) {
		fallback, ok := f.Tag.Lookup("default")
		if f.Required && !ok {
			fallback = "(required)"
		}
		row := referenceRow{prefix + f.Name, written(f, f.Type), fallback, f.Tag.Get("doc")}
		rows = append(rows, row)
		path, inner := row.path, f.Type
		for inner.Kind() != reflect.Struct {
			switch inner.Kind() {
			case reflect.Map:
				path += ".*"
			case reflect.Slice:
				path += "[]"
			case reflect.Pointer:
			default:
				inner = reflect.TypeFor[struct{}]()
				continue
			}
			inner = inner.Elem()
		}
		rows = append(rows, fieldsBelow(path+".", inner)...)
	}
	return rows
}

// written is how a t is written in the field.
func written(f yamlfile.Field, t reflect.Type) string {
	title, _ := scalars[t.Name()]["title"].(string)
	if t == reflect.TypeFor[client]() {
		title = "network"
	}
	short := yamlfile.ShortOf(t)
	switch {
	case t.Kind() == reflect.Pointer:
		return written(f, t.Elem())
	case t.Kind() == reflect.Slice:
		return or(written(f, t.Elem()), "list")
	case short != nil:
		return or(strings.Replace(written(*short, short.Type), "integer", "number", 1), "mapping")
	case len(f.Words) > 0:
		last := len(f.Words) - 1
		return strings.Join(f.Words[:last], ", ") + " or " + f.Words[last]
	case title != "":
		return title
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case yamlfile.IsObject(t), t.Kind() == reflect.Map:
		return "mapping"
	}
	return "integer"
}

func or(a, b string) string {
	if strings.Contains(a, " or ") {
		a += ","
	}
	return a + " or " + b
}
