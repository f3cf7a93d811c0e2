package pace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirgo/weir/limiter"
)

// admit waits until the request may be sent: until no cooldown is in force, for its turn, and
// for a slot, which release releases. With an error it has taken nothing.
func (c *call) admit() (release func(), err error) {
	for {
		if err := c.coolDown(); err != nil {
			return nil, err
		}
		taken, err := c.takeTurn()
		if err != nil {
			return nil, err
		}
		release, err := c.acquire()
		if err == nil && c.a.cooldown.left() == 0 {
			return release, nil
		}
		c.a.turns.giveBack(c.ctx, taken)
		if err != nil {
			return nil, err
		}
		// A cooldown has begun meanwhile, if only while the store was asked. After it, this request
		// needs another turn, like all that waited: they must not be sent together.
		release()
	}
}

// A waiting request checks whether an operator has lifted the cooldown: after each fiftieth of the
// remaining time, but not more often than lookEvery.
const lookEvery = time.Second

// coolDown waits for the end of a cooldown, if there is one. After it each waiting request needs a turn.
func (c *call) coolDown() error {
	cooldown := &c.a.cooldown
	left := cooldown.left()
	if left == 0 {
		return nil
	}
	ahead := cooldown.waiting.Add(1) - 1
	defer cooldown.waiting.Add(-1)
	for ; left > 0; left = cooldown.left() {
		if least := add(left, c.rule.timeOf(ahead)); least > c.longest() {
			return &WaitError{Rule: c.rule.name, Wait: least, Cooldown: true}
		}
		if err := c.sleep(min(left, max(lookEvery, left/50))); err != nil {
			return err
		}
	}
	return nil
}

// shortest is the shortest wait: timers are no finer. The turns do not change.
const shortest = 50 * time.Microsecond

// takeTurn takes a turn, and waits for it.
func (c *call) takeTurn() (taken turn, err error) {
	r, queue := c.rule, &c.a.turns
	if r.quota == nil {
		return turn{}, nil
	}
	cost := c.a.slowdown.Load().cost(c.t.now(), r)
	mayWait := func() time.Duration { return c.ahead() + max(shortest, c.longest()) }
	if !queue.reserve(cost, mayWait()) {
		if err := queue.look(c.ctx); err != nil {
			return turn{}, err
		}
		if !queue.reserve(cost, mayWait()) {
			return turn{}, &WaitError{Rule: r.name, Wait: queue.wait() - c.ahead()}
		}
	}
	taken, err = queue.take(c.ctx, cost)
	if err != nil {
		return turn{}, err
	}
	if !taken.decision.Allowed {
		return turn{}, &WaitError{Rule: r.name, Wait: c.afterQueue(&taken)}
	}
	switch wait := taken.decision.Delay - c.ahead(); {
	case wait <= shortest:
		return taken, nil
	case wait > c.longest():
		err = &WaitError{Rule: r.name, Wait: wait}
	default:
		err = c.sleep(wait)
	}
	if err != nil {
		queue.giveBack(c.ctx, taken)
	}
	return taken, err
}

// ahead is how long before its turn a request may leave. A burst is earned again after a cooldown, so
// that no burst follows it.
func (c *call) ahead() time.Duration {
	if c.rule.burst == 1 {
		return 0
	}
	ahead := c.rule.timeOf(c.rule.burst - 1)
	if ended := c.a.cooldown.ended.Load(); ended > 0 {
		ahead = min(ahead, max(0, time.Duration(c.t.now()-ended)))
	}
	return ahead
}

// afterQueue is how long a request would wait if it finds the queue full.
func (c *call) afterQueue(t *turn) time.Duration {
	d := &t.decision
	if d.RetryAfter == limiter.Never { // the share of this process in an outage is less than cost
		return d.ResetAfter + c.rule.per
	}
	return add(d.RetryAfter, max(0, c.rule.timeOf(d.Limit-t.cost)-c.ahead()))
}

// acquire acquires a slot if the rule has AtOnce, and waits for one if need be. The request is in
// flight until release is called. Further calls of release do nothing.
func (c *call) acquire() (release func(), err error) {
	r, ctx := c.rule, c.ctx
	if r.slots == nil {
		return func() {}, nil
	}
	if c.left < r.slotWait {
		limited, cancel := context.WithTimeout(ctx, c.left)
		defer cancel()
		ctx = limited
	}
	r.waiting.Add(1)
	began := c.t.now()
	free, d, err := r.slots.Acquire(ctx, c.a.key)
	waited := time.Duration(c.t.now() - began)
	c.hasWaited(waited)
	r.waiting.Add(-1)
	switch {
	case err == nil && d.Allowed:
		r.inFlight.Add(1)
		return sync.OnceFunc(func() {
			r.inFlight.Add(-1) // first, or a waiter makes the two seem to be in flight together
			free()
		}), nil
	case err == nil:
		return nil, &WaitError{Rule: r.name, Wait: d.RetryAfter}
	case c.ctx.Err() != nil:
		return nil, context.Cause(c.ctx)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return nil, &WaitError{Rule: r.name, Wait: waited}
	}
	return nil, wrap(r, err)
}

// wrap names the rule in an error of the store's.
func wrap(r *rule, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pace: %s: %w", r.name, err)
}

// lateness is how late the timers of a request's earlier waits may have been.
const lateness = 10 * time.Millisecond

// longest is how long the request can still wait.
func (c *call) longest() time.Duration {
	longest := c.left + lateness
	if deadline, ok := c.ctx.Deadline(); ok {
		longest = min(longest, time.Until(deadline)-1)
	}
	return longest
}

// sleep waits for d, or until the context ends, which is its error.
func (c *call) sleep(d time.Duration) error {
	c.rule.waiting.Add(1)
	defer c.rule.waiting.Add(-1)
	began := c.t.now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
	case <-c.ctx.Done():
		err = context.Cause(c.ctx)
	}
	c.hasWaited(time.Duration(c.t.now() - began))
	return err
}

func (c *call) hasWaited(d time.Duration) {
	c.waited += d
	c.left -= d
}

// patience is how long a request waits for a write to the Store or to Cooldowns after which it
// needs no answer. Package redisbans goes on with a write that was given up.
const patience = 100 * time.Millisecond

// outlive is a context for such a write though ctx has ended.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}

// add is a+b, or Never.
func add(a, b time.Duration) time.Duration {
	if a > limiter.Never-b {
		return limiter.Never
	}
	return a + b
}
