package promlimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/promlimit"
	"github.com/weirgo/weir/pace"
)

func TestMain(m *testing.M) { leak.VerifyMain(m) }

func newMetrics(t testing.TB, o promlimit.Options) *promlimit.Metrics {
	m := promlimit.Must(promlimit.New(o))
	return m
}

// samples is what Prometheus reads: values by name and labels, of a histogram its count.
func samples(t testing.TB, collectors ...prometheus.Collector) map[string]float64 {
	values := map[string]float64{}
	for _, c := range collectors {
		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(c))
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
				sort.Strings(labels)
				name := f.GetName()
				if len(labels) > 0 {
					name += "{" + strings.Join(labels, ",") + "}"
				}
				values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return values
}

// ask sends a request with an API key and a tier through a limiter.
func ask(h http.Handler, path, key, tier string) int {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(middleware.WithTier(r.Context(), tier)))
	return w.Code
}

func TestWhatEachRuleSaysIsCountedByTier(t *testing.T) {
	metrics := newMetrics(t, promlimit.Options{})
	l := middleware.Must(middleware.New(middleware.Config{
		Observer: metrics,
		Allow:    middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
		Bans:     middleware.Bans{Deny: middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/wp-admin" })},
		Rules: []middleware.Rule{
			{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(100).With(limiter.SlidingLog)},
			{Name: "key", Key: keyfunc.APIKey("X-Api-Key"), NoKey: middleware.NoKeyUnauthorized, Limit: limiter.PerHour(1).With(limiter.SlidingLog),
				Tiers: middleware.Tiers{"premium": limiter.PerHour(2).With(limiter.SlidingLog)}},
			{Name: "new", Key: keyfunc.Global, Limit: limiter.PerHour(2).With(limiter.SlidingLog), Mode: middleware.Shadow},
		},
	}))
	h := l.Handler(noop)
	for range 3 {
		ask(h, "/", "finn", "")
	}
	for range 4 {
		ask(h, "/", "carla", "premium")
	}
	ask(h, "/", "", "")
	ask(h, "/healthz", "", "")
	ask(h, "/wp-admin", "", "")

	got := samples(t, metrics)
	for name, want := range map[string]float64{
		`rate_limit_requests_total{decision="allowed",rule="all",tier=""}`:        7,
		`rate_limit_requests_total{decision="allowed",rule="key",tier=""}`:        1,
		`rate_limit_requests_total{decision="refused",rule="key",tier=""}`:        2,
		`rate_limit_requests_total{decision="allowed",rule="key",tier="premium"}`: 2,
		`rate_limit_requests_total{decision="refused",rule="key",tier="premium"}`: 2,
		`rate_limit_requests_total{decision="refused",rule="all",tier=""}`:        0,
		`rate_limit_requests_total{decision="refused",rule="new",tier=""}`:        0,
		`rate_limit_requests_total{decision="shadow_refused",rule="new",tier=""}`: 3,
		`rate_limit_outcomes_total{outcome="allowed"}`:                            3, // a refusal in shadow is none
		`rate_limit_outcomes_total{outcome="refused"}`:                            4,
		`rate_limit_outcomes_total{outcome="no_key"}`:                             1,
		`rate_limit_outcomes_total{outcome="exempt"}`:                             1,
		`rate_limit_outcomes_total{outcome="banned"}`:                             1,
	} {
		value, ok := got[name]
		require.True(t, ok, name)
		assert.Equal(t, want, value, name)
	}
	for name := range got {
		assert.NotContains(t, name, "finn", "a key is no label")
		assert.NotContains(t, name, "redis", "the store is in memory")
	}
}

func TestRulesBeyondTheCapShareASeries(t *testing.T) {
	metrics := newMetrics(t, promlimit.Options{MaxRules: 2})
	for i := range 100 {
		metrics.Observe(observation(t, fmt.Sprint("rule", i), ""))
		metrics.ObserveAttempt(&pace.Observation{Rule: fmt.Sprint("rule", i), Outcome: pace.OutcomeServed})
	}
	got := samples(t, metrics)
	assert.Equal(t, 98.0, got[`rate_limit_pace_attempts_total{outcome="served",rule="other"}`])
	assert.Equal(t, 98.0, got[`rate_limit_pace_wait_seconds{rule="other"}`])
	assert.Equal(t, 98.0, got[`rate_limit_requests_total{decision="allowed",rule="other",tier=""}`])
	series := 0
	for name := range got {
		if strings.HasPrefix(name, "rate_limit_requests_total{") {
			series++
		}
	}
	assert.Equal(t, 3*4, series, "two rules and other, four decisions each")
}

func TestReloadsKeepARulesSeriesAndARuleNamedOtherSharesIt(t *testing.T) {
	metrics := newMetrics(t, promlimit.Options{MaxRules: 1})
	for range 1000 { // many more quotas than are remembered
		metrics.Observe(observation(t, "other", ""))
	}
	const series = `rate_limit_requests_total{decision="allowed",rule="other",tier=""}`
	got := samples(t, metrics)
	assert.Equal(t, 1000.0, got[series])
	metrics.Observe(observation(t, "ip", ""))
	assert.Equal(t, 1001.0, samples(t, metrics)[series])
}

func TestWhatIsNotThereCannotBeFollowed(t *testing.T) {
	assert.Panics(t, func() { promlimit.Must(promlimit.New(promlimit.Options{MaxRules: -1})) })
	metrics := newMetrics(t, promlimit.Options{})
	assert.Panics(t, func() { metrics.Follow(nil) })
	assert.Panics(t, func() { metrics.Follow((*written)(nil)) })
	assert.Panics(t, func() { metrics.FollowLimiter(nil) })
	assert.Panics(t, func() { metrics.FollowTransport(nil) })
}

// Five times as much is asked of a service as it can do.
func TestWhatTheServiceHasRoomForIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overload := shed.Must(shed.New(shed.Options{Priority: []string{"premium"}}))
		m := newMetrics(t, promlimit.Options{})
		m.FollowLimiter(middleware.Must(middleware.New(middleware.Config{Overload: overload})))
		before := samples(t, m)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		premium, _ := overload.Admit(r.WithContext(middleware.WithTier(t.Context(), "premium")))
		workers := make(chan struct{}, 4)
		var all sync.WaitGroup
		for range 8 * 500 {
			all.Go(func() {
				if p, _ := overload.Admit(r); p != nil {
					workers <- struct{}{}
					time.Sleep(40 * time.Millisecond)
					<-workers
					p.Leave()
				}
			})
			time.Sleep(2 * time.Millisecond)
		}
		now := samples(t, m)
		all.Wait()
		premium.Leave()
		for _, name := range []string{
			`rate_limit_overload_limit{route=""}`, `rate_limit_overload_in_flight{route=""}`,
			`rate_limit_overload_waiting{route=""}`,
			`rate_limit_overload_requests_total{decision="admitted",level="others",route=""}`,
			`rate_limit_overload_requests_total{decision="shed",level="others",route=""}`,
			`rate_limit_overload_requests_total{decision="admitted",level="premium",route=""}`,
		} {
			_, ok := before[name]
			assert.True(t, ok, name)
			assert.NotEqual(t, before[name], now[name], name)
		}
		assert.Zero(t, now[`rate_limit_overload_requests_total{decision="shed",level="premium",route=""}`])
	})
}

func TestWhatIsInProgressAndWaitsIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := newMetrics(t, promlimit.Options{})
		limits := middleware.Must(middleware.New(middleware.Config{Observer: metrics, Rules: []middleware.Rule{
			{Name: "exports", Key: keyfunc.Global, Limit: limiter.AtOnce(1).Queue(2, time.Minute)},
		}}))
		metrics.FollowLimiter(limits)
		metrics.FollowLimiter(limits) // once is enough
		h := limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(2 * time.Second) }))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) })
			synctest.Wait()
		}
		now := samples(t, metrics)
		assert.Equal(t, 1.0, now[`rate_limit_concurrency_in_progress{rule="exports",tier=""}`])
		assert.Equal(t, 2.0, now[`rate_limit_concurrency_waiting{rule="exports",tier=""}`])
		wg.Wait()
		now = samples(t, metrics)
		assert.Zero(t, now[`rate_limit_concurrency_in_progress{rule="exports",tier=""}`])
		assert.Zero(t, now[`rate_limit_concurrency_waiting{rule="exports",tier=""}`])
		assert.Equal(t, 3.0, now[`rate_limit_requests_total{decision="allowed",rule="exports",tier=""}`])
	})
}

func TestUnitsOfARuleThatReserves(t *testing.T) {
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
		{Name: "tokens", Key: keyfunc.Global, Limit: limiter.PerHour(100), Cost: middleware.Reserve(func(*http.Request) int64 { return 30 })},
	}}))
	metrics := promlimit.Must(promlimit.New(promlimit.Options{}))
	metrics.FollowLimiter(limits)
	handler := limits.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/settled" {
			assert.NoError(t, middleware.Settle(r.Context(), "tokens", 4))
		}
	}))
	for _, path := range []string{"/settled", "/"} {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	now := samples(t, metrics)
	assert.Equal(t, 60.0, now[`rate_limit_units_total{rule="tokens",state="reserved"}`])
	assert.Equal(t, 4.0, now[`rate_limit_units_total{rule="tokens",state="settled"}`])
	assert.Equal(t, 30.0, now[`rate_limit_units_total{rule="tokens",state="unsettled"}`])
}
