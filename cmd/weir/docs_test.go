package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

var (
	filesOfPage    = regexp.MustCompile("(?s)<!-- file: ([^ ]+) -->\n```yaml\n(.*?)```\n")
	consolesOfPage = regexp.MustCompile("(?s)```console\n(.*?)```\n")
)

// Commands write the output that docs/command.md shows. "..." stands for anything within a line.
func TestTheExamplesOfThePageAreTrue(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("they are for a shell")
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("they are for bash")
	}
	page, err := os.ReadFile("../../docs/command.md")
	require.NoError(t, err)
	for _, c := range commands() {
		assert.Regexp(t, "(?s)(`|weir )"+c.name+"\\b", string(page), "the page has each command")
	}
	url, client := startRedis(t)
	store, limit := patientStore(t, client, ""), limiter.PerMinute(100).With(limiter.SlidingLog)

	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(dir, "weir")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "keys.txt"), []byte("user:41\nuser:42\n"), 0o600))
	for _, file := range filesOfPage.FindAllStringSubmatch(string(page), -1) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file[1]), []byte(file[2]), 0o600))
	}
	consoles := consolesOfPage.FindAllStringSubmatch(string(page), -1)
	require.Len(t, consoles, 3)
	for _, console := range consoles {
		for _, part := range strings.Split(console[1], "$ ")[1:] {
			line, want, _ := strings.Cut(part, "\n")
			if strings.HasPrefix(line, "weir peek") || strings.HasPrefix(line, "weir top") { // all in this minute
				require.NoError(t, client.FlushDB(t.Context()).Err())
				use(t, store, "", limit, "user:42", 80)
			}
			cmd := exec.Command(bash, "-c", line)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0", "PATH="+dir+":"+os.Getenv("PATH"), "WEIR_REDIS="+strings.TrimPrefix(url, "--redis="), "WEIR_SECRET=", "TZ=UTC")
			got, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s\n%s", line, got)
			pattern := strings.ReplaceAll(regexp.QuoteMeta(want), `\.\.\.`, `[^\n]+`)
			assert.Regexp(t, "^"+pattern+"$", string(got), line)
		}
	}
}
