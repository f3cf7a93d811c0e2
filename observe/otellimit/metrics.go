package otellimit

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weirgo/weir/observe/metrics"
)

const storeKey = attribute.Key("rate_limit.store")

// attributes are the attributes of metrics, by the labels of Prometheus that they stand for.
var attributes = map[string]attribute.Key{
	"rule": ruleKey, "tier": tierKey, "outcome": outcomeKey, "store": storeKey,
	"client": "rate_limit.client", "result": "rate_limit.reload.result", "decision": "rate_limit.decision", "by": "rate_limit.by", "route": "http.route", "level": "rate_limit.overload.level",
}

// measure makes the instruments, which are read when a reader collects.
func (t *Observer) measure(meter metric.Meter) error {
	var errs []error
	counters, gauges, made := map[*metrics.Metric]metric.Float64ObservableCounter{}, map[*metrics.Metric]metric.Float64ObservableGauge{}, []metric.Observable{}
	for _, m := range metrics.All() {
		var err error
		if m.Gauge {
			gauges[m], err = meter.Float64ObservableGauge(m.OpenTelemetry, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
			made = append(made, gauges[m])
		} else {
			counters[m], err = meter.Float64ObservableCounter(m.OpenTelemetry, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
			made = append(made, counters[m])
		}
		errs = append(errs, err)
	}
	var err error
	t.duration, err = meter.Float64Histogram("rate_limit.decision.duration", metric.WithUnit("s"),
		metric.WithDescription("How long decisions took in the store. Of a store in memory, one decision in 64 is measured."),
		metric.WithExplicitBucketBoundaries(metrics.LatencyBounds()...))
	errs = append(errs, err)
	t.waits, err = meter.Float64Histogram("rate_limit.pace.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("How long outgoing requests waited before they were sent, by attempt."),
		metric.WithExplicitBucketBoundaries(metrics.WaitBounds()...))
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	store := storeKey.String(t.StoreKind())
	t.store = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(store))}
	t.callback, err = meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		t.Read(func(m *metrics.Metric, value float64, labels ...string) {
			with := metric.WithAttributes(attributesOf(m, labels, store)...)
			if m.Gauge {
				to.ObserveFloat64(gauges[m], value, with)
			} else {
				to.ObserveFloat64(counters[m], value, with)
			}
		})
		return nil
	}, made...)
	return err
}

// attributesOf leaves out empty labels, such as the tier of a request without a tier.
func attributesOf(m *metrics.Metric, labels []string, store attribute.KeyValue) (of []attribute.KeyValue) {
	for i, value := range labels {
		if value != "" {
			of = append(of, attributes[m.Labels[i]].String(value))
		}
	}
	if m.OfStore && !slices.Contains(m.Labels, "store") {
		of = append(of, store)
	}
	return of
}
