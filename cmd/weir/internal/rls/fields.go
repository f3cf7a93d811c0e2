package rls

import (
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weirgo/weir/internal/answer"
	"github.com/weirgo/weir/limiter"
)

// fieldsAndBody returns the header fields of the client's response, and the body of a refusal. They are
// the same as package middleware's by default.
func fieldsAndBody(all []asked, refuses bool, now time.Time) (fields []*core.HeaderValue, body []byte) {
	room := new([6]core.HeaderValue) // one allocation
	fields = make([]*core.HeaderValue, 0, len(room))
	set := func(name, value string) {
		field := &room[len(fields)]
		field.Key, field.Value = name, value
		fields = append(fields, field)
	}
	var strictest *asked
	wait := time.Duration(0)
	for i := range all {
		a := &all[i]
		if !a.found || !a.decision.Counted() || a.limit.shadow {
			continue
		}
		if a.refused {
			wait = max(wait, a.decision.RetryAfter, a.decision.NextAfter, time.Microsecond)
		}
		if strictest == nil || a.isStricter(strictest) {
			strictest = a
		}
	}
	if strictest != nil {
		set("X-RateLimit-Limit", strconv.FormatInt(strictest.decision.Limit, 10))
		set("X-RateLimit-Remaining", strconv.FormatInt(max(0, strictest.decision.Remaining), 10))
		after := strictest.decision.ResetAfter
		if refuses {
			after = min(after, answer.MostWait*time.Second) // clients cannot wait longer
		}
		set("X-RateLimit-Reset", strconv.FormatInt(now.Add(after+time.Second-1).Unix(), 10))
	}
	if !refuses {
		return fields, nil
	}
	facts := answer.Facts{Kind: answer.Cost}
	if wait > 0 && wait < limiter.Never {
		facts = answer.Facts{Kind: answer.Quota, Seconds: seconds(wait)}
		set("Retry-After", strconv.FormatInt(facts.Wait(), 10))
	}
	set("Cache-Control", "no-store")
	set("Content-Type", answer.JSON.ContentType())
	return fields, answer.Append(nil, answer.JSON, &facts)
}

// isStricter reports whether a matters more to the client: the limit that refuses, then the tighter one.
func (a *asked) isStricter(than *asked) bool {
	if a.refused != than.refused {
		return a.refused
	}
	return a.decision.IsTighterThan(&than.decision)
}
