package rules_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

// Each file of the example, and of testdata/explain, ends with requests, and below each of them is what the file makes
// of it. WEIR_UPDATE=1 writes that anew.
func TestTheExamplesSayWhatTheyDo(t *testing.T) {
	model := func(*http.Request) (string, error) { return "model:large", nil }
	paths, err := filepath.Glob("../../_examples/rules/files/*.yaml")
	require.NoError(t, err)
	require.Len(t, paths, 11)
	more, err := filepath.Glob("testdata/explain/*.yaml")
	require.NoError(t, err)
	paths = append(paths, more...)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			r, err := rules.Load(path, rules.Options{Keys: map[string]keyfunc.Func{"model": model}, Overload: shed.FromRules})
			require.NoError(t, err)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			requireSchema(t, string(text))
			var want strings.Builder
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "#   ") || strings.HasPrefix(line, "# warning: ") {
					continue
				}
				asked, isAsked := strings.CutPrefix(line, "# explain ")
				want.WriteString(line)
				if isAsked {
					explainInto(t, &want, r, strings.TrimSpace(asked))
				}
			}
			for _, w := range r.Warnings() {
				w.File = ""
				fmt.Fprintf(&want, "# warning: %s\n", w)
			}
			if os.Getenv("WEIR_UPDATE") != "" {
				require.NoError(t, os.WriteFile(path, []byte(want.String()), 0o644))
				return
			}
			require.Equal(t, want.String(), string(text), "WEIR_UPDATE=1 go test ./middleware/rules -run Examples writes it")
		})
	}
}

// explainInto writes what becomes of a request, from the first step that says something.
func explainInto(t *testing.T, out *strings.Builder, r *rules.Rules, asked string) {
	words := strings.Fields(asked)
	q := rules.Request{Method: words[0], Header: http.Header{}}
	q.Path, q.Query, _ = strings.Cut(words[1], "?")
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "user":
			q.User = value
		case "tier":
			q.Tier = value
		case "ip":
			q.IP = value
		case "host":
			q.Host = value
		case "length":
			q.ContentLength, _ = strconv.ParseInt(value, 10, 64)
		case "header":
			name, value, _ := strings.Cut(value, ":")
			q.Header.Set(name, value)
		default:
			t.Fatalf("%s: %q is not known", asked, name)
		}
	}
	e, err := r.Explain(q)
	require.NoError(t, err, asked)
	for _, s := range e.Steps {
		switch {
		case s.Says == "not banned" || s.Says == "not on the list":
		case s.Rule != "":
			fmt.Fprintf(out, "#   %s %q: %s\n", s.Section, s.Rule, s.Says)
		default:
			fmt.Fprintf(out, "#   %s: %s\n", s.Section, s.Says)
		}
	}
	for _, note := range e.Notes {
		fmt.Fprintf(out, "#   note: %s\n", note)
	}
}
