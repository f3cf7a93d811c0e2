package middleware

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/limiter"
)

// Begin is [RateLimit.Check] for rules that go by how a request ends, which an adapter has to
// tell: where finish is not nil, it is to be called once, when the handlers have returned or
// while they panic, with the status of the answer: of handlers that have answered nothing 200,
// or 500 if they panic, and 101 of a connection that they have taken over.
//
// A request that is refused is answered unless told is not nil, which then is told what to
// answer, as [RateLimit.Refusal] does.
func (l *RateLimit) Begin(w http.ResponseWriter, r *http.Request, told *Result) (finish func(status int), passed bool) {
	behind, end := l.check(l.ruleset(r), w, r, how{inPlace: true, ends: true}, told)
	if end != nil {
		finish = end.finish
	}
	return finish, behind != nil
}

// An ending is the scope of a request that some rule awaits the end of: what it was charged
// may change then.
type ending struct {
	scope
	limits *RateLimit
	set    *ruleset

	mu     sync.Mutex
	ended  bool
	opened []open
	space  [1]open
}

// An open is a charge that the end of the request may change.
type open struct {
	*applied
	charge limiter.Charge // what was taken
}

// passedToEnd is passed for an ending.
type passedToEnd struct {
	ending
	request http.Request
}

type endingKey struct{}

// Value makes the ending itself findable.
func (e *ending) Value(key any) any {
	if key == (endingKey{}) {
		return e
	}
	return e.scope.Value(key)
}

// awaitsEnd reports whether a rule that applied goes by how the request ends.
func (s *decided) awaitsEnd() bool {
	for i := range s.policies {
		if s.policies[i].rule.awaitsEnd() {
			return true
		}
	}
	return false
}

func (r *rule) awaitsEnd() bool { return r.Counts.given }

// await keeps what was decided about r, and taken, until r ends. It returns the request that
// goes further, and the place for the fields' text.
func (l *RateLimit) await(set *ruleset, r *http.Request, how how, outer *scope, s *decided, more *many, taken []limiter.Charge) (behind *http.Request, e *ending, text []byte) {
	if how.inPlace {
		e, behind = &ending{}, r
	} else {
		p := &passedToEnd{}
		e, behind = &p.ending, &p.request
	}
	text = e.keep(r, outer, s, more)
	*behind = *r.WithContext(e)
	e.limits, e.set, e.opened = l, set, e.space[:0]
	for i := range taken {
		c := &taken[i]
		for j := range e.policies {
			p, d := &e.policies[j], &e.decisions[j]
			if p.rule.awaitsEnd() && (c.Quota == p.quota || c.Quota == p.overdraft) && d.Counted() {
				e.opened = append(e.opened, open{p, *c})
			}
		}
	}
	return behind, e, text
}

// serve has next answer r.
func (e *ending) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	watched, answered := response.Watch(w)
	panicked := true
	defer func() { e.finish(answered.Status(panicked)) }()
	next.ServeHTTP(watched, r)
	panicked = false
}

// finish settles what the request was charged: its answer has that status.
func (e *ending) finish(status int) {
	e.settle(func(o *open) int64 {
		if !o.rule.Counts.counts(status) {
			return 0
		}
		return o.charge.Cost
	})
}

// cancel returns what was charged to a request that no handler has seen.
func (e *ending) cancel() { e.settle(func(*open) int64 { return 0 }) }

// settle makes charges what they should have been. Only the first call does anything.
func (e *ending) settle(actual func(*open) int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return
	}
	e.ended = true
	var refunds []limiter.Charge
	for i := range e.opened {
		o := &e.opened[i]
		if n := actual(o); n < o.charge.Cost {
			back := o.charge
			back.Cost -= n
			refunds = append(refunds, back)
		}
	}
	if len(refunds) > 0 {
		e.limits.refund(e.Context, e.set, refunds)
	}
}

// settlePatience is how long the end of a request waits for the store.
const settlePatience = time.Second

// refund returns what a request took. That the client is gone does not matter.
func (l *RateLimit) refund(ctx context.Context, set *ruleset, charges []limiter.Charge) {
	if l.memory == nil { // which waits for nothing
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
		defer cancel()
	}
	if err := l.store.Refund(ctx, charges); err != nil {
		set.notices.unsettled.warn(set.Logger, "weir-not-settled",
			"weir: the store could not be told how a request ended, which stays charged as when it came",
			slog.String("error", err.Error()))
	}
}
