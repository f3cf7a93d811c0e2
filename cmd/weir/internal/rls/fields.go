package rls

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weirgo/weir/limiter"
)

// fieldsAndBody returns the header fields of the client's response, and the body of a refusal. They are
// the same as package middleware's.
func fieldsAndBody(all []asked, refuses bool, now time.Time) (fields []*core.HeaderValue, body []byte) {
	room := new([8]core.HeaderValue) // one allocation
	fields = make([]*core.HeaderValue, 0, len(room))
	set := func(name, value string) {
		field := &room[len(fields)]
		field.Key, field.Value = name, value
		fields = append(fields, field)
	}
	var policies, left []string
	var binding *asked
	wait := time.Duration(0)
	for i := range all {
		a := &all[i]
		if !a.found || !a.decision.Counted() || a.limit.shadow {
			continue
		}
		policies = append(policies, a.limit.policy)
		left = append(left, quoted(a.limit.Name)+";r="+strconv.FormatInt(max(0, a.decision.Remaining), 10)+";t="+strconv.FormatInt(seconds(a.decision.NextAfter), 10))
		if binding == nil || a.decision.IsTighterThan(&binding.decision) {
			binding = a
		}
		if a.refused {
			wait = max(wait, a.decision.RetryAfter, a.decision.NextAfter, time.Microsecond)
		}
	}
	if binding != nil {
		set("X-RateLimit-Limit", strconv.FormatInt(binding.decision.Limit, 10))
		set("X-RateLimit-Remaining", strconv.FormatInt(max(0, binding.decision.Remaining), 10))
		set("X-RateLimit-Reset", strconv.FormatInt(now.Add(binding.decision.ResetAfter+time.Second-1).Unix(), 10))
		set("RateLimit-Policy", strings.Join(policies, ", "))
		set("RateLimit", strings.Join(left, ", "))
	}
	if !refuses {
		return fields, nil
	}
	refusal := struct {
		Error      string `json:"error"`
		Message    string `json:"message"`
		RetryAfter int64  `json:"retry_after,omitempty"`
	}{"rate_limit_exceeded", "Rate limit exceeded.", 0}
	if wait < limiter.Never {
		refusal.RetryAfter = seconds(wait)
		refusal.Message += " Try again in " + strconv.FormatInt(refusal.RetryAfter, 10) + " s."
		set("Retry-After", strconv.FormatInt(refusal.RetryAfter, 10))
	}
	set("Cache-Control", "no-store")
	set("Content-Type", "application/json")
	body, _ = json.Marshal(refusal) // cannot fail
	return fields, body
}
