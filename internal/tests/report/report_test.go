// Package report_test looks at the reports of weir simulate and weir recommend in a browser, as
// files, as whoever was sent one does.
package report_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/tests/browser"
)

// command is the command, built of its sources.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "weir-command-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "weir")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = "../../../cmd/weir"
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := command(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

const rules = `version: 1
endpoints:
  "GET /articles/{id}": {limit: 6/1m}
  "POST /login": {limit: 10/1m, escalate: {after: 20, within: 10m, ban: 1h}}
  "/static/*": {limit: 4/1s, mode: shadow}
default: 5/1m
`

// logName is what a hostile sender of a log calls it.
const logName = `<img src=x onerror=window.hit=1>.log`

// report is the address of a report about made up traffic: weir with these arguments.
func report(t *testing.T, args ...string) string {
	t.Helper()
	weir, err := command()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "limits.yaml"), []byte(rules), 0o600))
	var log strings.Builder
	random := rand.New(rand.NewPCG(1, 2))
	paths := []string{"GET /articles/7", "POST /login", "GET /static/a.css", "POST /search", "GET /"}
	at := time.Date(2026, 11, 22, 7, 0, 0, 0, time.UTC)
	for range 5000 {
		client := min(random.IntN(60), random.IntN(60)) // some ask for more than others
		fmt.Fprintf(&log, "192.0.2.%d - - [%s] \"%s HTTP/1.1\" 200 12 \"-\" \"agent\"\n", client, at.Format("02/Jan/2006:15:04:05 -0700"), paths[random.IntN(len(paths))])
		at = at.Add(time.Duration(random.IntN(600)) * time.Millisecond)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, logName), []byte(log.String()), 0o600))
	run := exec.CommandContext(t.Context(), weir, append(args, "--report", "report.html")...)
	run.Dir = dir
	said, err := run.CombinedOutput()
	path := filepath.Join(dir, "report.html")
	require.FileExists(t, path, "%v: %s", err, said) // what is found may be an exit code
	return (&url.URL{Scheme: "file", Path: path}).String()
}

func simulated(t *testing.T) string   { return report(t, "simulate", "limits.yaml", logName) }
func recommended(t *testing.T) string { return report(t, "recommend", logName) }

func TestTheAnswerIsInTheFirstViewportOnEveryScreen(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]string{"simulated": simulated(t), "recommended": recommended(t)} {
		b := browser.Open(t, page, 1280, 800, false)
		assert.NotEmpty(t, b.Text("h1"))
		for dark, widths := range map[bool][]int64{false: {320, 390, 800, 1280, 3840}, true: {320, 1280}} { // which changes no layout
			for _, width := range widths {
				b.Look(width, 800, dark)
				assert.LessOrEqual(t, browser.Eval[int64](b, "document.documentElement.scrollWidth"), width, "%s at %d: nothing is beyond the edge", name, width)
				assert.LessOrEqual(t, browser.Eval[float64](b, `document.querySelector("#detail").getBoundingClientRect().bottom`), 800.0, "%s at %d", name, width)
				b.Picture(fmt.Sprintf("%s-%d-%t", name, width, dark))
			}
		}
		assert.Len(t, b.Requests(), 1, "the page alone")
		assert.Contains(t, b.Text("body"), logName)
		b.Run(`const s = document.createElement("script"); try { s.textContent = "window.hit = 1"; document.body.append(s) } catch {}`)
		assert.True(t, browser.Eval[bool](b, `window.hit === undefined && document.images.length === 0`), "what a log says is text")
	}
}
