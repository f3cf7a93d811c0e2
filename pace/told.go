package pace

import (
	"math/rand/v2"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/pace/serverlimit"
)

// What a server says changes the pace in two ways. A refusal, or a quota of which nothing remains,
// is a cooldown. A quota of which less remains than our limit would use until its reset, as
// others use it too, is made to last: each request takes as many units of the bucket as it takes
// for that. So no process has to know what another was told, nor is anything counted twice.

// told is what a server said last of the quota that a rule's limit is about.
type told struct {
	until    int64 // when it begins anew
	need     int64 // what our limit would use until then; more than there is
	left     int64 // what there is of it: more than 0
	lowered  int64 // the server's limit, if it is below ours; else 0
	ofEvents int64 // our limit
}

// cost is how many units a request takes, now.
func (t *told) cost(now int64, r *rule) int64 {
	need, left := t.need, t.left
	if now >= t.until || need <= left {
		if t.lowered == 0 {
			return 1
		}
		need, left = t.ofEvents, t.lowered
	}
	cost := need / left
	if rand.Int64N(left) < need%left { // so that it is need/left on average
		cost++
	}
	return min(cost, r.quota.Capacity())
}

// soon is a time that fields in whole seconds cannot tell from now.
const soon = time.Second

// hear learns from an answer. It returns how long the cooldown is that this begins.
func (c *call) hear(got *answer) time.Duration {
	if got.response == nil {
		return 0
	}
	said := &got.said
	if said.Limited {
		return c.refused(got)
	}
	if c.a.refusals.Load() > 0 {
		c.a.forgive(got.since)
	}
	c.learn(said)
	if wait := c.untilMore(said); wait > soon {
		return c.coolFor(wait, soon)
	}
	return 0
}

// untilMore is how long nothing is left, by the response to a request that was served.
func (c *call) untilMore(said *serverlimit.Reading) (wait time.Duration) {
	each(said, func(q *serverlimit.Quota) {
		if q.Remaining != 0 || q.Unit == "concurrent-requests" { // which are free again when one ends
			return
		}
		reset := q.Reset
		if q.Unsure > soon {
			reset = min(reset, c.rule.per) // a clock may be wrong
		}
		wait = max(wait, reset)
	})
	return min(wait, serverlimit.MaxWait)
}

// learn makes what remains last: of the quota that calls for the slowest pace.
func (c *call) learn(said *serverlimit.Reading) {
	r := c.rule
	if r.quota == nil {
		return
	}
	var slowest *told
	isKnown := false
	each(said, func(q *serverlimit.Quota) {
		if !r.isAbout(q) {
			return
		}
		isKnown = true
		heard := told{
			until: c.t.now() + int64(q.Reset), left: q.Remaining, ofEvents: r.events,
			need: r.requestsIn(max(0, q.Reset-soon)), // as the time may be rounded up
		}
		if q.Window == r.per && q.Limit != serverlimit.Unsaid && q.Limit < r.events {
			heard.lowered = max(1, q.Limit)
		}
		if (heard.need > heard.left || heard.lowered > 0) && (slowest == nil || heard.slowdown() > slowest.slowdown()) {
			slowest = &heard
		}
	})
	if isKnown && (slowest != nil || c.a.told.Load() != nil) {
		c.a.told.Store(slowest)
	}
}

// slowdown is for comparing alone, so that rounding does not matter.
func (t *told) slowdown() float64 {
	slowdown := float64(t.need) / float64(t.left)
	if t.lowered > 0 {
		slowdown = max(slowdown, float64(t.ofEvents)/float64(t.lowered))
	}
	return slowdown
}

// isAbout reports whether what is said of a quota can be compared with r's limit. A quota of
// another period, one of something other than requests, and one that may be that of a few
// requests only, are no reason to slow all down; nor is a time that is in doubt.
func (r *rule) isAbout(q *serverlimit.Quota) bool {
	switch {
	case q.Remaining <= 0 || q.Reset <= 0 || q.Reset > r.per+soon || q.Unsure > soon:
		return false
	case q.Unit != "" && q.Unit != "requests":
		return false
	}
	return q.Window == r.per || q.Window == 0 && q.Limit >= r.events
}

