package promlimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/observe/promlimit"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
)

var descName = regexp.MustCompile(`fqName: "([^"]+)"`)

// names are those that a Metrics may have.
func names(m *promlimit.Metrics) []string {
	descs := make(chan *prometheus.Desc, 100)
	m.Describe(descs)
	close(descs)
	var all []string
	for d := range descs {
		all = append(all, descName.FindStringSubmatch(d.String())[1])
	}
	return all
}

const someRules = `
version: 1
default: {limit: 2/1h, key: "apikey:X-Api-Key", escalate: {after: 3, within: 1h, ban: 1h}}
endpoints:
  "/pay": {limit: 100/1h, on_outage: closed}
  "/new": {limit: 1/1h, mode: shadow}
`

// TestEveryMetricMoves does to a limiter what can be done to it, Redis taken from it and
// all, and looks for a metric that none of it has changed.
func TestEveryMetricMoves(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	store := redisstore.New(client, redisstore.Options{Failover: failover.Options{
		Deadline: time.Second, Failures: 2, ProbeEvery: 20 * time.Millisecond, OnDegraded: func(failover.Event) {},
	}})
	inRedis := newMetrics(t, promlimit.Options{Store: store})
	file := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(file, []byte(someRules), 0o600))
	watcher, err := rules.Watch(context.Background(), file, rules.Options{
		Poll: 100 * time.Millisecond, Config: middleware.Config{Store: store, Observer: inRedis}, OnReload: func(rules.Reload) {},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, watcher.Close()) })
	require.NoError(t, inRedis.Follow(watcher))
	mux := http.NewServeMux()
	for _, path := range []string{"/", "/pay", "/new"} {
		mux.Handle(path, noop)
	}
	h := watcher.RateLimit.Handler(mux)

	memory, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 1000})
	require.NoError(t, err)
	inMemory := newMetrics(t, promlimit.Options{Store: memory})
	crowd := middleware.Must(middleware.New(middleware.Config{
		Store: memory, Observer: inMemory,
		Rules: []middleware.Rule{{Name: "key", Key: keyfunc.APIKey("X-Api-Key"), Limit: limiter.PerHour(10).With(limiter.SlidingLog)}},
	})).Handler(noop)

	before := samples(t, inRedis, inMemory)
	moved := map[string]bool{}
	note := func() map[string]float64 {
		now := samples(t, inRedis, inMemory)
		for name, value := range now {
			if value != before[name] {
				family, _, _ := strings.Cut(name, "{")
				moved[family] = true
			}
		}
		return now
	}

	for range 8 { // 2 pass, 3 are refused, then it is banned
		ask(h, "/", "mallory", "")
	}
	ask(h, "/new", "", "")
	ask(h, "/new", "", "")
	now := note()
	assert.Equal(t, 1.0, now["rate_limit_bans_active"])
	assert.Equal(t, 1.0, now[`rate_limit_breaker_state{state="closed",store="redis"}`])
	assert.Zero(t, now["rate_limit_redis_errors_total"])

	server.Kill()
	for range 3 {
		require.Equal(t, http.StatusServiceUnavailable, ask(h, "/pay", "", ""))
	}
	now = note()
	assert.Equal(t, 1.0, now[`rate_limit_degraded{store="redis"}`])
	assert.Equal(t, 1.0, now[`rate_limit_breaker_state{state="open",store="redis"}`])
	assert.Equal(t, 3.0, now[`rate_limit_store_errors_total{store="redis"}`])
	assert.GreaterOrEqual(t, now[`rate_limit_store_decisions_total{by="fail_closed",store="redis"}`], 2.0, "a word of its own: the breaker is closed when all is well")
	assert.GreaterOrEqual(t, now["rate_limit_redis_errors_total"], 2.0)
	server.Restart()
	eventually(t, "Redis is back", func() bool { return ask(h, "/pay", "", "") == http.StatusOK })
	now = note()
	assert.Zero(t, now[`rate_limit_degraded{store="redis"}`])
	assert.Greater(t, now[`rate_limit_degraded_seconds_total{store="redis"}`], 0.0)

	require.NoError(t, os.WriteFile(file, []byte("version: 1\nunheard: of\n"), 0o600))
	eventually(t, "the file is refused", func() bool { return watcher.Status().Refused > 0 })
	now = note()
	assert.Zero(t, now["rate_limit_last_reload_successful"])
	require.NoError(t, os.WriteFile(file, []byte(someRules+"# again\n"), 0o600))
	eventually(t, "the file is loaded", func() bool { return watcher.Status().Loads > 1 })
	note()

	for i := range 20_000 {
		ask(crowd, "/", fmt.Sprint(i), "")
	}
	for i := range 20_000 { // once most are refused, new ones share a counter
		for range 11 {
			if ask(crowd, "/", fmt.Sprint("refused", i), "") != http.StatusOK {
				break
			}
		}
		if memory.Stats().Overflowed > 0 {
			break
		}
	}
	note()

	moved["rate_limit_rules_over_cap_total"] = true // in TestRulesBeyondTheCapShareASeries
	moved["rate_limit_bans_stale_seconds"] = true   // in TestHowStaleBansAreIsShown
	for _, name := range names(inRedis) {
		if strings.HasPrefix(name, "rate_limit_overload") {
			continue // in TestWhatTheServiceHasRoomForIsShown
		}
		if strings.HasPrefix(name, "rate_limit_concurrency") {
			continue // in TestWhatIsInProgressAndWaitsIsShown
		}
		if strings.HasPrefix(name, "rate_limit_pace") {
			continue // in TestEveryMetricOfRequestsToOthersMoves
		}
		assert.True(t, moved[name], "%s has not moved", name)
	}
}

