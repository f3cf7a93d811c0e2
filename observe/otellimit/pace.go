package otellimit

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirgo/weir/pace"
)

// Attributes of outgoing requests.
const (
	attemptKey = attribute.Key("rate_limit.pace.attempt")
	waitKey    = attribute.Key("rate_limit.pace.wait") // in seconds
)

// ObserveAttempt implements [pace.Observer]. It adds an event to the span around the request if the
// attempt waited, was not sent, failed or was refused.
func (t *Observer) ObserveAttempt(o *pace.Observation) {
	ctx := o.Request.Context()
	rule := t.CountAttempt(o)
	if o.Outcome.Sent() {
		t.waits.Record(ctx, o.Waited.Seconds(), metric.WithAttributes(ruleKey.String(rule)))
	}
	if o.Outcome == pace.OutcomeServed && o.Waited == 0 || o.Outcome == pace.OutcomeUnmatched {
		return
	}
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	attributes := []attribute.KeyValue{
		ruleKey.String(o.Rule), outcomeKey.String(o.Outcome.String()),
		attemptKey.Int(o.Attempt), waitKey.Float64(o.Waited.Seconds()),
	}
	if o.Cooldown > 0 {
		attributes = append(attributes, retryAfterKey.Float64(o.Cooldown.Seconds()))
	}
	span.AddEvent("rate_limit.pace", trace.WithAttributes(attributes...))
}
