package rls

import (
	"slices"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weirgo/weir/internal/answer"
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
	var strictest *asked
	wait, refusing := time.Duration(0), 0
	for i := range all {
		a := &all[i]
		if !a.found || !a.decision.Counted() || a.limit.shadow {
			continue
		}
		at := len(policies)
		if a.refused { // the limits that refuse come first
			at, refusing = refusing, refusing+1
			wait = max(wait, a.decision.RetryAfter, a.decision.NextAfter, time.Microsecond)
		}
		policies, left = slices.Insert(policies, at, a.limit.policy), slices.Insert(left, at, a.left(refuses))
		if strictest == nil || a.isStricter(strictest) {
			strictest = a
		}
	}
	if strictest != nil {
		set("X-RateLimit-Limit", strconv.FormatInt(strictest.decision.Limit, 10))
		set("X-RateLimit-Remaining", strconv.FormatInt(max(0, strictest.decision.Remaining), 10))
		after := shortened(strictest.decision.ResetAfter, refuses)
		set("X-RateLimit-Reset", strconv.FormatInt(now.Add(after+time.Second-1).Unix(), 10))
		set("RateLimit-Policy", strings.Join(policies, ", "))
		set("RateLimit", strings.Join(left, ", "))
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

// shortened returns the time d of an answer. Clients cannot wait longer than answer.MostWait.
func shortened(d time.Duration, refuses bool) time.Duration {
	if refuses {
		return min(d, answer.MostWait*time.Second)
	}
	return d
}

// isStricter reports whether a matters more to the client: the limit that refuses, then the tighter one.
func (a *asked) isStricter(than *asked) bool {
	if a.refused != than.refused {
		return a.refused
	}
	return a.decision.IsTighterThan(&than.decision)
}

// left returns the limit's item of RateLimit. In a refusal only the limits that refuse have a time.
func (a *asked) left(refuses bool) string {
	item := quoted(a.limit.Name) + ";r=" + strconv.FormatInt(max(0, a.decision.Remaining), 10)
	if a.decision.NextAfter > 0 && a.refused == refuses {
		item += ";t=" + strconv.FormatInt(seconds(shortened(a.decision.NextAfter, refuses)), 10)
	}
	return item
}
