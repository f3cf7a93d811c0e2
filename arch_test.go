// Package weir_test holds what is promised of the module as a whole: which package may
// import which, that the examples work, and what becomes of real traffic.
package weir_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/weirgo/weir"

// A listedPackage is what go list tells about a package. Its imports do not include
// those of tests.
type listedPackage struct {
	ImportPath string
	Dir        string
	Standard   bool
	GoFiles    []string
	Imports    []string
}

func (p *listedPackage) ours() bool {
	return p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/")
}

// goList runs go list and returns what it printed.
func goList(t *testing.T, args ...string) []listedPackage {
	t.Helper()
	out := run(t, append([]string{"go", "list", "-json=ImportPath,Dir,Standard,GoFiles,Imports"}, args...)...)
	var packages []listedPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
	require.NotEmpty(t, packages, "go list %s found nothing", strings.Join(args, " "))
	return packages
}

// run runs a command that must succeed and must have found something to do: go says
// "matched no packages" and exits 0 where a pattern is wrong.
func run(t *testing.T, command ...string) (stdout []byte) {
	t.Helper()
	var out, complaints bytes.Buffer
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	require.NoError(t, err, "%s:\n%s%s", strings.Join(command, " "), out.Bytes(), complaints.Bytes())
	require.NotContains(t, complaints.String(), "matched no packages", strings.Join(command, " "))
	return out.Bytes()
}

func TestTheCoreImportsTheStandardLibraryAndItselfAlone(t *testing.T) {
	t.Parallel()
	for of, may := range map[string][]string{
		"limiter":         {"limiter"},
		"middleware/bans": {"middleware/bans"},
		"keyfunc":         {"keyfunc", "internal/network", "internal/route"},
		"middleware":      {"middleware", "keyfunc", "limiter", "middleware/bans", "internal/network", "internal/route"},
		"observe/offenders": {
			"middleware", "observe/offenders", "keyfunc", "limiter", "middleware/bans", "internal/network", "internal/route",
		},
		"observe/sloglimit": {
			"observe/sloglimit", "middleware", "keyfunc", "limiter", "middleware/bans", "internal/network", "internal/route",
		},
	} {
		for _, p := range goList(t, "-deps", "./"+of) {
			allowed := p.Standard
			for _, name := range may {
				path := module + "/" + name
				allowed = allowed || p.ImportPath == path || strings.HasPrefix(p.ImportPath, path+"/internal/")
			}
			if !allowed {
				t.Errorf("package %s compiles %s; it may compile the standard library and %s",
					of, p.ImportPath, strings.Join(may, ", "))
			}
		}
	}
}

func TestTheLimiterKnowsNoHTTP(t *testing.T) {
	t.Parallel()
	for _, p := range goList(t, "-deps", "./limiter") {
		if p.ImportPath == "net/http" || p.ImportPath == "net" {
			t.Errorf("package limiter compiles %s: it must be of use without HTTP", p.ImportPath)
		}
	}
}

func TestNothingImportsAnAdapter(t *testing.T) {
	t.Parallel()
	for _, p := range goList(t, "./...") {
		for _, path := range p.Imports {
			if strings.HasPrefix(path, module+"/adapters/") {
				t.Errorf("%s imports %s: arrows point from adapters to the rest, never back", p.ImportPath, path)
			}
		}
	}
}

func TestAProgramForNetHTTPCompilesNoRouterAndNoRedisClient(t *testing.T) {
	t.Parallel()
	for _, p := range goList(t, "-deps", "./_examples/quickstart", "./_examples/nethttp", "./_examples/tiers") {
		if !p.Standard && !p.ours() {
			t.Errorf("a program that imports only middleware compiles %s", p.ImportPath)
		}
	}
}

