package middleware

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/weirgo/weir/limiter"
)

// How many requests of a rule are in progress at once: a policy beside those of its limits, of
// which a request takes a place, and returns it when it ends.

// isSlot reports whether p is a rule's Concurrency, and not one of its limits.
func (p *policy) isSlot() bool { return p.quota.InFlight() }

// A progress is what is under way of a rule in one tier. It outlives a change of the rules.
type progress struct{ requests, waiting atomic.Int64 }

func (c *compiler) progress(of counters) *progress {
	p := &progress{}
	if c.before != nil && c.before.progress[of] != nil {
		p = c.before.progress[of]
	}
	c.set.progress[of] = p
	return p
}

// withoutLimit checks what is said of a rule that has nothing but places.
func (c *compiler) withoutLimit(at string, given Rule) {
	for _, field := range []struct {
		name  string
		given bool
	}{
		{"Cost", given.Cost.isGiven()},
		{"Counts", given.Counts.given},
		{"Afterwards", given.Counts.after},
	} {
		if field.given {
			c.report("%s: %s is set, and there is no limit: of AtOnce each request takes one place, and returns it when it ends", at, field.name)
		}
	}
}

// checkQuota returns why the store cannot count by q, or nil.
func (l *RateLimit) checkQuota(q *limiter.Quota) error {
	if err := limiter.CheckStore(l.store, q); err != nil {
		return fmt.Errorf("middleware: Config.Store: %w", err)
	}
	return nil
}

// slotOf is what the request has taken, if that policy is one.
func (s *decided) slotOf(i int) (limiter.Charge, bool) {
	if !s.policies[i].isSlot() {
		return limiter.Charge{}, false
	}
	return s.took(i)
}

// hasSlot reports whether the request has taken one.
func (s *decided) hasSlot() bool {
	for i := range s.policies {
		if _, ok := s.slotOf(i); ok {
			return true
		}
	}
	return false
}

// hold notes that the request has places.
func (e *ending) hold() {
	e.holds.Store(true)
	for i := range e.policies {
		if _, ok := e.slotOf(i); ok {
			e.policies[i].progress.requests.Add(1)
		}
	}
}

// release returns the request's places, once.
func (e *ending) release() {
	if !e.holds.Swap(false) {
		return
	}
	for i := range e.policies {
		if c, ok := e.slotOf(i); ok {
			e.policies[i].progress.requests.Add(-1)
			e.limits.end(e.Context, e.set, c)
		}
	}
}

// end returns a place. That the client is gone does not matter.
func (l *RateLimit) end(ctx context.Context, set *ruleset, c limiter.Charge) {
	if l.memory != nil {
		_ = l.memory.Settle(ctx, []limiter.Settlement{{Charge: c}}) // which cannot fail
	} else {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
		err := l.store.Settle(ctx, []limiter.Settlement{{Charge: c}})
		cancel()
		if err != nil {
			set.notices.unreturned.warn(set.Logger, "weir-not-returned",
				"weir: the store could not be told that a request has ended; its place is free when the store gives up on it",
				slog.String("error", err.Error()))
		}
	}
	l.room.Returned(lineOf(&c))
}

// holdsFor reports whether the request with that context, or one that it is part of, has a place
// of p for the key. It takes one place, and would wait for itself if it took two.
func holdsFor(ctx context.Context, p *policy, key string) bool {
	for e := endingOf(ctx); e != nil; e = endingOf(e.Context) {
		if !e.holds.Load() {
			continue
		}
		for i := range e.policies {
			if _, ok := e.slotOf(i); ok && e.policies[i].isOf(p, key) {
				return true
			}
		}
	}
	return false
}

// full is how many requests may be in progress at once, if a refused request lacks a place, and
// nothing else; and whether it is one of all clients together.
func (s *decided) full() (most int64, shared bool) {
	shared = true
	for i := range s.policies {
		a, d := &s.policies[i], &s.decisions[i]
		switch {
		case d.Allowed || a.shadow:
		case !a.isSlot():
			return 0, false
		default:
			most = d.Limit
			shared = shared && a.rule.Key == nil
		}
	}
	return most, shared && most > 0
}

// An InProgress is how much of a rule with AtOnce is under way in this process.
type InProgress struct {
	Rule     *RuleInfo // shared, and not to be changed
	Requests int64     // that have a place
	Waiting  int64     // that wait for one
}

// InProgress is what is under way now of each rule with AtOnce, in the order of Rules.
func (l *RateLimit) InProgress() []InProgress {
	var all []InProgress
	for _, p := range l.rules.Load().policies() {
		info := p.info
		if p = p.slots(); p != nil {
			all = append(all, InProgress{info, p.progress.requests.Load(), p.progress.waiting.Load()})
		}
	}
	return all
}

// placed is the one of p's parts that is the rule's Concurrency, or nil.
func (p *policy) slots() *policy {
	if last := p.parts[len(p.parts)-1]; last.isSlot() {
		return last
	}
	return nil
}