func each(said *serverlimit.Reading, f func(*serverlimit.Quota)) {
	f(&said.Quota)
	for i := range said.Others {
		f(&said.Others[i])
	}
}

// refused begins a cooldown: as long as the server wants or, where it does not say, longer
// each time.
func (c *call) refused(got *answer) time.Duration {
	if wait := got.said.Wait; wait > 0 {
		return c.coolFor(wait, together)
	}
	c.a.mu.Lock()
	if got.since != c.a.cooldowns.Load() {
		c.a.mu.Unlock()
		return 0 // refused together with the one that began the cooldown
	}
	wait := c.rule.backoff(c.a.refusals.Add(1))
	until := c.begin(wait, 0)
	c.a.mu.Unlock()
	return c.share(wait, until)
}

// forgive is for a request that was served: if it was sent after the last cooldown was begun,
// refusals are not in a row any more.
func (a *account) forgive(since int64) {
	a.mu.Lock()
	if since == a.cooldowns.Load() {
		a.refusals.Store(0)
	}
	a.mu.Unlock()
}

// What a cooldown lasts where the server does not say: ten requests' time, and twice as long
// with each refusal in a row.
const (
	minBackoff  = 100 * time.Millisecond
	maxBackoff  = 10 * time.Second // of the first
	mostBackoff = 5 * time.Minute
)

func (r *rule) backoff(inRow int64) time.Duration {
	first := time.Second
	if r.quota != nil {
		first = min(max(r.timeOf(10), minBackoff), maxBackoff)
	}
	return min(first<<min(inRow-1, 20), mostBackoff)
}

// together is by how much the ends of cooldowns may differ that are taken for one, as requests are
// refused many at a time.
const together = 10 * time.Millisecond

// coolFor begins a cooldown for all processes, unless one is in force that lasts as long, give or
// take slack. It returns how long it is, or 0.
func (c *call) coolFor(wait, slack time.Duration) time.Duration {
	c.a.mu.Lock()
	until := c.begin(wait, slack)
	c.a.mu.Unlock()
	return c.share(wait, until)
}

// begin begins a cooldown here, and returns when it ends; 0: one is in force that lasts as long.
func (c *call) begin(wait, slack time.Duration) (until int64) {
	if left := c.t.cooldown(c.a); left > 0 && left >= wait-slack {
		return 0
	}
	until = c.t.now() + int64(wait)
	c.a.cooldowns.Add(1)
	c.a.alone.Store(until) // while others are told
	c.a.cooledUntil(until)
	return until
}

// share tells other processes of a cooldown that was begun here, if it was.
func (c *call) share(wait time.Duration, until int64) time.Duration {
	if until == 0 {
		return 0
	}
	ctx, end := outlive(c.ctx)
	defer end()
	select {
	case c.a.sharing <- struct{}{}: // or of two the shorter might be the last
		defer func() { <-c.a.sharing }()
	case <-ctx.Done():
		c.warnAlone(ctx.Err())
		return wait
	}
	if c.a.alone.Load() != until {
		return wait // a longer one was begun, and is told
	}
	left := time.Duration(until - c.t.now() + int64(time.Millisecond) - 1).Truncate(time.Millisecond)
	if left <= 0 {
		return wait
	}
	err := c.t.options.Cooldowns.Ban(ctx, c.a.name, left)
	if err == nil {
		c.a.alone.CompareAndSwap(until, 0) // so that by hand it can be lifted
	}
	c.warnAlone(err)
	return wait
}

// warnAlone warns if a cooldown could not be shared, once until one can be.
func (c *call) warnAlone(err error) {
	c.t.mu.Lock()
	warn := err != nil && c.t.isShared
	c.t.isShared = err == nil
	c.t.mu.Unlock()
	if warn {
		c.t.options.Logger.WarnContext(c.ctx, "weir: a cooldown cannot be shared, so it holds in this process alone",
			"code", "weir-cooldown-alone", "rule", c.rule.name, "error", err)
	}
}

// add is a+b, or Never.
func add(a, b time.Duration) time.Duration {
	if a > limiter.Never-b {
		return limiter.Never
	}
	return a + b
}
