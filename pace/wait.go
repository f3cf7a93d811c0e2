package pace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// admit waits until the request may be sent: until no cooldown is in force, for its turn, and
// for a slot, which leave releases. With an error it has taken nothing.
func (c *call) admit() (leave func(), err error) {
	for {
		for cooldown := c.t.cooldown(c.a); cooldown > 0; cooldown = c.t.cooldown(c.a) {
			if err := c.coolDown(cooldown); err != nil {
				return nil, err
			}
		}
		if err := c.takeTurn(); err != nil {
			return nil, err
		}
		leave, err := c.acquire()
		if err != nil {
			c.giveBack()
			return nil, err
		}
		if c.t.cooldown(c.a) == 0 {
			return leave, nil
		}
		// A cooldown has begun meanwhile, if only while the store was asked. After it, this request
		// needs another turn: so do all that waited, and they are not to be sent together.
		leave()
		c.giveBack()
	}
}

// cooldown is for how long no requests of an account are sent, [limiter.Never] if there is no
// end to it.
func (t *Transport) cooldown(a *account) time.Duration {
	var left time.Duration
	if alone := a.alone.Load(); alone > 0 {
		left = max(0, time.Duration(alone-t.now()))
	}
	if list := t.options.Cooldowns; !list.Empty() {
		if ban, ok := list.Find(a.name); ok {
			if ban.Until.IsZero() {
				return limiter.Never
			}
			left = max(left, time.Until(ban.Until))
		}
	}
	if left > 0 {
		a.cooledUntil(t.now() + int64(left))
	}
	return left
}

// cooledUntil notes when a cooldown ends.
func (a *account) cooledUntil(end int64) {
	a.ended.Store(end)
	raise(&a.rule.until, end)
}

// raise makes it n at least.
func raise(to *atomic.Int64, n int64) {
	for {
		if old := to.Load(); old >= n || to.CompareAndSwap(old, n) {
			return
		}
	}
}

// coolDown waits for the end of a cooldown, after which each of those that wait needs a turn.
func (c *call) coolDown(left time.Duration) error {
	ahead := c.a.coolingDown.Add(1) - 1
	defer c.a.coolingDown.Add(-1)
	if least := add(left, c.rule.timeOf(ahead)); !c.fits(least) {
		return &WaitError{Rule: c.rule.name, Wait: least, Cooldown: true}
	}
	return c.sleep(left)
}

// A turn is what was taken from the bucket.
type turn struct {
	cost     int64 // 0: nothing
	decision limiter.Decision
}

// shortest is what is not waited for, as timers are no finer. The turns stay as they are.
const shortest = 50 * time.Microsecond

// takeTurn takes a turn, and waits for it.
func (c *call) takeTurn() error {
	r := c.rule
	if r.quota == nil {
		return nil
	}
	cost := int64(1)
	if told := c.a.told.Load(); told != nil {
		cost = told.cost(c.t.now(), r)
	}
	if !c.reserve(cost) {
		if err := c.look(cost); err != nil {
			return err
		}
	}
	d, err := c.decide(cost)
	if err != nil {
		return fmt.Errorf("pace: %s: %w", r.name, err)
	}
	if !d.Allowed {
		return &WaitError{Rule: r.name, Wait: c.afterQueue(&d, cost)}
	}
	raise(&c.a.queueEnd, c.t.now()+int64(d.Delay+r.timeOf(cost)))
	c.turn = turn{cost, d}
	wait := d.Delay - c.ahead()
	switch {
	case wait <= shortest:
		return nil
	case !c.fits(wait):
		err = &WaitError{Rule: r.name, Wait: wait}
	default:
		err = c.sleep(wait)
	}
	if err != nil {
		c.giveBack()
	}
	return err
}

// reserve reports whether a request can wait for its turn, as far as this process knows. A turn
// that is taken in vain returns to the queue only as long as none stands behind it, so that many
// requests which cannot wait would make the queue longer: none of them is to take one.
func (c *call) reserve(cost int64) bool {
	for {
		end, now := c.a.queueEnd.Load(), c.t.now()
		turn := max(end, now)
		if wait := time.Duration(turn-now) - c.ahead(); wait > shortest && !c.fits(wait) {
			return false
		}
		if c.a.queueEnd.CompareAndSwap(end, turn+int64(c.rule.timeOf(cost))) {
			return true
		}
	}
}

