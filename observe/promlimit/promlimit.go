// Package promlimit exports metrics of limiters to Prometheus.
//
//	metrics := promlimit.Must(promlimit.New(promlimit.Options{Store: store}))
//	prometheus.MustRegister(metrics)
//	limits, err := middleware.New(middleware.Config{Observer: metrics, Store: store, Rules: ...})
//
// With rules from a file, metrics.Follow(watcher) adds reloads and bans. The same Metrics may be
// the Observer of a pace.Transport.
//
// Labels are names of rules and tiers, bounded by [Options.MaxRules], and words of this package. They never
// contain what a client sends, unless [Options.Top] shows keys. If limiters have stores of their own, give each
// its own Metrics, and register them with a label: prometheus.WrapRegistererWith.
//
// A request costs some 25 ns for each rule, and no memory. All other work is done when Prometheus
// scrapes.
package promlimit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/metrics"
	"github.com/weirgo/weir/pace"
)

// Options is what [New] takes. The zero Options are the defaults.
type Options = metrics.Options

// Metrics is a [metrics.Table], whose counts it exports as a [prometheus.Collector], with histograms of waits
// and of the store's latency. It may observe several limiters on one store.
type Metrics struct {
	*metrics.Table
	latency prometheus.Histogram
	turns   prometheus.Histogram
	waits   *prometheus.HistogramVec
}

// New returns Metrics, or an error about the options.
func New(o Options) (*Metrics, error) {
	table, err := metrics.New(o)
	if err != nil {
		return nil, err
	}
	return &Metrics{
		Table: table,
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:        "rate_limit_latency_seconds",
			Help:        "How long decisions took in the store. Of a store in memory, one decision in 64 is measured.",
			Buckets:     metrics.LatencyBounds(),
			ConstLabels: prometheus.Labels{"store": table.StoreKind()},
		}),
		turns: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "rate_limit_concurrency_wait_seconds",
			Help:    "How long requests waited for a slot, whether they got it or not. Requests that did not wait are not counted.",
			Buckets: metrics.WaitBounds(),
		}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "rate_limit_pace_wait_seconds",
			Help:    "How long attempts waited before they were sent.",
			Buckets: metrics.WaitBounds(),
		}, []string{"rule"}),
	}, nil
}

// Must returns m, or panics on an error of [New].
func Must(m *Metrics, err error) *Metrics {
	if err != nil {
		panic(err)
	}
	return m
}

// Observe implements [middleware.Observer].
func (m *Metrics) Observe(o *middleware.Observation) {
	m.Table.Observe(o)
	if o.Elapsed != 0 {
		m.latency.Observe(o.Elapsed.Seconds())
	}
	if o.Waited != 0 {
		m.turns.Observe(o.Waited.Seconds())
	}
}

// ObserveAttempt implements [pace.Observer].
func (m *Metrics) ObserveAttempt(o *pace.Observation) {
	rule := m.CountAttempt(o)
	if o.Outcome.Sent() {
		m.waits.WithLabelValues(rule).Observe(o.Waited.Seconds())
	}
}