func TestAStoreCompilesItsOwnServersClientAlone(t *testing.T) {
	t.Parallel()
	ours := []string{"limiter", "limiter/internal/table", "limiter/failover", "redis/redisstore", "redis/leasestore", "redis/internal/wire"}
	breaker := []string{"github.com/sony/gobreaker/"}
	compilesAlone(t, "limiter/failover", ours[:3], breaker)
	compilesAlone(t, "redis/redisbans", []string{"redis/redisbans", "redis/internal/wire", "middleware/bans"}, ofGoRedis)
	for _, of := range []string{"redis/redisstore", "redis/leasestore", "redis/internal/wire"} {
		compilesAlone(t, of, ours, append(breaker, ofGoRedis...))
	}
}

func TestRulesCompileAReaderAndAWatcherAlone(t *testing.T) {
	t.Parallel()
	ours := []string{
		"middleware", "middleware/rules", "middleware/rules/internal/document", "middleware/rules/internal/source",
		"keyfunc", "limiter", "middleware/bans", "limiter/internal/table", "internal/network", "internal/operate", "internal/route",
	}
	may := []string{"github.com/goccy/go-yaml/", "github.com/fsnotify/fsnotify", "golang.org/x/sys/"}
	compilesAlone(t, "middleware/rules", ours, may)
	compilesAlone(t, "redis/redisrules", append(ours, "redis/redisrules"), append(may, ofGoRedis...))
}

// compilesAlone requires that a package compiles the standard library and no other packages
// than ours by name, and those whose path begins like one of may.
func compilesAlone(t *testing.T, of string, ours, may []string) {
	t.Helper()
	for _, p := range goList(t, "-deps", "./"+of) {
		allowed := p.Standard
		for _, name := range ours {
			allowed = allowed || p.ImportPath == module+"/"+name
		}
		for _, path := range may {
			allowed = allowed || strings.HasPrefix(p.ImportPath, path)
		}
		if !allowed {
			t.Errorf("package %s compiles %s", of, p.ImportPath)
		}
	}
}

// ofGoRedis begins the paths of go-redis, and of what it compiles, the newest release included.
var ofGoRedis = []string{
	"github.com/redis/go-redis/", "github.com/cespare/xxhash/", "github.com/dgryski/go-rendezvous",
	"github.com/zeebo/xxh3", "github.com/klauspost/cpuid/", "go.uber.org/atomic", "golang.org/x/sys/",
}

// What speaks Redis is in redis, so that nothing else compiles its client.
func TestOnlyPackagesInRedisImportItsClient(t *testing.T) {
	t.Parallel()
	for _, p := range goList(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, path := range p.Imports {
			if strings.HasPrefix(path, "github.com/redis/go-redis/") &&
				!strings.HasPrefix(name, "redis/") && !strings.HasPrefix(name, "cmd/") && !strings.HasPrefix(name, "_examples/") {
				t.Errorf("%s imports %s: what speaks Redis belongs in redis", name, path)
			}
		}
	}
}

func TestTheReaderAndTheWatcherOfRulesKnowNothingOfThem(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"middleware/rules/internal/document", "middleware/rules/internal/source"} {
		for _, p := range goList(t, "-deps", "./"+of) {
			if p.ours() && p.ImportPath != module+"/"+of {
				t.Errorf("package %s compiles %s", of, p.ImportPath)
			}
		}
	}
}

func TestRouterAdaptersStaySmall(t *testing.T) {
	t.Parallel()
	const most = 100
	for _, p := range goList(t, "./adapters/chilimit", "./adapters/ginlimit", "./adapters/echolimit", "./adapters/echo5limit") {
		lines := 0
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			require.NoError(t, err)
			for line := range strings.Lines(string(text)) {
				line = strings.TrimSpace(line)
				if line != "" && !strings.HasPrefix(line, "//") {
					lines++
				}
			}
		}
		if lines > most {
			t.Errorf("%s has %d lines of code, more than %d: what it grew by belongs in middleware", p.ImportPath, lines, most)
		}
	}
}
