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
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/internal/tally"
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

const (
	defaultMaxRules = 1000
	mostMaxRules    = 100_000
)

// scope is the name of this package as OpenTelemetry has it.
const scope = "github.com/weirgo/weir/observe/otellimit"

// An Observer is a [middleware.Observer] and a [pace.Observer] that tells OpenTelemetry.
type Observer struct {
	tally    *tally.Tally // nil: spans only
	duration metric.Float64Histogram
	placing  tally.Placing
	paced    *tally.Paced
	waits    metric.Float64Histogram
	waitsOf  sync.Map // by rule, []metric.RecordOption
	store    []metric.RecordOption
	given    *shed.Limiter
	watcher  atomic.Pointer[Watcher]
	callback metric.Registration
}

// New returns an Observer, or an error about the options or the provider's.
func New(o Options) (*Observer, error) {
	if o.MaxRules < 0 || o.MaxRules > mostMaxRules {
		return nil, fmt.Errorf("otellimit: MaxRules is %d: it must be from 1 to %d, or 0 for %d",
			o.MaxRules, mostMaxRules, defaultMaxRules)
	}
	if o.SpansOnly {
		return &Observer{}, nil
	}
	if o.MaxRules == 0 {
		o.MaxRules = defaultMaxRules
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	observer := &Observer{tally: tally.New(o.Store, o.MaxRules), given: o.Overload, paced: tally.NewPaced(o.MaxRules)}
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

// FollowLimiter adds how many requests are in progress now, and wait, of the rules of l with
// Concurrency. It may be called for several.
func (t *Observer) FollowLimiter(l *middleware.RateLimit) error {
	if l == nil {
		return errors.New("otellimit: FollowLimiter needs a RateLimit")
	}
	t.placing.Follow(l)
	return nil
}

// Observe implements [middleware.Observer].
func (t *Observer) Observe(o *middleware.Observation) {
	ctx := o.Request.Context()
	if t.tally != nil {
		t.tally.Observe(o)
		if o.Elapsed != 0 {
			t.duration.Record(ctx, o.Elapsed.Seconds(), t.store...)
		}
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		annotate(span, o)
	}
}
