package middleware_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tables of docs/architecture.md name the functions that a request enters, as the coverage counters of a program
// see them that were cleared before the request.
func TestARequestEntersWhatTheDocsSay(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	require.NoError(t, err)
	_, tables, found := strings.Cut(string(page), "### The functions on its way")
	require.True(t, found)
	tables, _, _ = strings.Cut(tables, "\n## ")
	allowed, refused, found := strings.Cut(tables, "A refused request")
	require.True(t, found)
	ofAllowed, ofRefused := functionsOf(allowed), functionsOf(refused)
	ofRefused = append(ofRefused, slices.DeleteFunc(slices.Clone(ofAllowed), func(f string) bool {
		return f == "answer.go pass" || f == "fields.go report"
	})...)

	dir := t.TempDir()
	program, ways := filepath.Join(dir, "walk"), []string{filepath.Join(dir, "allowed"), filepath.Join(dir, "refused")}
	run(t, "go", "build", "-cover", "-covermode=atomic", "-coverpkg=.,./testdata/walk", "-o", program, "./testdata/walk")
	for _, way := range ways {
		require.NoError(t, os.Mkdir(way, 0o755))
	}
	run(t, program, ways...)
	assert.ElementsMatch(t, ofAllowed, entered(t, ways[0]), "an allowed request")
	assert.ElementsMatch(t, ofRefused, entered(t, ways[1]), "a refused request")
}

// functionsOf returns the functions of a table, each behind its file.
func functionsOf(table string) (all []string) {
	name := regexp.MustCompile("`([^`]+)`")
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.Contains(cells[2], ".go") {
			continue
		}
		file := name.FindStringSubmatch(cells[2])[1]
		for _, function := range name.FindAllStringSubmatch(cells[3], -1) {
			all = append(all, file+" "+function[1])
		}
	}
	return all
}

// entered returns the functions of this package that the counters in a folder have seen.
func entered(t *testing.T, dir string) (all []string) {
	line := regexp.MustCompile(`/middleware/(\w+\.go):\d+:\s+(?:\*?\w+\.)?(\w+)\s+([\d.]+)%`)
	for _, f := range line.FindAllStringSubmatch(run(t, "go", "tool", "covdata", "func", "-i="+dir), -1) {
		if f[3] != "0.0" {
			all = append(all, f[1]+" "+f[2])
		}
	}
	return all
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.Command(name, args...)
	command.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir())
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
