package house_test

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

// pages are the first page and those that it leads to.
func pages(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, docs)
	return append(docs, "README.md")
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// A snippet is a block of Go in a page. A comment in front of it, which readers of the page do
// not see, says what the lines go by: "go: r *chi.Mux" are the parameters of a function around
// them, "go in: internal/tests" is the module that they belong to.
type snippet struct {
	page   string
	line   int
	code   string
	params string
	module string
}

var snippets = regexp.MustCompile("(?m)(?:^<!-- go(?: in: (?P<module>[^ ]+)|: (?P<params>.*?)) ?-->\n)?^```go\n((?s:.*?))^```$")

func snippetsOf(t *testing.T, page string) []snippet {
	t.Helper()
	text := readPage(t, page)
	var found []snippet
	for _, at := range snippets.FindAllStringSubmatchIndex(text, -1) {
		part := func(i int) string {
			if at[2*i] < 0 {
				return ""
			}
			return text[at[2*i]:at[2*i+1]]
		}
		found = append(found, snippet{
			page: page, line: 1 + strings.Count(text[:at[6]], "\n"),
			module: part(1), params: strings.Trim(part(2), "- "), code: part(3),
		})
	}
	require.Len(t, found, strings.Count(text, "```go\n"), "%s: a block of Go is not read", page)
	if s := spansOf(page, text); s.code != "" {
		found = append(found, s)
	}
	return found
}

// spansOf are the calls and literals in the page's sentences and tables.
func spansOf(page, text string) snippet {
	s := snippet{page: page, line: 1, params: "ctx context.Context, r *http.Request, limit weir.Limit, limits *weir.RateLimit, secret []byte"}
	for _, span := range spans.FindAllString(fences.ReplaceAllString(text, ""), -1) {
		span = strings.Trim(span, "`")
		if ours.MatchString(span) && !strings.Contains(span, "...") && !strings.Contains(span, ")(") {
			if expression, err := parser.ParseExpr(span); err == nil {
				if _, ok := expression.(*ast.CallExpr); !ok {
					span = "_ = " + span
				}
				s.code += span + "\n"
			}
		}
	}
	return s
}

// ours is what such a span begins with. One without brackets may be a type, but in keyfunc.
var ours = regexp.MustCompile(`^(weir\.\w+[({]|keyfunc\.|ginlimit\.\w+\(|echolimit\.\w+\()`)

// imported are the packages that lines without imports go by.
var imported = map[string]string{
	"chi":        "github.com/go-chi/chi/v5",
	"echo":       "github.com/labstack/echo/v4",
	"gin":        "github.com/gin-gonic/gin",
	"grpc":       "google.golang.org/grpc",
	"prometheus": "github.com/prometheus/client_golang/prometheus",
	"redis":      "github.com/redis/go-redis/v9",

	"weir":       module,
	"bans":       module + "/middleware/bans",
	"chilimit":   module + "/adapters/chilimit",
	"dashboard":  module + "/observe/dashboard",
	"echolimit":  module + "/adapters/echolimit",
	"failover":   module + "/limiter/failover",
	"ginlimit":   module + "/adapters/ginlimit",
	"grpclimit":  module + "/adapters/grpclimit",
	"keyfunc":    module + "/keyfunc",
	"leasestore": module + "/redis/leasestore",
	"limiter":    module + "/limiter",
	"middleware": module + "/middleware",
	"offenders":  module + "/observe/offenders",
	"promlimit":  module + "/observe/promlimit",
	"redisstore": module + "/redis/redisstore",
	"rules":      module + "/middleware/rules",
	"shed":       module + "/middleware/shed",
	"signin":     module + "/middleware/signin",
	"tokens":     module + "/middleware/tokens",
	"sloglimit":  module + "/observe/sloglimit",

	"pace":        module + "/pace",
	"redisbans":   module + "/redis/redisbans",
	"serverlimit": module + "/pace/serverlimit",

	"bytes": "bytes", "json": "encoding/json", "io": "io", "strings": "strings", "url": "net/url", "mime": "mime", "httputil": "net/http/httputil",
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "log": "log", "net": "net",
	"slog": "log/slog", "time": "time",
}

