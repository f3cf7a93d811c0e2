// Package house tests what is promised of Weir as a whole: which package may import which, that the
// docs and the examples work, and how limits treat real traffic. Tests run in the root of the repository.
package house_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/weirgo/weir"

func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A listedPackage is what go list tells about a package. Its imports do not include
// those of tests.
type listedPackage struct {
	ImportPath string
	Dir        string
	Standard   bool
	GoFiles    []string
	Imports    []string
	Module     struct{ Path string }
}

func isOurs(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// all are the packages of all modules in go.work.
const all = module + "/..."

// isProgram reports whether nobody imports a package of this module.
func isProgram(module string) bool {
	return strings.HasSuffix(module, "/cmd/weir") || strings.HasSuffix(module, "/examples")
}

// goList runs go list and returns what it printed.
func goList(t *testing.T, args ...string) []listedPackage {
	t.Helper()
	out := run(t, append([]string{"go", "list", "-json=ImportPath,Dir,Standard,GoFiles,Imports,Module"}, args...)...)
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

// A room is a folder, what is below it and in no room of its own included. Packages of a
// room may import each other and the standard library, and beside these:
type room struct {
	folder  string
	ours    []string // packages of this module
	foreign []string // modules of others
}

// rooms is the rule for every package that users or tests import. Tests may import more.
var rooms = []room{
	{".", []string{"keyfunc", "limiter", "middleware"}, nil},

	{"limiter", []string{"limiter/internal/table", "internal/invalid", "internal/waiting"}, nil},
	{"limiter/internal/table", nil, nil},
	{"limiter/store", []string{"limiter"}, nil},
	{"limiter/failover", []string{"limiter", "limiter/store"}, nil},
	{"limiter/limitertest", []string{"limiter", "limiter/store", "internal/phase"}, nil},
	{"keyfunc", []string{"internal/invalid", "internal/missing", "internal/network", "internal/reading", "internal/route"}, nil},

	{"middleware", []string{"keyfunc", "limiter", "limiter/store", "middleware/bans", "internal/answer", "internal/bounded", "internal/invalid", "internal/missing", "internal/network", "internal/reading", "internal/response", "internal/route", "internal/seldom", "internal/waiting"}, nil},
	{"middleware/bans", []string{"keyfunc", "internal/invalid"}, nil},
	{"middleware/tokens", nil, nil},
	{"middleware/routertest", []string{"keyfunc", "limiter", "middleware"}, nil},
	{"middleware/shed", []string{"middleware", "internal/invalid", "internal/route"}, nil},
	{"middleware/signin", []string{"keyfunc", "limiter", "middleware", "internal/invalid", "internal/response"}, []string{"golang.org/x/text"}},
	{"middleware/rules", []string{
		"keyfunc", "limiter", "middleware", "middleware/bans", "middleware/tokens",
		"internal/envoy", "internal/invalid", "internal/nearest", "internal/network", "internal/operate", "internal/reading", "internal/route", "internal/yamlfile",
	}, nil},

	{"observe/internal/tally", []string{"limiter", "limiter/failover", "limiter/store", "middleware"}, nil},
	{"observe/metrics", []string{"limiter", "middleware", "middleware/bans", "middleware/shed", "observe/internal/tally", "observe/offenders", "pace"}, nil},
	{"observe/offenders", []string{"keyfunc", "middleware"}, nil},
	{"observe/sloglimit", []string{"keyfunc", "limiter", "middleware", "pace"}, nil},
	{"observe/dashboard", []string{"keyfunc", "limiter", "limiter/failover", "middleware", "middleware/bans", "middleware/shed", "observe/internal/tally", "observe/offenders", "internal/operate"}, nil},
	{"observe/promlimit", []string{"limiter", "middleware", "middleware/bans", "middleware/shed", "observe/metrics", "observe/offenders", "pace"},
		[]string{"github.com/prometheus/client_golang"}},
	{"observe/otellimit", []string{"limiter", "middleware", "middleware/bans", "middleware/shed", "observe/metrics", "observe/offenders", "pace"},
		[]string{"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace"}},

	// All that speaks Redis.
	{"redis", []string{"keyfunc", "limiter", "limiter/failover", "limiter/store", "middleware/bans", "middleware/rules"}, []string{"github.com/redis/go-redis/v9"}},

	// Routers. No other room has one of these among ours.
	{"adapters/chilimit", []string{"middleware"}, []string{"github.com/go-chi/chi/v5"}},
	{"adapters/ginlimit", []string{"keyfunc", "limiter", "middleware"}, []string{"github.com/gin-gonic/gin"}},
	{"adapters/echolimit", []string{"keyfunc", "limiter", "middleware"}, []string{"github.com/labstack/echo/v4"}},
	{"adapters/echo5limit", []string{"keyfunc", "limiter", "middleware"}, []string{"github.com/labstack/echo/v5"}},

	{"adapters/grpclimit", []string{"middleware"}, []string{"google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc", "google.golang.org/protobuf"}},
	{"adapters/mcplimit", []string{"keyfunc", "middleware"}, []string{"github.com/modelcontextprotocol/go-sdk"}},

	{"pace", []string{"keyfunc", "limiter", "limiter/store", "middleware/bans", "pace/serverlimit", "internal/bounded", "internal/invalid", "internal/route"}, nil},
	{"pace/serverlimit", nil, []string{"github.com/dunglas/httpsfv"}}, // a reader of use without the rest

	{"internal/answer", nil, nil},
	{"internal/bounded", nil, nil},
	{"internal/envoy", []string{"limiter"}, nil},
	{"internal/invalid", nil, nil},
	{"internal/leak", nil, nil},
	{"internal/missing", nil, nil},
	{"internal/nearest", nil, nil},
	{"internal/network", nil, nil},
	{"internal/openloop", nil, nil},
	{"internal/operate", []string{"keyfunc"}, nil},
	{"internal/phase", nil, nil},
	{"internal/playground", []string{"limiter"}, nil},
	{"internal/race", nil, nil},
	{"internal/reading", nil, nil},
	{"internal/redistest", []string{"internal/leak"}, nil},
	{"internal/response", nil, nil},
	{"internal/route", nil, nil},
	{"internal/seldom", nil, nil},
	{"internal/traffic", nil, nil},
	{"internal/waiting", nil, nil},
	{"internal/yamlfile", []string{"internal/nearest"}, []string{"go.yaml.in/yaml/v4"}},
}

// roomOf is the room of a package of ours, or nil: the nearest folder that is one. The root
// is the room of its own package alone.
func roomOf(path string) *room {
	for folder := strings.TrimPrefix(strings.TrimPrefix(path, module), "/"); ; folder = filepath.Dir(folder) {
		if folder == "." && path != module {
			return nil
		}
		for i := range rooms {
			if rooms[i].folder == cmp.Or(folder, ".") {
				return &rooms[i]
			}
		}
		if folder == "" || folder == "." {
			return nil
		}
	}
}

func (r *room) mayImport(path string, moduleOf map[string]string) bool {
	of, known := moduleOf[path]
	switch {
	case !known:
		return true // the standard library
	case isOurs(path):
		to := roomOf(path)
		return to == r || to != nil && slices.Contains(r.ours, to.folder)
	}
	return slices.Contains(r.foreign, of)
}

func TestEveryPackageKeepsToTheRuleOfItsRoom(t *testing.T) {
	t.Parallel()
	moduleOf := make(map[string]string) // of packages that are not in the standard library
	for _, p := range goList(t, "-deps", all) {
		if !p.Standard {
			moduleOf[p.ImportPath] = p.Module.Path
		}
	}
	used := make(map[*room]bool)
	for _, p := range goList(t, all) {
		if isProgram(p.Module.Path) {
			continue
		}
		r := roomOf(p.ImportPath)
		if r == nil {
			t.Errorf("%s is in no room: say what it may import", p.ImportPath)
			continue
		}
		used[r] = true
		if slices.ContainsFunc(r.ours, func(folder string) bool { return strings.HasPrefix(folder, "adapters/") }) {
			t.Errorf("the room %q may import an adapter: arrows point from adapters to the rest, never back", r.folder)
		}
		for _, path := range p.Imports {
			if isOurs(path) && strings.Contains(path, "/internal/") && moduleOf[path] != p.Module.Path {
				t.Errorf("%s imports %s: only exported API crosses the boundary of a module", p.ImportPath, path)
			}
			if !r.mayImport(path, moduleOf) {
				t.Errorf("%s imports %s: the room %q may import the standard library and %s",
					p.ImportPath, path, r.folder, strings.Join(slices.Concat(r.ours, r.foreign), ", "))
			}
		}
	}
	for i := range rooms {
		if !used[&rooms[i]] {
			t.Errorf("there is no package in the room %q", rooms[i].folder)
		}
	}
}

// The drawing has one arrow between two folders where rooms has many rows, and leaves out an
// arrow that others make a way for.
func TestTheDrawingOfImportsIsWhatRoomsSay(t *testing.T) {
	top := func(folder string) string {
		if folder == "." {
			return "weir"
		}
		name, _, _ := strings.Cut(folder, "/")
		return name
	}
	allowed := make(map[[2]string]bool)
	for _, r := range rooms {
		for _, to := range r.ours {
			if from, to := top(r.folder), top(to); from != to && from != "internal" && to != "internal" {
				allowed[[2]string{from, to}] = true
			}
		}
	}

	_, text, _ := strings.Cut(readPage(t, "docs/architecture.md"), "flowchart BT\n")
	text, _, _ = strings.Cut(text, "```")
	drawn := make(map[string][]string)
	for line := range strings.Lines(text) {
		from, to, ok := strings.Cut(strings.TrimSpace(line), " --> ")
		require.True(t, ok, line)
		require.True(t, allowed[[2]string{from, to}], "no package of %s may import one of %s", from, to)
		drawn[from] = append(drawn[from], to)
	}
	var leads func(from, to string) bool
	leads = func(from, to string) bool {
		return slices.ContainsFunc(drawn[from], func(next string) bool { return next == to || leads(next, to) })
	}
	for way := range allowed {
		require.True(t, leads(way[0], way[1]), "%s may import %s, and the drawing has no way", way[0], way[1])
	}
}

// compiles is what programs get into their binaries with packages of ours, beside the standard
// library: modules of others, by how their packages' paths begin.
var compiles = []struct {
	of      []string // packages of this module
	foreign []string // and no others
	without []string // packages that some room on the way might lead to
}{
	{[]string{".", "keyfunc", "middleware", "middleware/bans", "middleware/shed", "limiter/failover", "observe/offenders", "_examples/quickstart", "_examples/nethttp", "_examples/tiers"}, nil, nil},
	{[]string{"limiter"}, nil, []string{"net", "net/http"}}, // it is of use without HTTP
	{[]string{"middleware/rules"}, []string{"go.yaml.in/yaml/v4"}, nil},
	{[]string{"middleware/signin"}, []string{"golang.org/x/text/"}, nil},
	{[]string{"pace", "pace/serverlimit", "observe/sloglimit"}, []string{"github.com/dunglas/httpsfv"}, nil},
	{[]string{"redis/redisstore", "redis/leasestore", "redis/internal/counters"}, ofGoRedis, []string{module + "/middleware", module + "/middleware/bans"}},
	{[]string{"redis/redisbans", "redis/internal/wire"}, ofGoRedis, []string{module + "/middleware", module + "/limiter"}},
	{[]string{"redis/redisrules"}, slices.Concat(ofGoRedis, []string{"go.yaml.in/yaml/v4"}), nil},
	{[]string{"observe/dashboard"}, []string{"github.com/dunglas/httpsfv"}, servers},
	{[]string{"observe/promlimit", "observe/otellimit"}, []string{""}, servers}, // any of their own
}

// servers are what packages of observe see through interfaces.
var servers = []string{"github.com/redis/go-redis/v9", "go.yaml.in/yaml/v4", module + "/middleware/rules"}

// ofGoRedis begins the paths of go-redis, and of what it compiles, the newest release included.
var ofGoRedis = []string{
	"github.com/redis/go-redis/", "github.com/cespare/xxhash/", "github.com/dgryski/go-rendezvous",
	"github.com/zeebo/xxh3", "github.com/klauspost/cpuid/", "go.uber.org/atomic", "golang.org/x/sys/",
}

func TestPackagesCompileWhatTheirUsersExpect(t *testing.T) {
	t.Parallel()
	for _, row := range compiles {
		for _, of := range row.of {
			for _, p := range goList(t, "-deps", "./"+of) {
				begins := func(prefix string) bool { return strings.HasPrefix(p.ImportPath, prefix) }
				if !p.Standard && !isOurs(p.ImportPath) && !slices.ContainsFunc(row.foreign, begins) || slices.Contains(row.without, p.ImportPath) {
					t.Errorf("package %s compiles %s", of, p.ImportPath)
				}
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
