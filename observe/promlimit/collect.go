package promlimit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/observe/metrics"
)

var descs = func() map[*metrics.Metric]*prometheus.Desc {
	descs := map[*metrics.Metric]*prometheus.Desc{}
	for _, m := range metrics.All() {
		descs[m] = prometheus.NewDesc(m.Prometheus, m.Help, m.Labels, nil)
	}
	return descs
}()

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.latency.Describe(to)
	m.turns.Describe(to)
	m.waits.Describe(to)
	for _, d := range descs {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.latency.Collect(to)
	m.turns.Collect(to)
	m.waits.Collect(to)
	m.Read(func(of *metrics.Metric, value float64, labels ...string) {
		kind := prometheus.CounterValue
		if of.Gauge {
			kind = prometheus.GaugeValue
		}
		to <- prometheus.MustNewConstMetric(descs[of], kind, value, labels...)
	})
}