// program is a file that compiles if the snippet does.
func (s snippet) program(t *testing.T) (name, text string) {
	t.Helper()
	if strings.HasPrefix(s.code, "package ") {
		if strings.Contains(s.code, `"testing"`) {
			return "docs_test.go", s.code
		}
		return "main.go", s.code
	}
	body := "func _(" + s.params + ") {\n" + s.code
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+s.code, 0); err == nil {
		body = s.code // declarations
	} else {
		body += s.uses(t) + "}\n"
	}
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+body, 0)
	require.NoError(t, err, "%s:%d", s.page, s.line)
	imports := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if name, ok := selector.X.(*ast.Ident); ok && imported[name.Name] != "" {
				imports["import "+name.Name+" "+strconv.Quote(imported[name.Name])+"\n"] = true
			}
		}
		return true
	})
	return "p.go", "package p\n" + strings.Join(slices.Sorted(maps.Keys(imports)), "") + body
}

// uses mentions the variables that the lines make for what comes after them.
func (s snippet) uses(t *testing.T) string {
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() {\n"+s.code+"}\n", 0)
	require.NoError(t, err, "%s:%d", s.page, s.line)
	var b strings.Builder
	for _, statement := range file.Decls[0].(*ast.FuncDecl).Body.List {
		if assign, ok := statement.(*ast.AssignStmt); ok && assign.Tok == token.DEFINE {
			for _, left := range assign.Lhs {
				if name := left.(*ast.Ident).Name; name != "_" {
					b.WriteString("_ = &" + name + "\n") // as some are not to be copied
				}
			}
		}
	}
	return b.String()
}

// Whole programs and single lines, the latter in a function of what they need. Tests are run.
func TestEverySnippetOfTheDocsCompiles(t *testing.T) {
	modules, tests := map[string][]string{}, map[string][]string{}
	for _, page := range pages(t) {
		for i, s := range snippetsOf(t, page) {
			formatted, err := format.Source([]byte(s.code))
			require.NoError(t, err, "%s:%d", s.page, s.line)
			assert.Equal(t, string(formatted), s.code, "%s:%d is not gofmt-ed", s.page, s.line)

			dir := "./" + s.module
			if len(modules[dir]) == 0 {
				// A name with _ is no package of ./..., as it is there for a moment only.
				root, err := os.MkdirTemp(dir, "_docs-*")
				require.NoError(t, err)
				t.Cleanup(func() { _ = os.RemoveAll(root) })
				modules[dir] = []string{root}
			}
			name, text := s.program(t)
			stem := strings.TrimSuffix(filepath.Base(page), ".md") + strconv.Itoa(i)
			folder := filepath.Join(modules[dir][0], stem)
			require.NoError(t, os.Mkdir(folder, 0o755))
			if !strings.HasPrefix(s.code, "package ") {
				text = strings.Replace(text, s.code, "//line "+s.page+":"+strconv.Itoa(s.line)+"\n"+s.code, 1)
			}
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
			folder = "./" + filepath.Join(filepath.Base(modules[dir][0]), stem)
			modules[dir] = append(modules[dir], folder)
			if strings.HasSuffix(name, "_test.go") {
				tests[dir] = append(tests[dir], folder)
			}
		}
	}
	for dir, folders := range modules {
		run(t, append([]string{"go", "-C", dir, "vet"}, folders[1:]...)...)
	}
	for dir, folders := range tests {
		run(t, append([]string{"go", "-C", dir, "test"}, folders...)...)
	}
}

var (
	fences  = regexp.MustCompile("(?ms)^```.*?^```$")
	spans   = regexp.MustCompile("`[^`\n]*`")
	links   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names of a page's headings, as GitHub makes them.
func anchors(text string) []string {
	var found []string
	for _, h := range heading.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		slug := noSlug.ReplaceAllString(strings.ToLower(h[1]), "")
		found = append(found, strings.ReplaceAll(slug, " ", "-"))
	}
	return found
}

