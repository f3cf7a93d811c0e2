package dashboard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/internal/tally"
)

const (
	span      = 300       // seconds that are shown
	kept      = span + 10 // so that a reader of the oldest second does not meet a new one
	maxSeries = 500
	maxRules  = 16_000

	outcomes = int(middleware.OutcomeAllowed) + 1
)

// counts are the counters, in total since the start and for each of the last seconds.
//
// No goroutine divides time into seconds: the first request of a new second moves the counts so far
// into the previous second.
type counts struct {
	second   atomic.Int64 // that is being counted, since the start
	cache    tally.Cache[series]
	outcome  [outcomes]counter
	degraded counter // decisions by outage policies
	lastErr  atomic.Pointer[storeError]

	mu     sync.Mutex
	byName map[seriesName]*series
	other  *series // of all rules beyond maxSeries
	swept  int64   // the second of the last sweep
}

type seriesName struct{ rule, tier string }

// A series counts what one rule did in one tier.
type series struct {
	seriesName
	asked, refused counter
}

// A counter counts events, by the second.
type counter struct {
	total   atomic.Uint64
	folded  uint64 // the total at the beginning of the present second
	history [kept]uint32
}

type storeError struct {
	second int64
	err    error
}

// Observe implements [middleware.Observer].
func (d *Dashboard) Observe(o *middleware.Observation) {
	c := &d.counts
	now := d.now()
	if now > c.second.Load() && c.mu.TryLock() { // who has the lock folds too
		c.fold(now)
		c.mu.Unlock()
	}
	if int(o.Outcome) < outcomes {
		c.outcome[o.Outcome].total.Add(1)
	}
	if o.Err != nil && !errors.Is(o.Err, context.Canceled) { // by the client
		c.lastErr.Store(&storeError{now, o.Err})
	}
	degraded := false
	for i := range o.Rules {
		rule := &o.Rules[i]
		s := c.of(rule.Rule)
		s.asked.total.Add(1)
		if !rule.Allowed && o.Err == nil { // with an error there is no decision
			s.refused.total.Add(1)
			d.countRefusal(o.Rules, i)
		}
		degraded = degraded || rule.Degraded
	}
	if degraded {
		c.degraded.total.Add(1)
	}
	d.hour.Observe(o)
}

// now is the present second.
func (d *Dashboard) now() int64 { return int64(time.Since(d.start) / time.Second) }

func (c *counts) of(rule *middleware.RuleInfo) *series { return c.cache.Of(rule, maxRules, c.named) }

// named returns the series of a rule by its name, so a changed rule keeps its series.
func (c *counts) named(rule *middleware.RuleInfo) *series {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := seriesName{rule.Name, rule.Tier}
	if s, ok := c.byName[name]; ok {
		return s
	}
	if len(c.byName) == maxSeries && !c.sweep() {
		return c.other
	}
	s := &series{seriesName: name}
	c.byName[name] = s
	return s
}

// sweep removes series without a request in all the time that is shown: most are of rules that are
// gone. It runs when a new rule finds no room, once in that time.
func (c *counts) sweep() bool {
	now := c.second.Load()
	if now-c.swept < span {
		return false
	}
	c.swept = now
	for name, s := range c.byName {
		if s.asked.total.Load() == s.asked.folded && s.asked.sum(now, span) == 0 {
			delete(c.byName, name)
		}
	}
	c.cache.Forget()
	return len(c.byName) < maxSeries
}

// fold ends the second that was being counted, if now is a later one. It costs a few hundred loads and
// stores.
func (c *counts) fold(now int64) {
	last := c.second.Load()
	if now <= last {
		return
	}
	for i := range c.outcome {
		c.outcome[i].fold(last, now)
	}
	c.degraded.fold(last, now)
	for _, s := range c.byName {
		s.asked.fold(last, now)
		s.refused.fold(last, now)
	}
	c.other.asked.fold(last, now)
	c.other.refused.fold(last, now)
	c.second.Store(now)
}

func (c *counter) fold(last, now int64) {
	total := c.total.Load()
	c.history[last%kept] = uint32(total - c.folded)
	c.folded = total
	for idle := max(last+1, now-kept); idle < now; idle++ {
		c.history[idle%kept] = 0
	}
}

// seconds returns the counts of the last n whole seconds before now, the oldest first; 0 before the
// start. The counter is folded to now.
func (c *counter) seconds(now int64, n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		if second := now - int64(n-i); second >= 0 {
			list[i] = c.history[second%kept]
		}
	}
	return list
}

// sum returns the count of the last n whole seconds before now.
func (c *counter) sum(now int64, n int) (sum uint64) {
	for second := max(0, now-int64(n)); second < now; second++ {
		sum += uint64(c.history[second%kept])
	}
	return sum
}
