package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../../.."

// run runs a command in a folder and returns its output.
func run(t *testing.T, dir string, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func must(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	out, err := run(t, dir, env, args...)
	require.NoError(t, err, "%s: %s", strings.Join(args, " "), out)
	return out
}

// author lets git commit and tag without a configuration.
var author = []string{
	"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
	"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
}

func TestTheActionReportsProblemsChangesAndTests(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command")
	}
	weir := filepath.Join(t.TempDir(), "weir")
	must(t, filepath.Join(root, "cmd/weir"), []string{"GOWORK="}, "go", "build", "-o", weir, ".")
	report, err := filepath.Abs(filepath.Join(root, ".github/actions/check/report"))
	require.NoError(t, err)

	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	commit := func() {
		must(t, dir, author, "git", "add", "-A")
		must(t, dir, author, "git", "commit", "-q", "-m", "change")
	}
	base := ""
	reports := func() (string, error) {
		return run(t, dir, append(author, "RULES=weir.yaml", "TESTS=*.test.yaml", "TIERS=", "KEYS=", "BASE="+base, "WEIR="+weir), report)
	}
	const rules = "version: 1\nproxies: {}\nendpoints:\n  \"POST /login\": 5/m\ndefault: 100/m\n"
	must(t, dir, author, "git", "init", "-q")
	write("README", "")
	commit()

	write("weir.yaml", rules)
	out, err := reports()
	require.NoError(t, err, "without a pull request and without tests: %s", out)
	assert.Equal(t, "<!-- weir -->\n\n**weir check**\n\n    weir.yaml: good\n", out)

	base = "HEAD"
	out, err = reports()
	require.NoError(t, err, out)
	assert.Contains(t, out, "weir.yaml is a new file.")
	commit()

	write("weir.test.yaml", "rules: weir.yaml\ntests:\n- name: five\n  steps: [{request: POST /login, times: 5, expect: allowed}]\n")
	out, err = reports()
	require.NoError(t, err, out)
	assert.Contains(t, out, "**weir test**\n\n    ok ")

	write("weir.yaml", strings.Replace(rules, "5/m", "3/m", 1))
	out, err = reports()
	require.Error(t, err, "a test fails")
	assert.Contains(t, out, "**weir diff**\n\n    endpoints.\"POST /login\": limit 5/1m → 3/1m")
	assert.Contains(t, out, "**weir test**: failed\n\n    weir.test.yaml:4:")

	write("weir.yaml", strings.Replace(rules, "5/m", "5/q", 1))
	out, err = reports()
	require.Error(t, err)
	assert.Contains(t, out, "**weir check**: failed\n\n    weir.yaml:4:18: ")

	commit()
	write("weir.yaml", rules)
	out, err = reports()
	require.NoError(t, err, "a change that mends bad rules is good: %s", out)
	assert.Contains(t, out, "**weir diff**: failed")
	assert.Equal(t, 1, strings.Count(must(t, dir, nil, "git", "worktree", "list"), "\n"), "the old files are gone")
}
