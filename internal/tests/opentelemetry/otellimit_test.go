package opentelemetry_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/offenders"
	"github.com/weirgo/weir/observe/otellimit"
)

var noop = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// A service is a limiter in a trace.
type service struct {
	t        *testing.T
	handler  http.Handler
	spans    *tracetest.SpanRecorder
	provider *sdktrace.TracerProvider
	reader   *sdkmetric.ManualReader
	observer *otellimit.Observer
}

func serve(t *testing.T, o otellimit.Options, c middleware.Config) *service {
	s := &service{t: t, spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	s.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	o.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	o.Store = c.Store
	var err error
	s.observer, err = otellimit.New(o)
	require.NoError(t, err)
	c.Observer = s.observer
	l, err := middleware.New(c)
	require.NoError(t, err)
	s.handler = l.Handler(noop)
	return s
}

// ask is a request in a span, which it returns.
func (s *service) ask(key, tier string) sdktrace.ReadOnlySpan {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Api-Key", key)
	ctx, span := s.provider.Tracer("test").Start(middleware.WithTier(r.Context(), tier), "request")
	s.handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	span.End()
	ended := s.spans.Ended()
	return ended[len(ended)-1]
}

func values(of []attribute.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range of {
		m[string(a.Key)] = a.Value.AsInterface()
	}
	return m
}

// metrics are the sums, by name and attributes.
func (s *service) metrics() map[string]float64 {
	var all metricdata.ResourceMetrics
	require.NoError(s.t, s.reader.Collect(context.Background(), &all))
	m := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			name := func(set attribute.Set) string {
				return metric.Name + " " + set.Encoded(attribute.DefaultEncoder())
			}
			switch data := metric.Data.(type) {
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					m[name(p.Attributes)] = p.Value
				}
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					m[name(p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					m[name(p.Attributes)] = float64(p.Count)
				}
			}
		}
	}
	return m
}

var byKey = middleware.Rule{
	Name: "key", Key: keyfunc.APIKey("X-Api-Key"), Limit: limiter.PerHour(1).With(limiter.SlidingLog), Tiers: middleware.Tiers{"premium": limiter.PerHour(2).With(limiter.SlidingLog)},
}

func TestTheSpanSaysWhatBecameOfTheRequest(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := serve(t, otellimit.Options{}, middleware.Config{Rules: []middleware.Rule{
			{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(100).With(limiter.SlidingLog)}, byKey, {Name: "new", Key: keyfunc.Global, Limit: limiter.PerHour(2).With(limiter.SlidingLog), Mode: middleware.Shadow},
		}})
		span := s.ask("carla", "premium")
		assert.Equal(t, map[string]any{
			"rate_limit.outcome": "allowed", "rate_limit.rule": "key", "rate_limit.tier": "premium",
			"rate_limit.limit": int64(2), "rate_limit.remaining": int64(1),
		}, values(span.Attributes()))
		assert.Empty(t, span.Events())

		s.ask("finn", "")
		span = s.ask("finn", "")
		got := values(span.Attributes())
		assert.Equal(t, "refused", got["rate_limit.outcome"])
		assert.Equal(t, "key", got["rate_limit.rule"])
		assert.NotContains(t, got, "rate_limit.tier")
		require.Len(t, span.Events(), 2)
		event := span.Events()[0]
		assert.Equal(t, "rate_limit.refused", event.Name)
		got = values(event.Attributes)
		assert.Equal(t, "key", got["rate_limit.rule"])
		assert.Equal(t, int64(1), got["rate_limit.cost"])
		assert.Positive(t, got["rate_limit.retry_after"])
		assert.Equal(t, "rate_limit.shadow_refused", span.Events()[1].Name)
		assert.Zero(t, span.Status(), "a refusal is no error")
		for _, span := range s.spans.Ended() {
			for _, a := range span.Attributes() {
				assert.NotContains(t, a.Value.Emit(), "finn")
			}
		}
	})
}

