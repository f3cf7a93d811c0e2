package release_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/weirgo/weir"

// submodules are the modules beside the root that users import or install.
var submodules = []string{
	"adapters/chilimit", "adapters/echo5limit", "adapters/echolimit", "adapters/ginlimit", "adapters/grpclimit", "adapters/mcplimit", "cmd/weir", "observe/otellimit", "observe/promlimit", "redis",
}

// A program of a user, with what it gets and its main function. Imports of "MODULE/path" are of Weir.
var programs = map[string]struct {
	gets            []string
	imports, source string
}{
	"chi": {
		[]string{"adapters/chilimit"}, `"MODULE/adapters/chilimit"; "github.com/go-chi/chi/v5"`,
		`r := chi.NewRouter(); r.Use(chilimit.New(weir.Must(weir.New(weir.Config{}))))`,
	},
	"gin": {
		[]string{"adapters/ginlimit"}, `"MODULE/adapters/ginlimit"; "github.com/gin-gonic/gin"`,
		`gin.New().Use(ginlimit.PerIP(weir.PerMinute(100)))`,
	},
	"echo 4": {
		[]string{"adapters/echolimit"}, `"MODULE/adapters/echolimit"; "github.com/labstack/echo/v4"`,
		`echo.New().Use(echolimit.PerIP(weir.PerMinute(100)))`,
	},
	"echo 5": {
		[]string{"adapters/echo5limit"}, `"MODULE/adapters/echo5limit"; "github.com/labstack/echo/v5"`,
		`echo.New().Use(echo5limit.PerIP(weir.PerMinute(100)))`,
	},
	"redis with metrics": {
		[]string{"redis", "observe/promlimit"}, `"MODULE/redis/redisstore"; "MODULE/observe/promlimit"; "github.com/redis/go-redis/v9"`,
		`metrics, err := promlimit.New(promlimit.Options{}); _ = err
		_, _ = weir.New(weir.Config{Store: redisstore.New(redis.NewClient(&redis.Options{}), redisstore.Options{}), Observer: metrics})`,
	},
}

func writeProgram(t *testing.T, dir, imports, source string) {
	t.Helper()
	imports = strings.ReplaceAll(`"MODULE"; `+imports, "MODULE", module)
	text := "package main\nimport (" + imports + ")\nfunc main() {\n" + source + "\n}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o600))
}

// clone copies this tree, with what is not committed yet, into a repository of its own.
func clone(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name := range strings.SplitSeq(must(t, root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		from := filepath.Join(root, name)
		info, err := os.Lstat(from)
		if name == "" || err != nil { // deleted, not yet committed
			continue
		}
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, info.Mode()))
	}
	must(t, dir, author, "git", "init", "-q", "-b", "main")
	must(t, dir, author, "git", "add", "-A")
	must(t, dir, author, "git", "commit", "-q", "-m", "tree")
	return dir
}

// edit changes a file as a maintainer does, and commits it.
func edit(t *testing.T, dir, name, expression, with string) {
	t.Helper()
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	of := regexp.MustCompile(expression)
	require.Regexp(t, of, string(text))
	require.NoError(t, os.WriteFile(path, of.ReplaceAll(text, []byte(with)), 0o600))
	must(t, dir, author, "git", "commit", "-qam", name)
}

// publish downloads all modules of a release from the clone, as the module proxy does, into a folder that is a GOPROXY.
func publish(t *testing.T, clone, proxy, version string) {
	t.Helper()
	args := []string{"go", "mod", "download", module + "@" + version}
	for _, submodule := range submodules {
		args = append(args, module+"/"+submodule+"@"+version)
	}
	must(t, t.TempDir(), []string{
		"GOWORK=off", "GOMODCACHE=" + proxy, "GOFLAGS=-modcacherw", "GOPROXY=off", "GONOPROXY=" + module, "GONOSUMDB=" + module,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + clone + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + module,
	}, args...)
}

func TestAReleaseOfAllModulesCanBeUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs")
	}
	dir := clone(t)
	releases := func(version string) (string, error) {
		return run(t, dir, append(author, "GOWORK=", "GOPROXY=off"), ".ci/release", version)
	}
	refuses := func(version, reason string) {
		out, err := releases(version)
		require.Error(t, err)
		assert.Contains(t, out, "release: "+reason)
	}
	refuses("0.1.0", `"0.1.0" is no version`)
	refuses("v0.01.0", `"v0.01.0" is no version`)
	refuses("v2.0.0", "v2.0.0 needs module paths that end with /v2, and they do not")
	refuses("v0.1.0", `CHANGELOG.md has no line "## v0.1.0 - `)
	edit(t, dir, "CHANGELOG.md", `(?m)^## v0\.1\.0 - unreleased$`, "## v0.1.0 - 2026-12-01")
	refuses("v0.1.0", `README.md says "not released yet"`)
	edit(t, dir, "README.md", `(?s)\*\*Status: v0\.1\*\*, not released yet: .*? works from its tag on\.`, "**Status: v0.1**.")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o600))
	refuses("v0.1.0", "the tree has changes")
	require.NoError(t, os.Remove(filepath.Join(dir, "new.go")))

	out, err := releases("v0.1.0")
	require.NoError(t, err, out)
	tags := strings.Fields(must(t, dir, nil, "git", "tag", "--points-at", "HEAD"))
	want := []string{"v0.1.0"}
	for _, submodule := range submodules {
		want = append(want, submodule+"/v0.1.0")
	}
	assert.ElementsMatch(t, want, tags)
	assert.Contains(t, out, "git push origin HEAD:main "+strings.Join(want[1:], " ")+"\n  git push origin v0.1.0\n")
	assert.Empty(t, must(t, dir, nil, "git", "status", "--porcelain"))
	refuses("v0.1.0", "the tag v0.1.0 exists")

	proxy := t.TempDir()
	publish(t, dir, proxy, "v0.1.0")
	cached := strings.TrimSpace(must(t, root, nil, "go", "env", "GOMODCACHE"))
	env := []string{
		"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOMODCACHE=" + t.TempDir(), "GOSUMDB=off",
		"GOPROXY=file://" + proxy + "/cache/download,file://" + cached + "/cache/download",
	}
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			user := t.TempDir()
			must(t, user, env, "go", "mod", "init", "example.com/program")
			args := []string{"go", "get", module + "@v0.1.0"}
			for _, submodule := range program.gets {
				args = append(args, module+"/"+submodule+"@v0.1.0")
			}
			must(t, user, env, args...)
			writeProgram(t, user, program.imports, program.source)
			must(t, user, env, "go", "build", "-o", os.DevNull, ".")
		})
	}
	t.Run("the command", func(t *testing.T) {
		bin := t.TempDir()
		must(t, bin, append(env, "GOBIN="+bin), "go", "install", module+"/cmd/weir@v0.1.0")
		assert.Contains(t, must(t, bin, nil, "./weir", "--version"), "weir v0.1.0, ")
		// Binaries of the release are built in a clone, with the modules of the workspace.
		must(t, dir, append(env, "GOWORK=", "GOFLAGS=-buildvcs=true -trimpath"), "go", "build", "-o", bin+"/clone", "./cmd/weir")
		assert.Contains(t, must(t, bin, nil, "./clone", "--version"), "weir v0.1.0, ")
		must(t, filepath.Join(dir, "cmd/weir"), append(env, "GOFLAGS=-mod=readonly -modcacherw -trimpath"), "go", "build", "-o", bin+"/alone", ".")
	})

	edit(t, dir, "CHANGELOG.md", `(?m)^## v0\.1\.0 - `, "## v0.1.1 - 2026-12-02\n\n$0")
	out, err = releases("v0.1.1")
	require.NoError(t, err, out)
	publish(t, dir, proxy, "v0.1.1")
	t.Run("an adapter of the version before", func(t *testing.T) {
		user := t.TempDir()
		must(t, user, env, "go", "mod", "init", "example.com/program")
		must(t, user, env, "go", "get", module+"@v0.1.1", module+"/adapters/chilimit@v0.1.0")
		writeProgram(t, user, programs["chi"].imports, programs["chi"].source)
		must(t, user, env, "go", "build", "-o", os.DevNull, ".")
		list := must(t, user, env, "go", "list", "-m", "all")
		assert.Contains(t, list, module+" v0.1.1\n")
		assert.Contains(t, list, module+"/adapters/chilimit v0.1.0\n")
	})
}