func TestEveryLinkOfTheDocsLeadsSomewhere(t *testing.T) {
	for _, page := range append(pages(t), "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "_benchmarks/README.md") {
		text := spans.ReplaceAllString(fences.ReplaceAllString(readPage(t, page), ""), "")
		for _, link := range links.FindAllStringSubmatch(text, -1) {
			path, anchor, anchored := strings.Cut(link[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", page, link[1])
			} else if anchored && !slices.Contains(anchors(readPage(t, target)), anchor) {
				t.Errorf("%s: %s has no such heading in %s", page, link[1], target)
			}
		}
	}
}

// SECURITY names the tests that hold its promises, CONTRIBUTING the files and folders of each room.
func TestEveryFileThatThesePagesNameIsThere(t *testing.T) {
	var files []string
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (path == ".git" || strings.HasPrefix(entry.Name(), "_docs-")) {
			return fs.SkipDir // the latter come and go
		}
		files = append(files, path)
		return err
	}))
	for _, page := range []string{"SECURITY.md", "CONTRIBUTING.md"} {
		named := 0
		for _, span := range spans.FindAllString(readPage(t, page), -1) {
			name := strings.TrimSuffix(strings.Trim(span, "`"), "/")
			if fileName.MatchString(name) && !strings.HasPrefix(name, "testing/") { // of the standard library
				named++
				assert.True(t, slices.ContainsFunc(files, func(path string) bool {
					return path == name || strings.HasSuffix(path, "/"+name)
				}), "%s: there is no %s", page, name)
			}
		}
		assert.NotZero(t, named, page)
	}
}

var fileName = regexp.MustCompile(`^[a-z0-9_/]+\.(go|lua|md)$|^[a-z0-9_]+(/[a-z0-9_]+)+$`)

// A page that no other page links is not found.
func TestTheREADMEAndTheSiteLeadToEveryPage(t *testing.T) {
	text, site := readPage(t, "README.md"), readPage(t, "docs/.vitepress/config.js")
	for _, page := range pages(t)[:len(pages(t))-1] {
		assert.Contains(t, text, "]("+page+")")
		assert.Contains(t, site, "'"+strings.TrimSuffix(filepath.Base(page), ".md")+"'", "the site's sidebar")
	}
	assert.LessOrEqual(t, strings.Count(text, "\n"), 170, "the first page is read at once: what is long belongs to docs")
}

// Rule and Config are aliases, of which go doc shows no fields.
func TestThePackageCommentListsEveryField(t *testing.T) {
	text := readPage(t, "doc.go")
	for _, c := range []any{weir.Rule{}, weir.Config{}} {
		name := reflect.TypeOf(c).Name()
		_, table, found := strings.Cut(text, "\n// A ["+name+"] ")
		require.True(t, found, name)
		_, table, _ = strings.Cut(table, "\n//\n")
		table, _, _ = strings.Cut(table, "\n//\n")
		var listed, fields []string
		for line := range strings.Lines(table) {
			listed = append(listed, strings.Fields(line)[1])
		}
		for _, field := range reflect.VisibleFields(reflect.TypeOf(c)) {
			fields = append(fields, field.Name)
		}
		assert.ElementsMatch(t, fields, listed, name)
	}
}

var code = regexp.MustCompile(`"(weir-[a-z]+(?:-[a-z]+)*)"`)

func TestThePageHasEveryMetricOfTheAlertsAndTheBoard(t *testing.T) {
	page := readPage(t, "docs/observability.md")
	for _, file := range []string{"alerts.yml", "grafana-dashboard.json"} {
		names := regexp.MustCompile(`\b(rate_limit|weir)_[a-z_]+:?`).FindAllString(readPage(t, "_examples/observability/"+file), -1)
		require.NotEmpty(t, names, file)
		for _, name := range names {
			if strings.HasSuffix(name, ":") {
				continue // a recording rule of the alerts
			}
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
			assert.True(t, strings.Contains(page, "`"+name+"`") || strings.Contains(page, "`"+name+"{"), "%s: the page does not have %s", file, name)
		}
	}
}

func TestEveryCodeInTheLogHasItsParagraph(t *testing.T) {
	inSource := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == "internal" || path != "." && strings.ContainsAny(path[:1], "._")):
			return fs.SkipDir // nothing there logs in a service
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		for _, c := range code.FindAllStringSubmatch(readPage(t, path), -1) {
			inSource[c[1]] = true
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(inSource), 20)

	var inDocs []string
	for _, anchor := range anchors(readPage(t, "docs/warnings.md")) {
		if strings.HasPrefix(anchor, "weir-") {
			inDocs = append(inDocs, anchor)
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(inSource)), inDocs)
}