func TestTheSpanSaysWhoIsBanned(t *testing.T) {
	list, err := bans.New(bans.Options{})
	require.NoError(t, err)
	s := serve(t, otellimit.Options{}, middleware.Config{
		Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{func(*http.Request) (string, error) { return "mallory", nil }}}, Rules: []middleware.Rule{byKey},
	})
	_, err = list.Escalate(context.Background(), "mallory", "login", bans.Escalation{Ban: time.Hour, Factor: 2, Max: time.Hour})
	require.NoError(t, err)
	span := s.ask("mallory", "")
	assert.Equal(t, map[string]any{"rate_limit.outcome": "banned"}, values(span.Attributes()))
	require.Len(t, span.Events(), 1)
	got := values(span.Events()[0].Attributes)
	assert.Equal(t, "login", got["rate_limit.rule"])
	assert.InDelta(t, 3600, got["rate_limit.retry_after"], 60)
}

func TestASpanThatIsNotRecordedIsLeftAlone(t *testing.T) {
	o, err := otellimit.New(otellimit.Options{MeterProvider: noopmetric.NewMeterProvider()})
	require.NoError(t, err)
	observation := &middleware.Observation{Request: httptest.NewRequest(http.MethodGet, "/", nil), Outcome: middleware.OutcomeAllowed}
	assert.Zero(t, testing.AllocsPerRun(100, func() { o.Observe(observation) }))
	assert.NoError(t, o.Close())
}

func TestMetricsCountWhatEachRuleSays(t *testing.T) {
	s := serve(t, otellimit.Options{}, middleware.Config{Rules: []middleware.Rule{byKey}})
	for range 3 {
		s.ask("finn", "")
		s.ask("carla", "premium")
	}
	got := s.metrics()
	assert.Equal(t, 1.0, got["rate_limit.requests rate_limit.decision=allowed,rate_limit.rule=key"])
	assert.Equal(t, 2.0, got["rate_limit.requests rate_limit.decision=refused,rate_limit.rule=key"])
	assert.Equal(t, 2.0, got["rate_limit.requests rate_limit.decision=allowed,rate_limit.rule=key,rate_limit.tier=premium"])
	assert.Equal(t, 3.0, got["rate_limit.outcomes rate_limit.outcome=refused"])

	require.NoError(t, s.observer.Close())
	assert.NotContains(t, s.metrics(), "rate_limit.outcomes rate_limit.outcome=refused")
}

// A breakable store fails while it is broken.
type breakable struct {
	limiter.Store
	broken atomic.Bool
}

var errBroken = errors.New("broken")

func (b *breakable) Decide(ctx context.Context, charges []limiter.Charge) error {
	if b.broken.Load() {
		return errBroken
	}
	return b.Store.Decide(ctx, charges)
}

func TestAnOutageIsSeenInSpansAndMetrics(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		memory, err := limiter.NewMemory(limiter.MemoryOptions{})
		require.NoError(t, err)
		inner := &breakable{Store: memory}
		store := failover.Must(failover.New(inner, failover.Options{Failures: 1, OnDegraded: func(failover.Event) {}}))
		closed := byKey
		closed.OnOutage = limiter.FailClosed
		s := serve(t, otellimit.Options{}, middleware.Config{Store: store, Rules: []middleware.Rule{closed}})
		local := serve(t, otellimit.Options{}, middleware.Config{Store: store, Rules: []middleware.Rule{{Name: "local", Key: keyfunc.Global, Limit: limiter.PerHour(100)}}})
		s.ask("finn", "")
		before := s.metrics()
		assert.Equal(t, 1.0, before["rate_limit.decision.duration rate_limit.store=other"])
		assert.Zero(t, before["rate_limit.store.degraded rate_limit.store=other"])

		inner.broken.Store(true)
		span := s.ask("finn", "")
		assert.Equal(t, map[string]any{"rate_limit.outcome": "undecided"}, values(span.Attributes()))
		require.Len(t, span.Events(), 1)
		assert.Equal(t, "exception", span.Events()[0].Name)
		assert.Equal(t, true, values(local.ask("finn", "").Attributes())["rate_limit.degraded"])

		open := serve(t, otellimit.Options{}, middleware.Config{Store: store, Rules: []middleware.Rule{{Name: "open", Key: keyfunc.Global, Limit: limiter.PerHour(100), OnOutage: limiter.FailOpen}}})
		uncounted := values(open.ask("finn", "").Attributes())
		assert.Equal(t, "open", uncounted["rate_limit.rule"])
		assert.NotContains(t, uncounted, "rate_limit.limit")
		assert.NotContains(t, uncounted, "rate_limit.remaining", "nobody knows")

		time.Sleep(time.Millisecond)
		got := s.metrics()
		assert.Equal(t, 1.0, got["rate_limit.store.degraded rate_limit.store=other"])
		assert.Equal(t, 1.0, got["rate_limit.store.errors rate_limit.store=other"])
		assert.GreaterOrEqual(t, got["rate_limit.store.failures rate_limit.store=other"], 1.0)
		assert.Equal(t, 1.0, got["rate_limit.store.decisions rate_limit.by=fail_closed,rate_limit.store=other"])
		assert.Positive(t, got["rate_limit.store.degraded.time rate_limit.store=other"])
		assert.Equal(t, 1.0, got["rate_limit.requests rate_limit.decision=undecided,rate_limit.rule=key"])
	})
}

