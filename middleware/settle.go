package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirgo/weir/limiter"
)

// ErrNotApplied is the error of [Settle] if the rule did not apply to the request: it did not match, or
// the request was exempt.
var ErrNotApplied = errors.New("middleware: the rule did not apply to this request")

// Settle sets the real cost of the request with this context to n units, for a rule with [Reserve].
// Units that were reserved and not used are refunded. Units beyond the reservation are charged even if
// the limit has no room: they become a debt, and later requests are refused until it is paid. The debt
// is at most the units that the limit allows at once.
//
// The charge changes when the handlers have returned, or at once if they have returned already. If a
// request is settled twice, the first call counts. If it is never settled, it costs what was reserved.
// The error is [limiter.ErrSettled], [ErrNotApplied], or about the rule or n.
func Settle(ctx context.Context, rule string, n int64) error {
	if n < 0 {
		return fmt.Errorf("middleware: Settle of rule %.128q: %d units: they must not be negative", rule, n)
	}
	for e := endingOf(ctx); e != nil; e = endingOf(e.Context) {
		if i := e.find(rule); i >= 0 && e.policies[i].rule.Cost.settles {
			return e.say(&e.policies[i], n)
		}
	}
	for s := scopeOf(ctx); s != nil; s = s.outer {
		if s.find(rule) >= 0 {
			return fmt.Errorf("middleware: Settle of rule %.128q: it cannot be settled: its Cost is not a Reserve", rule)
		}
	}
	return fmt.Errorf("%w: %.128q", ErrNotApplied, rule)
}

func endingOf(ctx context.Context) *ending {
	e, _ := ctx.Value(endingKey{}).(*ending)
	return e
}

// find returns the index of a rule's first policy, or -1.
func (s *decided) find(rule string) int {
	return slices.IndexFunc(s.policies, func(p applied) bool { return p.rule.Name == rule })
}

// say notes that the request cost n units of a, a policy of e, and settles them if the request has
// ended. What this limiter charged further out is the first part of n.
func (e *ending) say(a *applied, n int64) error {
	owed, ok := e.said(a, n, true)
	if !ok {
		return fmt.Errorf("middleware: Settle of rule %.128q: %w", a.rule.Name, limiter.ErrSettled)
	}
	e.settle(owed)
	for out := endingOf(e.Context); out != nil; out = endingOf(out.Context) {
		if out.url != nil && out.url == e.url {
			owed, _ = out.said(a, n, false)
			out.settle(owed)
		}
	}
	return nil
}

// said notes e's part of the n units of a: at most what e charged, except for the innermost ending, which
// takes the rest. It returns false if the cost was set before.
func (e *ending) said(a *applied, n int64, innermost bool) (owed []limiter.Settlement, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.opened {
		o := &e.opened[i]
		p := &e.policies[o.rule]
		switch {
		case !p.isOf(a.policy, a.key):
			continue
		case o.said != unsaid:
			return nil, false
		}
		further, _ := e.outer.taken(e.url, p.policy, p.key)
		o.said = max(0, n-further)
		if !innermost {
			o.said = min(o.said, p.cost)
		}
		if e.ended {
			owed = e.append(owed, o, e.actual(o))
		}
	}
	return owed, true
}
