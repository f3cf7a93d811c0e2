package middleware

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/limiter"
)

// With Refusal.Paced a counter that all clients share does not send them back together: each refused client gets the
// next free place in a line, at the pace of the limit. Each process has its own lines.

var paced = feature{
	family: func(f *family) (needed bool, err error) {
		if f.rule.Refusal.Paced > 0 {
			before, _ := f.rule.notes.lines.LoadOrStore(f.info.Tier, &line{})
			f.line = before.(*line)
		}
		return false, nil
	},
}

// A line is the queue clock of a rule in one tier. It survives a change of the rules.
type line struct {
	mu   sync.Mutex
	last time.Time // when the client with the last place may return
}

// paced returns the Paced of a rule. Only rules that can have one inherit it.
func (c *compiler) paced(at invalid.Place, given Rule) time.Duration {
	own := given.Refusal.Paced
	limits, _, err := limiter.Split(given.Limit)
	if isGlobal(given.Key) && given.Mode != Deny && (len(limits) > 0 || err != nil) {
		return cmp.Or(own, c.refusal.Paced)
	}
	c.reject(own != 0, at.Of("Refusal.Paced"), "is %v: it needs a rate and the key global, which counts all "+
		"requests together", own)
	return 0
}

// checkPaced reports a Paced of the Config that no rule inherits.
func (c *compiler) checkPaced() {
	own := c.refusal.Paced
	c.reject(own > 0 && !slices.ContainsFunc(c.set.all, func(r *rule) bool { return r.Refusal.Paced > 0 }),
		inConfig.Of("Refusal.Paced"), "is %v: no rule has a rate and the key global, which counts all requests together", own)
}

// wait returns how long a refused client should wait, before jitter.
func (v *visit) wait(no *refusal) time.Duration {
	m := no.limit
	if m == nil || m.line == nil || m.isSlot() || no.retry == limiter.Never {
		return no.retry
	}
	return max(no.retry, m.line.place(v.limiter.now(), m))
}

// place takes the next place for a request that m refuses. It returns the time until then: at least the exact wait,
// and at most Paced more.
func (l *line) place(now time.Time, m *met) time.Duration {
	limit, exact := m.quota.Limit(), m.Decision.RetryAfter
	step := time.Duration(min(float64(m.units)/float64(limit.Events)*float64(limit.Per), 1<<62))
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := min(max(l.last.Add(step).Sub(now), exact), exact+m.rule.Refusal.Paced)
	l.last = now.Add(wait)
	return wait
}
