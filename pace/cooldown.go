package pace

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A cooldown holds back the requests of one key, in all processes that share Options.Cooldowns.
type cooldown struct {
	rule *rule
	name string // in Options.Cooldowns

	waiting atomic.Int64 // requests that wait for its end
	alone   atomic.Int64 // when it ends, while it is not in Options.Cooldowns; see Transport.now
	ended   atomic.Int64 // when the last one ends or ended; 0: there was none

	mu       sync.Mutex
	begun    int64 // cooldowns that began in this process
	refusals int64 // in a row that did not say for how long
	sharing  bool  // a request writes to Options.Cooldowns
}

// left is how long no requests are sent, [limiter.Never] if a ban by hand has no end.
func (c *cooldown) left() time.Duration {
	t := c.rule.transport
	var left time.Duration
	if alone := c.alone.Load(); alone > 0 {
		left = max(0, time.Duration(alone-t.now()))
	}
	if list := t.options.Cooldowns; !list.Empty() {
		if ban, ok := list.Find(c.name); ok {
			if ban.Until.IsZero() {
				return limiter.Never
			}
			left = max(left, time.Until(ban.Until))
		}
	}
	switch now := t.now(); {
	case left > 0:
		c.ended.Store(now + int64(left))
	case c.ended.Load() > now: // an operator has lifted it
		c.ended.Store(now)
	}
	return left
}

// begin holds requests back for wait, unless they are held back for as long already, give or take
// slack. It returns how long the cooldown is that began, or 0.
func (c *cooldown) begin(ctx context.Context, wait, slack time.Duration) time.Duration {
	c.mu.Lock()
	began := c.start(wait, slack)
	c.mu.Unlock()
	return c.share(ctx, began)
}

// backOff is begin for a refusal that did not say for how long: each in a row doubles the cooldown.
// Requests that were sent before the last cooldown began are part of the refusal that began it.
func (c *cooldown) backOff(ctx context.Context, sent int64) (began time.Duration) {
	c.mu.Lock()
	if sent == c.begun {
		c.refusals++
		began = c.start(c.rule.backoff(c.refusals), 0)
	}
	c.mu.Unlock()
	return c.share(ctx, began)
}

// start begins a cooldown in this process. c.mu is locked.
func (c *cooldown) start(wait, slack time.Duration) time.Duration {
	if left := c.left(); left > 0 && left >= wait-slack {
		return 0
	}
	end := c.rule.transport.now() + int64(wait)
	c.begun++
	c.alone.Store(end)
	c.ended.Store(end)
	return wait
}

// sent is the number of cooldowns so far, for a request that is about to be sent.
func (c *cooldown) sent() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

// served ends the row of refusals, if the request was sent after the last cooldown began.
func (c *cooldown) served(sent int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent == c.begun {
		c.refusals = 0
	}
}

// share writes a cooldown that began to Options.Cooldowns. One request at a time writes, until the
// list has the latest cooldown: of two at once, the shorter might be written last.
func (c *cooldown) share(ctx context.Context, began time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if began == 0 || c.sharing { // who is writing writes this one too
		return began
	}
	c.sharing = true
	defer func() { c.sharing = false }()
	for {
		end := c.alone.Load()
		err := c.write(ctx, end)
		if c.alone.Load() != end {
			continue
		}
		if err == nil {
			c.alone.Store(0) // so that an operator can lift it
		}
		return began
	}
}

// write writes a cooldown to Options.Cooldowns. c.mu is locked before and after, and not meanwhile.
func (c *cooldown) write(ctx context.Context, end int64) (err error) {
	c.mu.Unlock()
	defer c.mu.Lock()
	t := c.rule.transport
	if left := time.Duration(end - t.now() + int64(time.Millisecond) - 1).Truncate(time.Millisecond); left > 0 {
		limited, cancel := outlive(ctx)
		defer cancel()
		err = t.options.Cooldowns.Ban(limited, c.name, left)
	}
	t.warnAlone(ctx, c.rule.name, err)
	return err
}

// isIdle reports whether nothing would be forgotten with c.
func (c *cooldown) isIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting.Load() == 0 && c.alone.Load() <= c.rule.transport.now() && c.refusals == 0
}

// warnAlone logs that a cooldown could not be shared, once until one can be.
func (t *Transport) warnAlone(ctx context.Context, rule string, err error) {
	t.mu.Lock()
	warn := err != nil && t.isShared
	t.isShared = err == nil
	t.mu.Unlock()
	if warn {
		t.options.Logger.WarnContext(ctx, "weir: a cooldown cannot be shared, so it holds in this process alone",
			"code", "weir-cooldown-alone", "rule", rule, "error", err)
	}
}

// The length of a cooldown where the server does not say: the time of ten requests, doubled with
// each refusal in a row.
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

// raise makes it n at least.
func raise(to *atomic.Int64, n int64) {
	for {
		if old := to.Load(); old >= n || to.CompareAndSwap(old, n) {
			return
		}
	}
}
