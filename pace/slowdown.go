package pace

import (
	"math/rand/v2"

	"github.com/weirgo/weir/pace/serverlimit"
)

// A slowdown makes the rest of a quota last until its reset, if others use the quota too and less
// remains than our limit would use: each request takes several units of the bucket. So no process has
// to know what the server said to another, and nothing is counted twice.
type slowdown struct {
	until   int64 // when the quota begins anew; see Transport.now
	need    int64 // what our limit would use until then
	left    int64 // what remains: more than 0
	limit   int64 // ours
	lowered int64 // the server's limit, if it is below ours; else 0
}

// cost is how many units a request takes, now. It is 1 without a slowdown.
func (s *slowdown) cost(now int64, r *rule) int64 {
	if s == nil {
		return 1
	}
	need, left := s.need, s.left
	if now >= s.until || need <= left {
		if s.lowered == 0 {
			return 1
		}
		need, left = s.limit, s.lowered
	}
	cost := need / left
	if rand.Int64N(left) < need%left { // so that it is need/left on average
		cost++
	}
	return min(cost, r.quota.Capacity())
}

// factor is for comparing alone, so that rounding does not matter. A factor of 1 or less is no
// slowdown.
func (s *slowdown) factor() float64 {
	factor := float64(s.need) / float64(s.left)
	if s.lowered > 0 {
		factor = max(factor, float64(s.limit)/float64(s.lowered))
	}
	return factor
}

// slowDown sets the slowdown by the quota that requires the slowest pace, of those in a response to a
// request that was served.
func (c *call) slowDown(said *serverlimit.Reading) {
	r := c.rule
	if r.quota == nil {
		return
	}
	var slowest *slowdown
	isKnown := false
	each(said, func(q *serverlimit.Quota) {
		if !r.isAbout(q) {
			return
		}
		isKnown = true
		s := slowdown{
			until: c.t.now() + int64(q.Reset), left: q.Remaining, limit: r.events,
			need: r.requestsIn(max(0, q.Reset-soon)), // as the time may be rounded up
		}
		if q.Window == r.per && q.Limit != serverlimit.Unsaid && q.Limit < r.events {
			s.lowered = max(1, q.Limit)
		}
		if s.factor() > 1 && (slowest == nil || s.factor() > slowest.factor()) {
			slowest = &s
		}
	})
	if isKnown && (slowest != nil || c.a.slowdown.Load() != nil) {
		c.a.slowdown.Store(slowest)
	}
}

// isAbout reports whether a quota can be compared with r's limit. A quota of another period, of
// another unit than requests, or that may be about a few requests only is no reason to slow all
// requests down; nor is a doubtful time.
func (r *rule) isAbout(q *serverlimit.Quota) bool {
	switch {
	case q.Remaining <= 0 || q.Reset <= 0 || q.Reset > r.per+soon || q.Unsure > soon:
		return false
	case q.Unit != "" && q.Unit != "requests":
		return false
	}
	return q.Window == r.per || q.Window == 0 && q.Limit >= r.events
}

// keepsTo reports whether r's own limit keeps to a quota.
func (r *rule) keepsTo(q *serverlimit.Quota) bool {
	return (q.Window == r.per || q.Window == 0) && q.Limit >= r.events && r.events > 0
}
