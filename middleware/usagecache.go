package middleware

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	usageKept = time.Second // how long the store is not asked again

	// How many answers, and how many bytes of them, make others be forgotten before that: there
	// are at most twice as many.
	mostUsages    = 10_000
	mostUsageText = 4 << 20
)

// A usageCache remembers what clients were told of their usage. The zero one is empty.
type usageCache struct {
	mu         sync.Mutex
	set        *ruleset // that the answers are about
	young, old map[usageID]*usageAnswer
	bytes      int // of young's answers
	turned     time.Time
}

// A usageAnswer is what the store was asked for once. Its body is for all that asked.
type usageAnswer struct {
	until time.Time
	done  chan struct{} // closed when there are
	body  []byte
	err   error
}

func (a *usageAnswer) isGood(now time.Time) bool {
	select {
	case <-a.done:
		return now.Before(a.until)
	default:
		return true
	}
}

// of is the answer of that id: one that is under way or less than a second old, or else what ask
// says, which ends after a second, and not with the request.
func (c *usageCache) of(ctx context.Context, set *ruleset, id usageID, ask func(context.Context) ([]byte, error)) ([]byte, error) {
	a, isNew := c.answer(set, id)
	if isNew {
		c.ask(ctx, a, ask)
		return a.body, a.err
	}
	select {
	case <-a.done:
		return a.body, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *usageCache) answer(set *ruleset, id usageID) (_ *usageAnswer, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.set != set {
		c.set, c.young = set, nil
		c.turn(now)
	}
	if len(c.young) >= mostUsages || now.Sub(c.turned) >= usageKept {
		c.turn(now)
	}
	for _, answers := range [...]map[usageID]*usageAnswer{c.young, c.old} {
		if a := answers[id]; a != nil && a.isGood(now) {
			return a, false
		}
	}
	a := &usageAnswer{until: now.Add(usageKept), done: make(chan struct{})}
	c.young[id] = a
	return a, true
}

// turn forgets the old answers, and has the others be old.
func (c *usageCache) turn(now time.Time) {
	c.young, c.old, c.bytes, c.turned = map[usageID]*usageAnswer{}, c.young, 0, now
}

// ask fills in an answer. If that panics, others do not wait on.
func (c *usageCache) ask(ctx context.Context, a *usageAnswer, ask func(context.Context) ([]byte, error)) {
	a.err = errors.New("it panicked")
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(a.done)
		if c.bytes += len(a.body); c.bytes > mostUsageText {
			c.turn(time.Now())
		}
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limitPatience) // others wait for it too
	defer cancel()
	a.body, a.err = ask(ctx)
}
