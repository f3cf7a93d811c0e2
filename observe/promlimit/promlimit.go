// Package promlimit shows Prometheus what limiters do.
//
//	metrics := promlimit.Must(promlimit.New(promlimit.Options{Store: store}))
//	prometheus.MustRegister(metrics)
//	limits, err := middleware.New(middleware.Config{Observer: metrics, Store: store, Rules: ...})
//
// With rules from a file, metrics.Follow(watcher) adds reloads and bans. The same metrics may be
// the Observer of package pace, for requests to others.
//
// No label is made of what a client sends: they are names of rules and tiers, bounded by
// [Options.MaxRules], and words of this package. For limiters apart, on stores of their
// own, register each one's Metrics with a label: prometheus.WrapRegistererWith.
//
// A request costs some 25 ns more for each rule, beside what [middleware.Observer] costs,
// and no memory; all else is done when Prometheus asks.
package promlimit

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/internal/tally"
	"github.com/weirgo/weir/pace"
)

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// Store is that of the limiters observed: a [limiter.Memory], a Store of package
	// redisstore, leasestore or failover, or one of your own around these, with a method
	// Unwrap() limiter.Store. Nil: one that a RateLimit made for itself, of which nothing
	// is shown but how long it takes.
	Store limiter.Store

	// Bans is the list of which the length is shown. Nil: that of the rules given to
	// [Metrics.Follow], or none.
	Bans bans.List

	// Overload is that of the limiters observed, of which the limit and what became of each
	// level of priority is shown. Nil: that of the rules given to [Metrics.Follow], or none.
	Overload *shed.Limiter

	// MaxRules bounds how many rules and tiers have series of their own, four each, and up
	// to 2 KiB; at most 100,000. All others are counted as one, rule="other", and
	// rate_limit_rules_over_cap_total moves. Zero: 1000.
	MaxRules int
}

// Metrics is a [middleware.Observer] that counts, and a [prometheus.Collector] of the
// counts. It may observe several limiters on one store, and is a [pace.Observer] too.
type Metrics struct {
	options Options
	from    *tally.Tally[Watcher]
	latency prometheus.Histogram
	turns   prometheus.Histogram
	waits   *prometheus.HistogramVec
}

// New returns metrics that nothing was counted in, or an error about the options.
func New(o Options) (*Metrics, error) {
	from, err := tally.New[Watcher]("promlimit", o.Store, o.Overload, o.MaxRules)
	if err != nil {
		return nil, err
	}
	return &Metrics{options: o, from: from, latency: newLatency(from.Store.Kind), turns: newTurns(), waits: newWaits()}, nil
}

// Must is for metrics written in code: it panics where [New] returns an error.
func Must(m *Metrics, err error) *Metrics {
	if err != nil {
		panic(err)
	}
	return m
}

// A Watcher keeps rules at what is written, as that of package rules does, which is not
// imported for it: it brings a parser of YAML.
type Watcher interface {
	// Reloads is how often written rules came into force and how often they were refused,
	// when those in force did, and why the last attempt failed, if it did.
	Reloads() (loaded, refused uint64, last time.Time, err error)

	// Bans is the list that the rules' bans are in. Nil: none.
	Bans() bans.List

	// Overload is what the rules in force have made of their overload section. Nil: none.
	Overload() middleware.Overload
}

// Follow adds the reloads of a rules file, and its bans and its overload limit if Options.Bans
// and Options.Overload are nil. Of several watchers the last one is shown.
func (m *Metrics) Follow(w Watcher) error { return m.from.Follow(w) }

// FollowLimiter adds how many requests are in progress now, and wait, of the rules of l with
// Concurrency. It may be called for several.
func (m *Metrics) FollowLimiter(l *middleware.RateLimit) error { return m.from.FollowLimiter(l) }

// FollowTransport adds how many requests wait now, are in flight, and for how long they are held
// back. It may be called for several.
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
	rule := m.from.ObserveAttempt(o)
	if o.Outcome.Sent() {
		m.waits.WithLabelValues(rule).Observe(o.Waited.Seconds())
	}
}

func newWaits() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "rate_limit_pace_wait_seconds",
		Help:    "How long attempts waited before they were sent.",
		Buckets: tally.WaitBounds,
	}, []string{"rule"})
}

func newTurns() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "rate_limit_concurrency_wait_seconds",
		Help:    "How long requests waited for a place that waited for one, whether they got it or not.",
		Buckets: tally.WaitBounds,
	})
}

func newLatency(store string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:        "rate_limit_latency_seconds",
		Help:        "How long decisions took in the store; of a store in memory, one in 64 is measured.",
		Buckets:     tally.LatencyBounds,
		ConstLabels: prometheus.Labels{"store": store},
	})
}