// shared is a list that processes share, or have not for so long.
type shared struct {
	bans.List
	stale time.Duration
}

func (s *shared) Stale() time.Duration { return s.stale }

func TestHowStaleBansAreIsShown(t *testing.T) {
	alone, err := bans.New(bans.Options{})
	require.NoError(t, err)
	assert.NotContains(t, samples(t, newMetrics(t, promlimit.Options{Bans: alone})), "rate_limit_bans_stale_seconds")
	list := &shared{List: alone}
	m := newMetrics(t, promlimit.Options{Bans: list})
	assert.Contains(t, samples(t, m), "rate_limit_bans_stale_seconds")
	assert.Zero(t, samples(t, m)["rate_limit_bans_stale_seconds"])
	list.stale = 90 * time.Second
	assert.Equal(t, 90.0, samples(t, m)["rate_limit_bans_stale_seconds"])

	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	inRedis, err := redisbans.New(t.Context(), client, redisbans.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	assert.Positive(t, samples(t, newMetrics(t, promlimit.Options{Bans: inRedis}))["rate_limit_bans_stale_seconds"], "never read is not current")
}

func TestAnOutageThatNobodyLookedAtIsCounted(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		memory, err := limiter.NewMemory(limiter.MemoryOptions{})
		require.NoError(t, err)
		inner := &breakable{Store: memory}
		store := failover.Must(failover.New(inner, failover.Options{Failures: 1, OnDegraded: func(failover.Event) {}}))
		metrics := newMetrics(t, promlimit.Options{Store: store})
		h := middleware.Must(middleware.New(middleware.Config{
			Observer: metrics, Store: store, Rules: []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(1_000_000)}},
		})).Handler(noop)
		seconds := func() float64 { return samples(t, metrics)[`rate_limit_degraded_seconds_total{store="other"}`] }

		ask(h, "/", "", "")
		time.Sleep(time.Minute)
		assert.Zero(t, seconds())
		for outage := 1.0; outage <= 2; outage++ {
			inner.broken.Store(true)
			ask(h, "/", "", "")
			for range 999 { // for 10 seconds
				time.Sleep(10 * time.Millisecond)
				ask(h, "/", "", "")
			}
			inner.broken.Store(false)
			time.Sleep(time.Second) // between probes
			ask(h, "/", "", "")
			synctest.Wait()
			require.False(t, store.Stats().Degraded)
			time.Sleep(time.Minute)
			assert.InDelta(t, 11*outage, seconds(), 0.1*outage)
		}
		assert.Zero(t, samples(t, metrics)[`rate_limit_degraded{store="other"}`])
	})
}

// A breakable store fails while it is broken.
type breakable struct {
	limiter.Store
	broken atomic.Bool
}

func (b *breakable) Decide(ctx context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	if b.broken.Load() {
		return errors.New("broken")
	}
	return b.Store.Decide(ctx, charges, decisions)
}
