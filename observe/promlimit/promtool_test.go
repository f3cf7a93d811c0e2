package promlimit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/observe/promlimit"
)

const example = "../../_examples/observability/"

// program is the path of one of Prometheus's. Without it the test ends.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	message := name + " is not installed; install it with: apt-get install prometheus (Debian, Ubuntu) or brew install prometheus (macOS)"
	if os.Getenv("CI") != "" {
		t.Fatal(message)
	}
	t.Skip(message)
	return ""
}

// promtool runs a command that has to succeed.
func promtool(t testing.TB, stdin []byte, args ...string) {
	t.Helper()
	cmd := exec.Command(program(t, "promtool"), args...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "promtool %s:\n%s", strings.Join(args, " "), out)
}

func TestNamesPassPromtool(t *testing.T) {
	memory, err := limiter.NewMemory(limiter.MemoryOptions{})
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	for _, c := range everything(t, memory) {
		// Two of them have metrics in common, so each has its label, as the package says.
		labels := prometheus.Labels{"limiter": fmt.Sprint(len(c.kind), c.kind)}
		prometheus.WrapRegistererWith(labels, registry).MustRegister(c)
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	var text bytes.Buffer
	var found []string
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&text, f)
		require.NoError(t, err)
		found = append(found, f.GetName())
	}
	for _, name := range names(newMetrics(t, promlimit.Options{})) {
		assert.Contains(t, found, name, "it is to be checked too")
	}
	promtool(t, text.Bytes(), "check", "metrics")
}

func TestAlertsSayWhatTheyShould(t *testing.T) {
	promtool(t, nil, "check", "config", example+"prometheus.yml")
	promtool(t, nil, "check", "rules", example+"alerts.yml")
	promtool(t, nil, "test", "rules", example+"alerts_test.yml")
	alerts, err := os.ReadFile(example + "alerts.yml")
	require.NoError(t, err)
	tests, err := os.ReadFile(example + "alerts_test.yml")
	require.NoError(t, err)
	named := regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(string(alerts), -1)
	require.NotEmpty(t, named)
	for _, alert := range named {
		fires := regexp.MustCompile(`alertname: ` + alert[1] + `\s+exp_alerts:\s+- exp_labels`)
		assert.Regexp(t, fires, string(tests), "a test sees it fire")
	}
}

// A dashboard is what Grafana imports, as far as this test knows.
type dashboard struct {
	Panels []struct {
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
}

// readDashboard is the example's, and its expressions as Grafana sends them.
func readDashboard(t testing.TB, window string) (d dashboard, expressions []string) {
	text, err := os.ReadFile(example + "grafana-dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	for _, p := range d.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			expressions = append(expressions, strings.NewReplacer("$job", ".*", "$window", window).Replace(target.Expr))
		}
	}
	require.NotEmpty(t, expressions)
	return d, expressions
}

func TestTheDashboardAsksForMetricsThatThereAre(t *testing.T) {
	d, expressions := readDashboard(t, "1m")
	for i, p := range d.Panels {
		for _, other := range d.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			overlap := a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
			assert.False(t, overlap, "%s lies on %s", p.Title, other.Title)
		}
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
	}
	alerts, err := os.ReadFile(example + "alerts.yml")
	require.NoError(t, err)
	known := names(newMetrics(t, promlimit.Options{}))
	known = append(known, "rate_limit_latency_seconds_bucket", "rate_limit_pace_wait_seconds_bucket")
	for _, name := range regexp.MustCompile(`\b(rate_limit|redis)_\w+`).FindAllString(strings.Join(expressions, "\n")+string(alerts), -1) {
		assert.True(t, slices.Contains(known, name), name)
	}
	// Recording rules with these expressions are a file that promtool can check.
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i, e := range expressions {
		fmt.Fprintf(&rules, "      - {record: \"dashboard:%d\", expr: %q}\n", i, e)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	require.NoError(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	promtool(t, nil, "check", "rules", file)
}
