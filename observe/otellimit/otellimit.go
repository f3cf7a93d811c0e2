// Package otellimit reports to OpenTelemetry what limiters do: in attributes and events of a
// request's span, and in metrics.
//
//	telemetry := otellimit.Must(otellimit.New(otellimit.Options{Store: store}))
//	limits, err := middleware.New(middleware.Config{Observer: telemetry, Store: store, Rules: ...})
//
// It begins no span: wrap the limiter in a middleware that does, such as otelhttp. Attributes and
// events never contain what a client sends, unless [Options.Top] shows keys: they are names of rules and tiers,
// numbers, words of this package, and the error of a store that could not decide. A refusal does not change the span's
// status, as it is no error of the server.
package otellimit

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/metrics"
	"github.com/weirgo/weir/observe/offenders"
)

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// MeterProvider makes the meter. Nil: otel.GetMeterProvider(). For spans without metrics, use the
	// MeterProvider of package go.opentelemetry.io/otel/metric/noop.
	MeterProvider metric.MeterProvider

	// These fields are as in [metrics.Options].
	Store      limiter.Store
	Bans       bans.List
	MaxRules   int
	Top        *offenders.Sketch
	TopClients int
}

// scope is the name of this package in OpenTelemetry.
const scope = "github.com/weirgo/weir/observe/otellimit"

// An Observer is a [metrics.Table], whose counts it reports to OpenTelemetry, with the latency of the store and
// with what happens to the request in a span.
type Observer struct {
	*metrics.Table
	duration metric.Float64Histogram
	waits    metric.Float64Histogram
	store    []metric.RecordOption
	callback metric.Registration
}

// New returns an Observer, or an error if the options are wrong or the MeterProvider fails.
func New(o Options) (*Observer, error) {
	table, err := metrics.New(metrics.Options{
		Store: o.Store, Bans: o.Bans, MaxRules: o.MaxRules, Top: o.Top, TopClients: o.TopClients,
	})
	if err != nil {
		return nil, err
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	observer := &Observer{Table: table}
	if err := observer.measure(o.MeterProvider.Meter(scope)); err != nil {
		return nil, fmt.Errorf("otellimit: %w", err)
	}
	return observer, nil
}

// Must returns o, or panics on an error of [New].
func Must(o *Observer, err error) *Observer {
	if err != nil {
		panic(err)
	}
	return o
}

// Close unregisters the metrics.
func (t *Observer) Close() error { return t.callback.Unregister() }

// Observe implements [middleware.Observer].
func (t *Observer) Observe(o *middleware.Observation) {
	t.Table.Observe(o)
	ctx := o.Request.Context()
	if o.Elapsed != 0 {
		t.duration.Record(ctx, o.Elapsed.Seconds(), t.store...)
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		annotate(span, o)
	}
}
