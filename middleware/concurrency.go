package middleware

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/weirgo/weir/limiter"
)

// The AtOnce of a rule is a policy beside those of its limits. A request takes a slot of it, and releases
// the slot when it ends.

// isSlot reports whether p is a rule's AtOnce, not one of its limits.
func (p *policy) isSlot() bool { return p.quota.InFlight() }

// A progress counts the requests in progress of a rule in one tier. It survives a change of the rules.
type progress struct{ requests, waiting atomic.Int64 }

func (c *compiler) progress(of counters) *progress {
	p := &progress{}
	if c.before != nil && c.before.progress[of] != nil {
		p = c.before.progress[of]
	}
	c.set.progress[of] = p
	return p
}

// withoutLimit checks the fields of a rule that has AtOnce alone.
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
			c.report("%s: %s needs a Limit: a request always takes one slot of AtOnce", at, field.name)
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

// slotOf returns the slot that the request has taken, if policy i is AtOnce.
func (s *decided) slotOf(i int) (limiter.Charge, bool) {
	if !s.policies[i].isSlot() {
		return limiter.Charge{}, false
	}
	return s.took(i)
}

// hasSlot reports whether the request has taken a slot.
func (s *decided) hasSlot() bool {
	for i := range s.policies {
		if _, ok := s.slotOf(i); ok {
			return true
		}
	}
	return false
}

// hold counts the request's slots as in progress.
func (e *ending) hold() {
	e.holds.Store(true)
	for i := range e.policies {
		if _, ok := e.slotOf(i); ok {
			e.policies[i].progress.requests.Add(1)
		}
	}
}

// release releases the request's slots. Only the first call does anything.
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

// end releases a slot, also if the client is gone.
func (l *RateLimit) end(ctx context.Context, set *ruleset, c limiter.Charge) {
	if err := l.settle(ctx, []limiter.Settlement{{Charge: c}}); err != nil {
		set.notices.unreturned.warn(set.Logger, "weir-not-returned",
			"weir: the store did not learn that a request has ended; its slot is released when its lease ends",
			slog.String("error", err.Error()))
	}
	l.room.Released(slotKeyOf(&c))
}

// holdsFor reports whether the request with that context, or a request around it, has a slot of p for the
// key. If it took a second slot, it could wait for itself.
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

// full returns how many requests may be in progress at once, if only slots are missing for a refused
// request, and whether all clients share these slots.
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

// An InProgress counts the requests of a rule with AtOnce in this process.
type InProgress struct {
	Rule     *RuleInfo // shared: do not change it
	Requests int64     // that hold a slot
	Waiting  int64     // that wait for a slot
}

// InProgress returns the requests in progress of each rule with AtOnce, in the order of Rules.
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

// slots returns the part of p that is the rule's AtOnce, or nil.
func (p *policy) slots() *policy {
	if last := p.parts[len(p.parts)-1]; last.isSlot() {
		return last
	}
	return nil
}
