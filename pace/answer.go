package pace

import (
	"net/http"
	"time"

	"github.com/weirgo/weir/pace/serverlimit"
)

// An answer is the response to an attempt, or its error.
type answer struct {
	response *http.Response
	err      error
	said     serverlimit.Reading
	sent     int64 // as cooldown.sent counts it
}

// drop closes the body of a response that is not returned.
func (got *answer) drop() {
	if got.response != nil && got.response.Body != nil {
		_ = got.response.Body.Close()
	}
}

func (got *answer) outcome() Outcome {
	switch {
	case got.err != nil:
		return OutcomeFailed
	case got.said.Limited:
		return OutcomeRefused
	case got.response.StatusCode >= 500:
		return OutcomeFailed
	}
	return OutcomeServed
}

// mostRead is how much of a body is read to see what it says of limits.
const mostRead = 16 << 10

// read is what a response says about limits. If its body has to be looked into, nothing of the body
// is lost.
func read(r *http.Response) serverlimit.Reading {
	said := serverlimit.Read(r)
	if !said.BodyTells || r.Body == nil {
		return said
	}
	text, _ := peek(r, mostRead)
	return serverlimit.ReadWithBody(r, append([]byte{}, text...)) // nil would mean that it was not read
}

// each calls f for all quotas of a response.
func each(said *serverlimit.Reading, f func(*serverlimit.Quota)) {
	f(&said.Quota)
	for i := range said.Others {
		f(&said.Others[i])
	}
}

const (
	// soon is a time that fields in whole seconds cannot tell from now.
	soon = time.Second

	// together is how far apart two cooldowns may end that count as one, as many requests are
	// refused at a time.
	together = 10 * time.Millisecond
)

// hear learns from an answer. A refusal or a used-up quota begins a cooldown, and hear returns its
// length. If less remains than our limit would use, a slowdown begins.
func (c *call) hear(got *answer) time.Duration {
	if got.response == nil {
		return 0
	}
	cooldown, said := &c.a.cooldown, &got.said
	switch {
	case said.Limited && said.Wait > 0:
		return cooldown.begin(c.ctx, said.Wait, together)
	case said.Limited:
		return cooldown.backOff(c.ctx, got.sent)
	}
	cooldown.served(got.sent)
	c.slowDown(said)
	if wait := c.untilMore(got); wait > 0 {
		return cooldown.begin(c.ctx, wait, soon)
	}
	return 0
}

// untilMore is how long nothing remains, by the response to a request that was served.
func (c *call) untilMore(got *answer) (wait time.Duration) {
	each(&got.said, func(q *serverlimit.Quota) {
		if q.Remaining != 0 || q.Unit == "concurrent-requests" { // which are free again when one ends
			return
		}
		reset := q.Reset
		if reset <= q.Unsure && c.rule.keepsTo(q) {
			return // our next turn is no earlier, and the reset may be
		}
		if q.Unsure > soon && got.response.Header.Get("Date") == "" {
			reset = min(reset, c.rule.per) // our clock may be wrong
		}
		wait = max(wait, reset)
	})
	return min(wait, serverlimit.MaxWait)
}