func TestTheTableIsMeasured(t *testing.T) {
	memory, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 1000})
	require.NoError(t, err)
	s := serve(t, otellimit.Options{}, middleware.Config{Store: memory, Rules: []middleware.Rule{byKey}})
	for i := range 5000 {
		s.ask(strconv.Itoa(i), "")
	}
	got := s.metrics()
	assert.Positive(t, got["rate_limit.table.size rate_limit.store=memory"])
	assert.Contains(t, got, "rate_limit.table.evicted rate_limit.store=memory")
	assert.Contains(t, got, "rate_limit.table.overflowed rate_limit.store=memory")
	assert.Positive(t, got["rate_limit.decision.duration rate_limit.store=memory"], "one in 64 is measured")
}

func TestTheClientsThatAreRefusedMostAreMeasured(t *testing.T) {
	top := offenders.Must(offenders.New(offenders.Options{}))
	top.Count("key", "apikey:a", true)
	s := serve(t, otellimit.Options{Top: top}, middleware.Config{Rules: []middleware.Rule{byKey}})
	assert.Equal(t, 1.0, s.metrics()["rate_limit.top_client.refused rate_limit.client="+top.Digest("apikey:a")+",rate_limit.rule=key"])
}

func TestTheOverloadLimitOfAFollowedLimiterIsMeasured(t *testing.T) {
	overload := shed.Must(shed.New(shed.Options{Priority: []string{"premium"}, PerRoute: true}))
	limits := middleware.Must(middleware.New(middleware.Config{Overload: overload}))
	s := serve(t, otellimit.Options{}, middleware.Config{Overload: overload})
	s.observer.FollowLimiter(limits)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Pattern = "GET /report"
	_, _ = overload.Admit(r)
	s.ask("", "premium")
	got := s.metrics()
	for name, want := range map[string]float64{
		"limit http.route=GET /report":     32,
		"in_flight http.route=GET /report": 1,
		"in_flight ":                       0,
		"waiting ":                         0,
		"requests rate_limit.decision=admitted,rate_limit.overload.level=premium":                       1,
		"requests rate_limit.decision=shed,rate_limit.overload.level=premium":                           0,
		"requests http.route=GET /report,rate_limit.decision=admitted,rate_limit.overload.level=others": 1,
	} {
		value, ok := got["rate_limit.overload."+name]
		assert.True(t, ok, name)
		assert.Equal(t, want, value, name)
	}
	require.NoError(t, limits.Reconfigure(middleware.Config{Rules: []middleware.Rule{byKey}}))
	assert.NotContains(t, s.metrics(), "rate_limit.overload.limit ")
}

func TestOptionsAreChecked(t *testing.T) {
	assert.Panics(t, func() { otellimit.Must(otellimit.New(otellimit.Options{MaxRules: -1})) })
	o := otellimit.Must(otellimit.New(otellimit.Options{})) // on the global provider
	assert.NoError(t, o.Close())
}

func BenchmarkObserve(b *testing.B) {
	for name, options := range map[string]otellimit.Options{
		"metrics": {MeterProvider: sdkmetric.NewMeterProvider()},
		"spans":   {MeterProvider: noopmetric.NewMeterProvider()},
	} {
		b.Run(name, func(b *testing.B) {
			t := otellimit.Must(otellimit.New(options))
			o := &middleware.Observation{
				Request: httptest.NewRequest(http.MethodGet, "/", nil), Outcome: middleware.OutcomeAllowed,
				Rules: []middleware.RuleResult{{Rule: &middleware.RuleInfo{Name: "ip"}, Cost: 1, Decision: limiter.Decision{Allowed: true}}},
			}
			b.ReportAllocs()
			for b.Loop() {
				t.Observe(o)
			}
		})
	}
}
