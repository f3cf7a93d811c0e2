package promlimit_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/offenders"
	"github.com/weirgo/weir/observe/promlimit"
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

// A telling store says of itself what it was told to.
type telling struct {
	limiter.Store
	health failover.Stats
	memory limiter.MemoryStats
}

func (*telling) Kind() string                 { return "redis" }
func (s *telling) Health() failover.Stats     { return s.health }
func (s *telling) Stats() limiter.MemoryStats { return s.memory }

// A written file has rules that were loaded so often, or refused.
type written struct {
	loaded, refused uint64
	err             error
	list            *shared
}

func (w *written) Reloads() (loaded, refused uint64, last time.Time, err error) {
	return w.loaded, w.refused, time.Time{}, w.err
}
func (w *written) Bans() bans.List { return w.list }

// shared is a list that processes share, or have not for so long.
type shared struct {
	bans.List
	stale time.Duration
}

func (s *shared) Stale() time.Duration { return s.stale }

func TestEveryMetricMoves(t *testing.T) {
	store, file := &telling{}, &written{list: &shared{List: bans.Must(bans.New(bans.Options{}))}}
	top := offenders.Must(offenders.New(offenders.Options{ShowKeys: true}))
	metrics := newMetrics(t, promlimit.Options{Store: store, Top: top})
	assert.NotContains(t, samples(t, metrics), "rate_limit_last_reload_successful", "what is not known has no series")
	metrics.Follow(file)
	before := samples(t, metrics)
	assert.Equal(t, 1.0, before["rate_limit_last_reload_successful"])

	store.health = failover.Stats{Degraded: true, DegradedInAll: time.Minute, Failures: 2, Decided: 3, Local: 4, Open: 5, Closed: 6}
	store.memory = limiter.MemoryStats{Bytes: 2, Evicted: 3, Overflowed: 4}
	*file = written{2, 1, errors.New("line 3"), file.list}
	file.list.stale = 90 * time.Second
	require.NoError(t, file.list.Ban(t.Context(), "mallory", 0))
	o := observation(t, "ip", "")
	o.Elapsed = time.Millisecond
	metrics.Observe(o)
	o.Err = errors.New("no answer")
	metrics.Observe(o)
	o = observation(t, "ip", "")
	o.Rules[0].Allowed, o.Rules[0].Key = false, "203.0.113.9"
	middleware.Observers(metrics, top).Observe(o)
	now := samples(t, metrics)
	for name, want := range map[string]float64{
		`rate_limit_bans_active`: 1, `rate_limit_bans_stale_seconds`: 90,
		`rate_limit_exceeded_total{rule="ip"}`: 1, `rate_limit_top_client_refused{client="203.0.113.9",rule="ip"}`: 1, `rate_limit_reloads_total{result="loaded"}`: 2, `rate_limit_reloads_total{result="refused"}`: 1,
		`rate_limit_last_reload_successful`:  0,
		`rate_limit_degraded{store="redis"}`: 1, `rate_limit_store_failures_total{store="redis"}`: 2, `rate_limit_store_errors_total{store="redis"}`: 1,
		`rate_limit_store_decisions_total{by="server",store="redis"}`: 3, `rate_limit_store_decisions_total{by="fail_closed",store="redis"}`: 6,
		`rate_limit_table_overflowed_total`: 4,
	} {
		assert.Equal(t, want, now[name], name)
	}
	moved := map[string]bool{}
	for name, value := range now {
		if value != before[name] {
			family, _, _ := strings.Cut(name, "{")
			moved[family] = true
		}
	}
	for _, name := range names(metrics) {
		switch {
		case strings.HasPrefix(name, "rate_limit_overload"): // in TestWhatTheServiceHasRoomForIsShown
		case strings.HasPrefix(name, "rate_limit_concurrency"): // in TestWhatIsInProgressAndWaitsIsShown
		case name == "rate_limit_units_total": // in TestUnitsOfARuleThatReserves
		case strings.HasPrefix(name, "rate_limit_pace"): // in TestEveryMetricOfRequestsToOthersMoves
		default:
			assert.True(t, moved[name], "%s has not moved", name)
		}
	}
}
