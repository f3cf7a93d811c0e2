package otellimit

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// Attributes of spans and events.
const (
	outcomeKey    = attribute.Key("rate_limit.outcome")
	ruleKey       = attribute.Key("rate_limit.rule")
	tierKey       = attribute.Key("rate_limit.tier")
	limitKey      = attribute.Key("rate_limit.limit")
	remainingKey  = attribute.Key("rate_limit.remaining")
	costKey       = attribute.Key("rate_limit.cost")
	degradedKey   = attribute.Key("rate_limit.degraded")
	retryAfterKey = attribute.Key("rate_limit.retry_after") // in seconds
)

// annotate writes the outcome of a request into its span, with an event for each refusal. If a request
// meets several limiters, the last one sets the attributes.
func annotate(span trace.Span, o *middleware.Observation) {
	var space [6]attribute.KeyValue
	attributes := append(space[:0], outcomeKey.String(o.Outcome.String()))
	if o.Err == nil && o.Outcome != middleware.OutcomeUndecided {
		attributes = appendBinding(attributes, o.Rules)
		for i := range o.Rules {
			if r := &o.Rules[i]; !r.Allowed {
				span.AddEvent(eventOf(r), trace.WithAttributes(refusal(r)...))
			}
		}
	}
	if o.Outcome == middleware.OutcomeBanned {
		var banned []attribute.KeyValue
		if o.Ban.Rule != "" { // else an operator banned the client
			banned = append(banned, ruleKey.String(o.Ban.Rule))
		}
		if !o.Ban.Until.IsZero() {
			banned = append(banned, retryAfterKey.Float64(time.Until(o.Ban.Until).Seconds()))
		}
		span.AddEvent("rate_limit.banned", trace.WithAttributes(banned...))
	}
	if o.Err != nil && o.Request.Context().Err() == nil { // else the client went away
		span.RecordError(o.Err)
	}
	span.SetAttributes(attributes...)
}

// appendBinding appends the binding rule: the rule that refused, or that has the least left.
func appendBinding(attributes []attribute.KeyValue, rules []middleware.RuleResult) []attribute.KeyValue {
	var binding *middleware.RuleResult
	degraded := false
	for i := range rules {
		r := &rules[i]
		degraded = degraded || r.Degraded
		switch {
		case r.Rule.Mode == middleware.Shadow, binding != nil && !r.Counted():
		case binding == nil,
			!binding.Counted(),
			binding.Allowed && !r.Allowed,
			binding.Allowed == r.Allowed && r.Remaining < binding.Remaining:
			binding = r
		}
	}
	if degraded {
		attributes = append(attributes, degradedKey.Bool(true))
	}
	if binding == nil {
		return attributes
	}
	attributes = append(attributes, named(binding)...)
	if !binding.Counted() {
		return attributes
	}
	return append(attributes,
		limitKey.Int64(binding.Limit), remainingKey.Int64(binding.Remaining))
}

// named returns the name of a rule, and its tier if it has one.
func named(r *middleware.RuleResult) []attribute.KeyValue {
	names := []attribute.KeyValue{ruleKey.String(r.Rule.Name)}
	if tier := r.Rule.Tier; tier != "" {
		names = append(names, tierKey.String(tier))
	}
	return names
}

func eventOf(r *middleware.RuleResult) string {
	if r.Rule.Mode == middleware.Shadow {
		return "rate_limit.shadow_refused"
	}
	return "rate_limit.refused"
}

func refusal(r *middleware.RuleResult) []attribute.KeyValue {
	attributes := append(named(r), costKey.Int64(r.Cost), limitKey.Int64(r.Limit))
	if r.RetryAfter != limiter.Never {
		attributes = append(attributes, retryAfterKey.Float64(r.RetryAfter.Seconds()))
	}
	return attributes
}
