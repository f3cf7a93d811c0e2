package promlimit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/promlimit"
	"github.com/weirgo/weir/pace"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
)

// A named Metrics says what it is of.
type named struct {
	*promlimit.Metrics
	kind string
}

// everything is Metrics that have all there can be between them. Their Redis is down.
func everything(t testing.TB, memory *limiter.Memory) []named {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	store := redisstore.New(client, redisstore.Options{})
	list, err := redisbans.New(t.Context(), client, redisbans.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	inRedis := newMetrics(t, promlimit.Options{Store: store, Bans: list})
	file := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(file, []byte(someRules), 0o600))
	watcher, err := rules.Watch(context.Background(), file, rules.Options{OnReload: func(rules.Reload) {}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = watcher.Close() })
	require.NoError(t, inRedis.Follow(watcher))
	inMemory := newMetrics(t, promlimit.Options{Store: memory, Overload: shed.Must(shed.New(shed.Options{}))})
	for _, m := range []middleware.Observer{inRedis, inMemory} {
		m.Observe(observation(t, "ip", "premium"))
	}
	transport := pace.Must(pace.NewTransport(nil, pace.Options{Rules: []pace.Rule{{Host: "api.example.org", Limit: limiter.PerSecond(1)}}}))
	require.NoError(t, inMemory.FollowTransport(transport))
	inMemory.ObserveAttempt(&pace.Observation{Rule: "api.example.org"})
	placing := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{{Name: "exports", Limit: limiter.AtOnce(1)}}}))
	require.NoError(t, inMemory.FollowLimiter(placing))
	return []named{{inRedis, "redis"}, {inMemory, "memory"}}
}

// run starts a program that ends with the test, and returns what it writes.
func run(t *testing.T, path string, args ...string) *bufio.Reader {
	t.Helper()
	cmd := exec.Command(path, args...)
	out, in, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = in, in
	require.NoError(t, cmd.Start())
	require.NoError(t, in.Close())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
	})
	return bufio.NewReader(out)
}

// A promServer is a Prometheus that scrapes the example.
type promServer struct {
	t      *testing.T
	url    string
	client http.Client
}

func (p *promServer) get(path string, query url.Values, into any) bool {
	response, err := p.client.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		return false
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		if response.StatusCode == http.StatusBadRequest {
			p.t.Errorf("%s: %s", query, text)
		}
		return false
	}
	return json.NewDecoder(response.Body).Decode(into) == nil
}

// query is the vector of an expression: values as text by rule, or by "".
func (p *promServer) query(expression string) map[string]string {
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  []any
			}
		}
	}
	if !p.get("/api/v1/query", url.Values{"query": {expression}}, &answer) {
		return nil
	}
	values := map[string]string{}
	for _, r := range answer.Data.Result {
		values[r.Metric["rule"]] = r.Value[1].(string)
	}
	return values
}

// firing are the alerts that do.
func (p *promServer) firing() (names []string) {
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	p.get("/api/v1/alerts", nil, &answer)
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names
}

// scrape starts a Prometheus with the example's configuration, on a service somewhere else.
func scrape(t *testing.T, service string) *promServer {
	folder := t.TempDir()
	for _, name := range []string{"prometheus.yml", "alerts.yml"} {
		text, err := os.ReadFile(example + name)
		require.NoError(t, err)
		moved := strings.Replace(string(text), "127.0.0.1:8080", strings.TrimPrefix(service, "http://"), 1)
		soon := regexp.MustCompile(`(?m)^( +for): \d+m$`).ReplaceAllString(moved, "$1: 1s") // alerts_test.yml tests for how long
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(soon), 0o600))
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().String()
	require.NoError(t, free.Close())
	log := run(t, program(t, "prometheus"), "--config.file="+filepath.Join(folder, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+addr)
	go func() { _, _ = io.Copy(io.Discard, log) }()
	p := &promServer{t: t, url: "http://" + addr}
	t.Cleanup(p.client.CloseIdleConnections)
	return p
}

// TestTheExampleShowsWhoIsWhoAndThatRedisStopped runs the example as an operator would: its
// mixed load, a Redis, a Prometheus and what the dashboard asks it.
func TestTheExampleShowsWhoIsWhoAndThatRedisStopped(t *testing.T) {
	program(t, "prometheus")
	service := filepath.Join(t.TempDir(), "observability")
	out, err := exec.Command("go", "build", "-o", service, example).CombinedOutput()
	require.NoError(t, err, string(out))
	server := redistest.Start(t)
	log := run(t, service, "-addr", "127.0.0.1:0", "-redis", server.Addr)
	var url string
	for url == "" {
		line, err := log.ReadString('\n')
		require.NoError(t, err)
		if _, after, ok := strings.Cut(line, "listening on "); ok {
			url = strings.TrimSpace(after)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	p := scrape(t, url)

	// A Prometheus that starts takes five seconds to find out what it is to scrape.
	eventually(t, "Prometheus scrapes", func() bool { return p.query("up == 1")[""] != "" })
	began := time.Now()
	var refused map[string]string
	eventually(t, "rules refuse", func() bool {
		refused = p.query(`sum by (rule) (rate(rate_limit_exceeded_total[5s])) > 1`)
		return refused["ip"] != "" && refused["tenant"] != ""
	})
	t.Logf("seen %v after the first scrape", time.Since(began))
	assert.Empty(t, refused["search"], "nobody asks for that")
	assert.Empty(t, refused["ip-next"], "in shadow")
	d, _ := readDashboard(t)
	for _, panel := range d.Panels {
		shown := func() bool {
			return slices.ContainsFunc(panel.Targets, func(target struct{ Expr string }) bool { return len(p.query(asSent(target.Expr, "5s"))) > 0 })
		}
		if regexp.MustCompile(`table|At the cap|Reloads`).MatchString(panel.Title) { // of a store in memory, and of a rules file
			assert.False(t, shown(), "%s: what the example has not is not 0", panel.Title)
			continue
		}
		eventually(t, panel.Title, shown)
	}
	assert.NotContains(t, strings.Join(p.firing(), " "), "RateLimitDegraded")
	assert.NotContains(t, strings.Join(p.firing(), " "), "RateLimitRedisErrors")

	server.Kill()
	eventually(t, "alerts fire", func() bool {
		firing := strings.Join(p.firing(), " ")
		return strings.Contains(firing, "RateLimitDegraded") && strings.Contains(firing, "RateLimitRedisErrors")
	})
	assert.Equal(t, "1", p.query("rate_limit_degraded")[""])
	server.Restart()
	eventually(t, "the alert is over", func() bool { return !strings.Contains(strings.Join(p.firing(), " "), "Degraded") })
}
