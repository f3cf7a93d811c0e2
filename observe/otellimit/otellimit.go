// Package otellimit tells OpenTelemetry what limiters do: in attributes and events of the
// span that a request has already, and in metrics.
//
//	telemetry := otellimit.Must(otellimit.New(otellimit.Options{Store: store}))
//	limits, err := middleware.New(middleware.Config{Observer: telemetry, Store: store, Rules: ...})
//
// It begins no span: put what does, such as otelhttp, around the limiter. Nothing of what a
// client sends is in attributes or events: they are names of rules and tiers, numbers, words
// of this package, and the error of a store that could not decide. A refusal leaves the span's status as it is, being no error of the
// server's.
package otellimit

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/internal/tally"
	"github.com/weirgo/weir/pace"
)

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// MeterProvider makes the meter. Nil: that of package otel.
	MeterProvider metric.MeterProvider

	// Store is that of the limiters observed: a [limiter.Memory], a Store of package
	// redisstore, leasestore or failover, or one of your own around these, with a method
	// Unwrap() limiter.Store. Nil: one that a RateLimit made for itself, of which nothing
	// is told but how long it takes.
	Store limiter.Store

	// Overload is that of the limiters observed, of which the limit and what became of each
	// level of priority is told. Nil: that of the rules given to [Observer.Follow], or none.
	Overload *shed.Limiter

	// MaxRules bounds how many rules and tiers are told apart in metrics, up to 100,000.
	// All others are counted as one, "other". Zero: 1000.
	MaxRules int

	// SpansOnly leaves metrics out.
	SpansOnly bool
}

// scope is the name of this package as OpenTelemetry has it.
const scope = "github.com/weirgo/weir/observe/otellimit"

// An Observer is a [middleware.Observer] and a [pace.Observer] that tells OpenTelemetry.
type Observer struct {
	from     *tally.Tally[Watcher]
	duration metric.Float64Histogram
	waits    metric.Float64Histogram
	store    []metric.RecordOption
	callback metric.Registration
	metrics  bool // or spans only
}

// A Watcher keeps rules at what is written, as that of package rules does. A RateLimit is one
// too, whose rules change in another way.
type Watcher interface {
	// Overload is what is in force. Nil: nothing.
	Overload() middleware.Overload
}

// New returns an Observer, or an error about the options or the provider's.
func New(o Options) (*Observer, error) {
	from, err := tally.New[Watcher]("otellimit", o.Store, o.Overload, o.MaxRules)
	if err != nil {
		return nil, err
	}
	observer := &Observer{from: from, metrics: !o.SpansOnly}
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

// Must is for an Observer written in code: it panics where [New] returns an error.
func Must(o *Observer, err error) *Observer {
	if err != nil {
		panic(err)
	}
	return o
}

// Close ends the metrics.
func (t *Observer) Close() error {
	if t.callback == nil {
		return nil
	}
	return t.callback.Unregister()
}

// Follow adds the overload limit of a rules file, if Options.Overload is nil. Of several
// watchers the last one is told of.
func (t *Observer) Follow(w Watcher) error { return t.from.Follow(w) }

// FollowLimiter adds how many requests are in progress now, and wait, of the rules of l with
// Concurrency. It may be called for several.
func (t *Observer) FollowLimiter(l *middleware.RateLimit) error { return t.from.FollowLimiter(l) }

// FollowTransport adds how many requests to others wait now, are in flight, and for how long they
// are held back. It may be called for several.
func (t *Observer) FollowTransport(transport *pace.Transport) error {
	return t.from.FollowTransport(transport)
}

// Observe implements [middleware.Observer].
func (t *Observer) Observe(o *middleware.Observation) {
	ctx := o.Request.Context()
	if t.metrics {
		t.from.Observe(o)
		if o.Elapsed != 0 {
			t.duration.Record(ctx, o.Elapsed.Seconds(), t.store...)
		}
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		annotate(span, o)
	}
}
