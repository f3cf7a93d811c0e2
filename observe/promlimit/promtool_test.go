package promlimit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
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

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/offenders"
	"github.com/weirgo/weir/observe/promlimit"
	"github.com/weirgo/weir/pace"
)

const example = "../../_examples/observability/"

// promtool runs a command that has to succeed.
func promtool(t testing.TB, stdin []byte, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("promtool is not installed; install it with: apt-get install prometheus (Debian, Ubuntu) or brew install prometheus (macOS)")
	}
	require.NoError(t, err)
	cmd := exec.Command(path, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "promtool %s:\n%s", strings.Join(args, " "), out)
}

// A named Metrics says what it is of.
type named struct {
	*promlimit.Metrics
	kind string
}

// everything is Metrics that have all there can be between them.
func everything(t testing.TB, memory *limiter.Memory) []named {
	list := &shared{List: bans.Must(bans.New(bans.Options{}))}
	top := offenders.Must(offenders.New(offenders.Options{}))
	top.Count("ip", "203.0.113.9", true)
	inRedis := newMetrics(t, promlimit.Options{Store: &telling{}, Bans: list, Top: top})
	inRedis.Follow(&written{})
	inMemory := newMetrics(t, promlimit.Options{Store: memory})
	for _, m := range []middleware.Observer{inRedis, inMemory} {
		m.Observe(observation(t, "ip", "premium"))
	}
	transport := pace.Must(pace.NewTransport(nil, pace.Options{Rules: []pace.Rule{{Host: "api.example.org", Limit: limiter.PerSecond(1)}}}))
	inMemory.FollowTransport(transport)
	inMemory.ObserveAttempt(&pace.Observation{Rule: "api.example.org"})
	placing := middleware.Must(middleware.New(middleware.Config{
		Overload: shed.Must(shed.New(shed.Options{})),
		Rules: []middleware.Rule{
			{Name: "exports", Key: keyfunc.Global, Limit: limiter.AtOnce(1)},
			{Name: "tokens", Key: keyfunc.Global, Limit: limiter.PerHour(9), Cost: middleware.Reserve(func(*http.Request) int64 { return 2 })},
		},
	}))
	inMemory.FollowLimiter(placing)
	return []named{{inRedis, "redis"}, {inMemory, "memory"}}
}

func TestNamesPassPromtool(t *testing.T) {
	memory := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
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

func read(t testing.TB, name string) string {
	text, err := os.ReadFile(example + name)
	require.NoError(t, err)
	return string(text)
}

func TestAlertsSayWhatTheyShould(t *testing.T) {
	promtool(t, nil, "check", "config", example+"prometheus.yml")
	promtool(t, nil, "check", "rules", example+"alerts.yml")
	promtool(t, nil, "test", "rules", example+"alerts_test.yml", example+"traffic_test.yml")
	tests := read(t, "alerts_test.yml") + read(t, "traffic_test.yml")
	_, blip, ok := strings.Cut(read(t, "alerts_test.yml"), "- name: a blip of one second")
	require.True(t, ok)
	blip, _, _ = strings.Cut(blip, "- name: ")
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(read(t, "alerts.yml"), -1)
	require.NotEmpty(t, alerts)
	for _, alert := range alerts {
		fires := regexp.MustCompile(`alertname: ` + alert[1] + `,?\s+exp_alerts:\s+(- |\[\{)exp_labels`)
		assert.Regexp(t, fires, tests, "a test sees it fire")
		assert.Contains(t, blip, "alertname: "+alert[1]+", exp_alerts: []", "a test sees that a blip does not make it fire")
	}
	assert.Len(t, regexp.MustCompile(`(?m)^ +for: \d+m$`).FindAllString(read(t, "alerts.yml"), -1), len(alerts), "each waits")
}

func TestTheDashboardAsksForMetricsThatThereAre(t *testing.T) {
	type target struct{ Expr string }
	var d struct { // what Grafana imports
		Panels []struct {
			Title       string
			Targets     []target
			FieldConfig struct{ Defaults struct{ NoValue string } }
		}
		Annotations struct{ List []target }
		Templating  struct {
			List []struct {
				Name  string
				Query any // a text or, of metrics, an object
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "grafana-dashboard.json")), &d))
	var expressions []string
	for _, p := range d.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		assert.Equal(t, "no data", p.FieldConfig.Defaults.NoValue, "what is unknown in %s is not 0", p.Title)
		d.Annotations.List = append(d.Annotations.List, p.Targets...)
	}
	for _, target := range d.Annotations.List {
		expressions = append(expressions, target.Expr)
	}
	require.NotEmpty(t, expressions)
	known := names(newMetrics(t, promlimit.Options{}))
	for _, histogram := range []string{"rate_limit_latency_seconds", "rate_limit_pace_wait_seconds"} {
		known = append(known, histogram+"_bucket", histogram+"_count")
	}
	variables, err := json.Marshal(d.Templating)
	require.NoError(t, err)
	asked := strings.Join(expressions, "\n") + read(t, "alerts.yml") + string(variables)
	metrics := regexp.MustCompile(`(?:^|[^:\w])((?:rate_limit|redis)_\w+)`).FindAllStringSubmatch(asked, -1)
	for _, name := range metrics {
		assert.True(t, slices.Contains(known, name[1]), name[1])
	}
	for _, name := range regexp.MustCompile(`\bjob:\w+:\w+`).FindAllString(asked, -1) {
		assert.Contains(t, read(t, "alerts.yml"), "record: "+name)
	}
	// Recording rules with these expressions are a file that promtool can check.
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i, e := range expressions {
		assert.NotRegexp(t, `\bvector\(|\babsent`, e, "it says 0 of what is not known")
		for _, over := range regexp.MustCompile(`rate\([^[]*\[([^]]+)]`).FindAllStringSubmatch(e, -1) {
			assert.Equal(t, "$__rate_interval", over[1], "%s goes by the time between scrapes", e)
		}
		sent := strings.NewReplacer("$job", ".*", "$__rate_interval", "1m").Replace(e) // by Grafana
		fmt.Fprintf(&rules, "      - {record: \"dashboard:%d\", expr: %q}\n", i, sent)
		assert.NotContains(t, sent, "$", "there is no such variable")
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	require.NoError(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	promtool(t, nil, "check", "rules", file)
}
