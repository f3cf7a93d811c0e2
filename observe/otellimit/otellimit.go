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
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/metrics"
	"github.com/weirgo/weir/observe/offenders"
	"github.com/weirgo/weir/pace"
)

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// MeterProvider makes the meter. Nil: otel.GetMeterProvider().
	MeterProvider metric.MeterProvider

	// Store is the store of the observed limiters: a [limiter.Memory], a Store of package
	// redisstore, leasestore or failover, or a wrapper with a method Unwrap() limiter.Store.
	// Nil: the store that a RateLimit makes for itself, which has no metrics but its latency.
	Store limiter.Store

	// Bans is the list of bans, whose length is a metric. Nil: the list of the rules given to
	// [Observer.Follow], or none.
	Bans bans.List

	// Overload, if set, is exported as metrics. Nil: the overload limit of the rules given to
	// [Observer.Follow], or none.
	Overload *shed.Limiter

	// MaxRules bounds how many rules and tiers have metrics of their own, up to 100,000.
	// All others count as the rule "other". Zero: 1000.
	MaxRules int

	// Top, if set, adds the gauge rate_limit.top_client.refused: the clients that each rule refuses most,
	// and their refusals in the Window of Top, for which a minute fits. The client is as Top shows it: a digest, unless
	// its Options.ShowKeys is set. Make Top an Observer of the limiters too. Nil: no metric names clients.
	Top *offenders.Sketch

	// TopClients bounds the clients of Top for each of its rules: from 1 to 100. Zero: 10.
	TopClients int

	// SpansOnly leaves metrics out.
	SpansOnly bool
}

// scope is the name of this package in OpenTelemetry.
const scope = "github.com/weirgo/weir/observe/otellimit"

// An Observer is a [middleware.Observer] and a [pace.Observer] that reports to OpenTelemetry.
type Observer struct {
	from     *metrics.Table
	duration metric.Float64Histogram
	waits    metric.Float64Histogram
	store    []metric.RecordOption
	callback metric.Registration
	measures bool // or spans only
}

// New returns an Observer, or an error if the options are wrong or the MeterProvider fails.
func New(o Options) (*Observer, error) {
	from, err := metrics.New(metrics.Options{Store: o.Store, Bans: o.Bans, Overload: o.Overload, MaxRules: o.MaxRules, Top: o.Top, TopClients: o.TopClients})
	if err != nil {
		return nil, err
	}
	observer := &Observer{from: from, measures: !o.SpansOnly}
	if o.SpansOnly {
		return observer, nil
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
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
func (t *Observer) Close() error {
	if t.callback == nil {
		return nil
	}
	return t.callback.Unregister()
}

// Follow adds metrics of w: its reloads, its bans if Options.Bans is nil, and its overload limit if
// Options.Overload is nil. A further call replaces w.
func (t *Observer) Follow(w metrics.Watcher) error { return t.from.Follow(w) }

// FollowLimiter adds metrics of how many requests are in progress and how many wait, for l's rules with
// AtOnce. Call it for each limiter.
func (t *Observer) FollowLimiter(l *middleware.RateLimit) error { return t.from.FollowLimiter(l) }

// FollowTransport adds metrics of how many outgoing requests wait, how many are in flight, and how long
// cooldowns still last. Call it for each transport.
func (t *Observer) FollowTransport(transport *pace.Transport) error {
	return t.from.FollowTransport(transport)
}

// Observe implements [middleware.Observer].
func (t *Observer) Observe(o *middleware.Observation) {
	ctx := o.Request.Context()
	if t.measures {
		t.from.Observe(o)
		if o.Elapsed != 0 {
			t.duration.Record(ctx, o.Elapsed.Seconds(), t.store...)
		}
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		annotate(span, o)
	}
}
