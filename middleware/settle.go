package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirgo/weir/limiter"
)

// ErrNotApplied is what [Settle] returns for a rule that did not apply to the request: it did not match, or an exempt request met no rules.
var ErrNotApplied = errors.New("middleware: the rule did not apply to this request")

// Settle says that the request with this context cost n units of a rule with [Reserve]:
// more or less than was reserved when it came. What was reserved and not used is returned.
// What is beyond it is taken all the same, up to what the limit allows at once, and later
// requests wait for it.
//
// It is settled when the handlers have returned, or at once if they have, as from a goroutine
// that outlives them. Of a request that is settled twice the first counts, and one that never
// is has cost what was reserved. The error is [limiter.ErrSettled], [ErrNotApplied], or about
// the rule or n.
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
			return fmt.Errorf("middleware: Settle of rule %.128q: it does not settle: its Cost is no Reserve", rule)
		}
	}
	return fmt.Errorf("%w: %.128q", ErrNotApplied, rule)
}

func endingOf(ctx context.Context) *ending {
	e, _ := ctx.Value(endingKey{}).(*ending)
	return e
}

// find is the place of what applied of a rule, or -1.
func (s *decided) find(rule string) int {
	return slices.IndexFunc(s.policies, func(p applied) bool { return p.rule.Name == rule })
}

// say notes that the request has cost n by a, which is one of e's, and settles it if the
// request has ended. What the limiter has charged further out is the first part of n.
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

// said notes e's part of the n that the request has cost by a: at most what was charged here,
// but for the innermost, which has the rest. It is false if that was said before.
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