// look asks the store for the end of the queue, as requests of this process or of others may have
// left it, and reserves a turn there. One request asks at a time, for all that came meanwhile.
func (c *call) look(cost int64) error {
	looks := c.a.looks.Load()
	select {
	case c.a.looking <- struct{}{}:
		defer func() { <-c.a.looking }()
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	if looks == c.a.looks.Load() {
		before := c.a.queueEnd.Load()
		d, err := c.decide(0)
		if err != nil {
			return fmt.Errorf("pace: %s: %w", c.rule.name, err)
		}
		// The store has counted what it was asked for before. What was reserved since stays reserved.
		c.a.queueEnd.Add(c.t.now() + int64(d.Delay) - before)
		c.a.looks.Add(1)
	}
	if c.reserve(cost) {
		return nil
	}
	return &WaitError{Rule: c.rule.name, Wait: time.Duration(c.a.queueEnd.Load()-c.t.now()) - c.ahead()}
}

// ahead is how long before its turn a request may leave. A burst is earned again after a
// cooldown, so that one does not end with it.
func (c *call) ahead() time.Duration {
	if c.rule.burst == 1 {
		return 0
	}
	ahead := c.rule.timeOf(c.rule.burst - 1)
	if ended := c.a.ended.Load(); ended > 0 {
		ahead = min(ahead, max(0, time.Duration(c.t.now()-ended)))
	}
	return ahead
}

// afterQueue is how long a request would wait that finds the queue full.
func (c *call) afterQueue(d *limiter.Decision, cost int64) time.Duration {
	if d.RetryAfter == limiter.Never {
		return d.ResetAfter + c.rule.per // of a process's share in an outage, which is less than cost
	}
	return add(d.RetryAfter, max(0, c.rule.timeOf(d.Limit-cost)-c.ahead()))
}

// giveBack returns the turn of a request that was not sent.
func (c *call) giveBack() {
	t := c.turn
	c.turn = turn{}
	if t.cost == 0 || !t.decision.Counted() {
		return
	}
	ctx, end := outlive(c.ctx)
	defer end()
	_ = c.t.options.Store.Settle(ctx, []limiter.Settlement{{Charge: limiter.Charge{
		Quota: c.rule.quota, Key: c.a.key, Cost: t.cost, Receipt: c.rule.quota.Undo(&t.decision),
	}}}) // else it drains
}

// acquire takes a slot of the rule, if it has AtOnce, and waits for one if need be. The request is
// in flight until leave is called, as often as it may be.
func (c *call) acquire() (leave func(), err error) {
	r, ctx := c.rule, c.ctx
	if r.places == nil {
		return func() {}, nil
	}
	if c.left < c.t.options.MaxWait {
		limited, cancel := context.WithTimeout(ctx, c.left)
		defer cancel()
		ctx = limited
	}
	r.waiting.Add(1)
	began := c.t.now()
	release, d, err := r.places.Acquire(ctx, c.a.key)
	waited := time.Duration(c.t.now() - began)
	c.hasWaited(waited)
	r.waiting.Add(-1)
	switch {
	case err == nil && d.Allowed:
		r.inFlight.Add(1)
		return sync.OnceFunc(func() {
			release()
			r.inFlight.Add(-1)
		}), nil
	case err == nil:
		return nil, &WaitError{Rule: r.name, Wait: d.RetryAfter}
	case c.ctx.Err() != nil:
		return nil, context.Cause(c.ctx)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return nil, &WaitError{Rule: r.name, Wait: waited}
	}
	return nil, fmt.Errorf("pace: %s: %w", r.name, err)
}

// lateness is how late timers may have been that a request waited for already.
const lateness = 10 * time.Millisecond

// fits reports whether the request can wait for d.
func (c *call) fits(d time.Duration) bool {
	if d > c.left+lateness {
		return false
	}
	deadline, ok := c.ctx.Deadline()
	return !ok || d < time.Until(deadline)
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

// decide asks the store for a turn.
func (c *call) decide(cost int64) (limiter.Decision, error) {
	decisions := make([]limiter.Decision, 1)
	err := c.t.options.Store.Decide(c.ctx, []limiter.Charge{{Quota: c.rule.quota, Key: c.a.key, Cost: cost}}, decisions)
	return decisions[0], err
}

// patience is how long a request waits for a server of its own that is to be told something. What
// it gives up on, redisbans tells later.
const patience = 100 * time.Millisecond

// outlive is a context for what is to be told though ctx has ended.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}
