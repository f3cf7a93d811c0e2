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

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/metrics"
	"github.com/weirgo/weir/observe/offenders"
	"github.com/weirgo/weir/pace"
)

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// Store is the store of the observed limiters: a [limiter.Memory], a Store of package
	// redisstore, leasestore or failover, or a wrapper with a method Unwrap() limiter.Store.
	// Nil: the store that a RateLimit makes for itself, which has no metrics but its latency.
	Store limiter.Store

	// Bans is the list of bans, whose length is a metric. Nil: the list of the rules given to
	// [Metrics.Follow], or none.
	Bans bans.List

	// Overload, if set, is exported as metrics. Nil: the overload limit of the rules given to
	// [Metrics.Follow], or none.
	Overload *shed.Limiter

	// MaxRules bounds how many rules and tiers have series of their own, up to 100,000. Each has four
	// series and takes up to 2 KiB. All others count as rule="other", and
	// rate_limit_rules_over_cap_total increases. Zero: 1000.
	MaxRules int

	// Top, if set, adds the gauge rate_limit_top_client_refused{rule, client}: the clients that each rule refuses most,
	// and their refusals in the Window of Top, for which a minute fits. The client is as Top shows it: a digest, unless
	// its Options.ShowKeys is set. Make Top an Observer of the limiters too. Nil: no metric names clients.
	Top *offenders.Sketch

	// TopClients bounds the clients of Top for each of its rules: from 1 to 100. Zero: 10.
	TopClients int
}

// Metrics is a [middleware.Observer] and a [pace.Observer] that counts, and a
// [prometheus.Collector] of the counts. It may observe several limiters on one store.
type Metrics struct {
	from    *metrics.Table
	latency prometheus.Histogram
	turns   prometheus.Histogram
	waits   *prometheus.HistogramVec
}

// New returns Metrics, or an error about the options.
func New(o Options) (*Metrics, error) {
	from, err := metrics.New(metrics.Options{Store: o.Store, Bans: o.Bans, Overload: o.Overload, MaxRules: o.MaxRules, Top: o.Top, TopClients: o.TopClients})
	if err != nil {
		return nil, err
	}
	return &Metrics{from: from, latency: newLatency(from.StoreKind()), turns: newTurns(), waits: newWaits()}, nil
}

// Must returns m, or panics on an error of [New].
func Must(m *Metrics, err error) *Metrics {
	if err != nil {
		panic(err)
	}
	return m
}

// Follow adds metrics of w: its reloads, its bans if Options.Bans is nil, and its overload limit if
// Options.Overload is nil. A further call replaces w.
func (m *Metrics) Follow(w metrics.Watcher) error { return m.from.Follow(w) }

// FollowLimiter adds metrics of how many requests are in progress and how many wait, for l's rules with
// AtOnce. Call it for each limiter.
func (m *Metrics) FollowLimiter(l *middleware.RateLimit) error { return m.from.FollowLimiter(l) }

// FollowTransport adds metrics of how many outgoing requests wait, how many are in flight, and how long
// cooldowns still last. Call it for each transport.
func (m *Metrics) FollowTransport(t *pace.Transport) error { return m.from.FollowTransport(t) }

// Observe implements [middleware.Observer].
func (m *Metrics) Observe(o *middleware.Observation) {
	m.from.Observe(o)
	if o.Elapsed != 0 {
		m.latency.Observe(o.Elapsed.Seconds())
	}
	if o.Waited != 0 {
		m.turns.Observe(o.Waited.Seconds())
	}
}

// ObserveAttempt implements [pace.Observer].
func (m *Metrics) ObserveAttempt(o *pace.Observation) {
	rule := m.from.CountAttempt(o)
	if o.Outcome.Sent() {
		m.waits.WithLabelValues(rule).Observe(o.Waited.Seconds())
	}
}

func newWaits() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "rate_limit_pace_wait_seconds",
		Help:    "How long attempts waited before they were sent.",
		Buckets: metrics.WaitBounds(),
	}, []string{"rule"})
}

func newTurns() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "rate_limit_concurrency_wait_seconds",
		Help:    "How long requests waited for a slot, whether they got it or not. Requests that did not wait are not counted.",
		Buckets: metrics.WaitBounds(),
	})
}

func newLatency(store string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:        "rate_limit_latency_seconds",
		Help:        "How long decisions took in the store. Of a store in memory, one decision in 64 is measured.",
		Buckets:     metrics.LatencyBounds(),
		ConstLabels: prometheus.Labels{"store": store},
	})
}
