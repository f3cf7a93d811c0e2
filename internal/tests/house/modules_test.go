package house_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program of a user, and what its module inherits.
var programs = map[string]struct {
	source   string
	requires []string // what it requires itself, as path@version
	modules  int      // that go list -m all may show, or 0
	sums     int      // lines that go.sum may have, or 0
	has, not []string // modules
	keeps    string   // path and version in go list -m all
}{
	"weir": {
		source: `http.ListenAndServe(":8080", weir.PerIP(weir.PerMinute(100))(http.NotFoundHandler()))`, modules: 10, sums: 14,
		not: []string{"go-chi", "gin-gonic", "labstack", "go-redis", "client_golang", "otel"},
	},
	"chi": {
		source:  `r := chi.NewRouter(); r.Use(chilimit.New(weir.Must(weir.New(weir.Config{}))))`,
		modules: 12, has: []string{"go-chi"}, not: []string{"gin-gonic", "labstack", "go-redis", "client_golang", "otel"},
	},
	"gin": {
		source: `r := gin.New(); r.Use(ginlimit.PerIP(weir.PerMinute(100)))`,
		has:    []string{"gin"}, not: []string{"go-chi", "labstack", "go-redis", "client_golang", "otel"},
	},
	"redis": {
		source: `rdb := redis.NewClient(&redis.Options{}); _ = redisstore.New(rdb, redisstore.Options{})`,
		has:    []string{"go-redis"}, not: []string{"go-chi", "gin-gonic", "labstack", "client_golang", "otel"},
	},
	"an old echo": {
		source: `e := echo.New(); e.Use(echo.WrapMiddleware(weir.PerIP(weir.PerMinute(100))))`, requires: []string{"github.com/labstack/echo/v4@v4.10.2"},
		keeps: "github.com/labstack/echo/v4 v4.10.2",
	},
}

// libraries are the modules that users require.
var libraries = []string{
	"", "/adapters/chilimit", "/adapters/echo5limit", "/adapters/echolimit", "/adapters/ginlimit", "/adapters/grpclimit", "/adapters/mcplimit", "/observe/otellimit", "/observe/promlimit", "/redis",
}

func TestAProgramInheritsOnlyWhatItUses(t *testing.T) {
	if testing.Short() {
		t.Skip("it resolves modules")
	}
	root, err := os.Getwd()
	require.NoError(t, err)
	var replaces []string // as users of a clone write them
	for line := range strings.Lines(readPage(t, "CONTRIBUTING.md")) {
		if replace, ok := strings.CutPrefix(strings.TrimSpace(line), "go mod edit "); ok {
			replaces = append(replaces, replace)
		}
	}
	require.Len(t, replaces, len(libraries))
	for i, library := range libraries {
		require.Equal(t, fmt.Sprintf("-replace=%s%s=../weir%[2]s", module, library), replaces[i])
	}
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			command := func(args ...string) string {
				cmd := exec.Command("go", args...)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				require.NoError(t, err, "go %s: %s", strings.Join(args, " "), stderr.String())
				return string(out)
			}
			command("mod", "init", "example.com/program")
			for _, replace := range replaces {
				command("mod", "edit", strings.Replace(replace, "../weir", root, 1))
			}
			for _, required := range program.requires {
				command("mod", "edit", "-require="+required)
			}
			imports := ""
			for _, line := range strings.Split(program.source, "; ") {
				for name, path := range imported {
					if strings.Contains(line, name+".") && !strings.Contains(imports, fmt.Sprintf("%q", path)) {
						imports += fmt.Sprintf("import %s %q\n", name, path)
					}
				}
			}
			source := "package main\n" + imports + "func main() {\n" + strings.ReplaceAll(program.source, "; ", "\n") + "\n}\n"
			require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600))
			command("mod", "tidy")
			command("vet", ".")

			list := command("list", "-m", "all")
			modules := strings.Split(strings.TrimSpace(list), "\n")
			if program.modules > 0 {
				assert.LessOrEqual(t, len(modules), program.modules, list)
			}
			for _, part := range program.has {
				assert.Contains(t, list, part)
			}
			for _, part := range program.not {
				assert.NotContains(t, strings.ReplaceAll(list, root, ""), part)
			}
			assert.Contains(t, list, program.keeps)
			sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
			require.NoError(t, err)
			t.Logf("%d modules, %d lines of go.sum", len(modules), bytes.Count(sums, []byte("\n")))
			if program.sums > 0 {
				assert.LessOrEqual(t, bytes.Count(sums, []byte("\n")), program.sums, "lines of go.sum")
			}
		})
	}
}
