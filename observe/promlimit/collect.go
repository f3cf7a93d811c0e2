package promlimit

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/internal/tally"
)

var all []*prometheus.Desc

// desc makes a metric, and adds it to those that Describe returns.
func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	all = append(all, d)
	return d
}

// shared are the metrics that OpenTelemetry has too.
var shared = func() map[*tally.Metric]*prometheus.Desc {
	descs := map[*tally.Metric]*prometheus.Desc{}
	for _, m := range tally.Metrics {
		descs[m] = desc(m.Prometheus, m.Help, m.Labels...)
	}
	return descs
}()

var (
	reloads = desc("rate_limit_reloads_total",
		"Attempts to load rules, the first one included.", "result")
	reloadOK = desc("rate_limit_last_reload_successful", "1 if the rules as they are written are in force.")
	reloadAt = desc("rate_limit_last_reload_success_timestamp_seconds", "When the rules in force were loaded.")
	banned   = desc("rate_limit_bans_active", "Bans in force in this process.")
	stale    = desc("rate_limit_bans_stale_seconds",
		"For how long this process may have missed bans of the shared list; 0 while it follows the list.")
)

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.latency.Describe(to)
	m.turns.Describe(to)
	m.waits.Describe(to)
	for _, d := range all {
		to <- d
	}
}

// A sink is where metrics go when they are collected.
type sink chan<- prometheus.Metric

func (to sink) count(d *prometheus.Desc, n float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n, labels...)
}

func (to sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	to := sink(metrics)
	m.latency.Collect(metrics)
	m.turns.Collect(metrics)
	m.waits.Collect(metrics)
	m.from.Read(func(of *tally.Metric, v float64, labels ...string) {
		if of.Gauge {
			to.gauge(shared[of], v, labels...)
		} else {
			to.count(shared[of], v, labels...)
		}
	})
	m.collectOperation(to)
}

// collectOperation collects reloads and bans.
func (m *Metrics) collectOperation(to sink) {
	var list bans.List
	if w, ok := m.from.Watcher(); ok {
		loaded, refused, last, err := w.Reloads()
		to.count(reloads, float64(loaded), "loaded")
		to.count(reloads, float64(refused), "refused")
		to.gauge(reloadOK, map[bool]float64{true: 1}[err == nil])
		to.gauge(reloadAt, float64(last.UnixMilli())/1000)
		list = w.Bans()
	}
	if m.options.Bans != nil {
		list = m.options.Bans
	}
	if list != nil {
		if n, ok := countBans(list); ok {
			to.gauge(banned, float64(n))
		}
	}
	if shared, ok := list.(sharedBans); ok {
		to.gauge(stale, shared.Stale().Seconds())
	}
}

// sharedBans is a list that processes share, such as a redisbans.List.
type sharedBans interface{ Stale() time.Duration }

// bansPatience is how long a list in Redis may take. Then the bans that this process knows are counted.
const bansPatience = 250 * time.Millisecond

// countBans counts the bans of a list. It is not ok if nothing is known.
func countBans(list bans.List) (n int, ok bool) {
	if list.Empty() {
		return 0, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), bansPatience)
	defer cancel()
	all, err := list.All(ctx)
	return len(all), err == nil || len(all) > 0 // with an error, all are those that this process knows
}
