package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/limiter"
)

// An ending is the scope of a request whose end matters: its charges may change then, and its slots are
// released.
type ending struct {
	scope
	limits   *RateLimit
	set      *ruleset
	answered response.Response // the answer, if a rule goes by its status
	body     response.Body     // the request's body, watched with the answer

	slot   Slot        // of Config.Overload; nil: it needs none
	holds  atomic.Bool // slots of rules, until they are released
	hidden bool        // handlers find no Result

	mu     sync.Mutex
	ended  bool
	unseen bool // a limiter further in refused the request
	left   bool // the client left before the request ended, or held its body back
	status int  // of the answer
	opened []open

	// The arrays of the slices, if there is one charge.
	space [1]open
	owed  [1]limiter.Settlement
}

// An open is a charge that the end of the request may change.
type open struct {
	rule   int            // index of its policy
	charge limiter.Charge // taken so far
	said   int64          // the cost that Settle was given, or unsaid
}

const unsaid = -1

// unknownStatus stands for a status that is unknown. Such an answer counts.
const unknownStatus = 0

// passedToEnd is passed for an ending.
type passedToEnd struct {
	ending
	request http.Request
}

type endingKey struct{}

// Value returns the ending itself for its key.
func (e *ending) Value(key any) any {
	switch {
	case key == (endingKey{}):
		return e
	case key == (response.WatcherKey{}) && e.isWatched():
		return e
	case e.hidden:
		return e.Context.Value(key)
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

func (r *rule) awaitsEnd() bool { return r.Counts.given || r.Cost.settles }

// begin gives e the slot, if it is not nil, and the charges that the end of the request may change.
func (e *ending) begin(l *RateLimit, set *ruleset, slot Slot) {
	e.limits, e.set, e.slot, e.opened = l, set, slot, e.space[:0]
	e.hidden = set.NoResult || len(e.policies) == 0
	for i := range e.policies {
		if c, ok := e.took(i); ok && e.policies[i].rule.awaitsEnd() && !e.policies[i].isSlot() { // slots are released
			e.opened = append(e.opened, open{i, c, unsaid})
		}
	}
}

// countsAnswers reports whether a rule that applied goes by the status of the answer.
func (e *ending) countsAnswers() bool {
	return slices.ContainsFunc(e.policies, func(p applied) bool { return p.rule.Counts.given })
}

// isWatched reports whether to watch the answer as it is written: for its status, or to find out whether
// it is a stream.
func (e *ending) isWatched() bool { return e.slot != nil || e.countsAnswers() }

// serve calls next with r.
func (e *ending) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if !e.isWatched() {
		defer e.finish(unknownStatus)
		next.ServeHTTP(w, r)
		return
	}
	watched := e.answered.Watch(w)
	if e.slot != nil { // without a watcher, files are sent as without Weir
		e.answered.Watcher = e
	}
	response.WatchBody(r, e)
	e.answered.Finish(e.finish, func() { next.ServeHTTP(watched, r) })
}

// finish settles the charges of the request, whose answer has that status. Only the first call does
// anything.
func (e *ending) finish(status int) {
	if owed, first := e.end(status); first {
		e.release()
		if e.slot != nil {
			e.slot.Leave()
		}
		e.settle(owed)
		e.strike(status)
	}
}

func (e *ending) end(status int) (owed []limiter.Settlement, first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return nil, false
	}
	e.ended, e.status, owed = true, status, e.owed[:0]
	e.left = errors.Is(e.Context.Err(), context.Canceled) || e.body.WasHeldBack(status)
	for i := range e.opened {
		owed = e.append(owed, &e.opened[i], e.actual(&e.opened[i]))
	}
	return owed, true
}

// actual returns what the request cost, as far as is known. If the client has left, every answer counts:
// a proxy answers 502 then though its backend has done the work, so clients could choose not to be
// charged. The same holds if the client sent a broken body, or held it back.
func (e *ending) actual(o *open) int64 {
	p := &e.policies[o.rule]
	switch {
	case !e.left && e.status != unknownStatus && !p.rule.Counts.counts(e.status):
		return 0
	case o.said != unsaid:
		return o.said
	case e.unseen && p.rule.Cost.settles:
		return 0
	}
	return p.cost
}

// unseen notes that no handler sees a request that limiters further out admitted, so that it costs nothing
// by their rules with Reserve. A request with another URL is one that a handler made, and that handler
// may have done work.
func unseen(r *http.Request) {
	for e := endingOf(r.Context()); e != nil; e = endingOf(e.Context) {
		if e.url == nil || e.url != r.URL {
			continue
		}
		e.mu.Lock()
		e.unseen = true
		e.mu.Unlock()
	}
}

// append appends the settlement of a charge, if the actual cost differs.
func (e *ending) append(owed []limiter.Settlement, o *open, actual int64) []limiter.Settlement {
	if actual == o.charge.Cost {
		return owed
	}
	owed = append(owed, limiter.Settlement{Charge: o.charge, Actual: actual})
	o.charge.Cost = actual
	return owed
}

// settlePatience is how long the end of a request waits for the store.
const settlePatience = time.Second

// settle calls the store, also if the client is gone or the request's deadline is over. If the store is a
// Memory, owed stays on the stack.
func (l *RateLimit) settle(ctx context.Context, owed []limiter.Settlement) error {
	if l.memory != nil {
		return l.memory.Settle(ctx, owed)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
	defer cancel()
	return l.store.Settle(ctx, slices.Clone(owed))
}

// settle settles what the request cost in the end.
func (e *ending) settle(owed []limiter.Settlement) {
	if len(owed) == 0 {
		return
	}
	if err := e.limits.settle(e.Context, owed); err != nil {
		e.set.notices.unsettled.warn(e.set.Logger, "weir-not-settled",
			"weir: the store did not learn what a request cost in the end; the request stays charged as when it came",
			slog.String("error", err.Error()))
	}
}

// strike counts an answer for the rules that ban a key after too many answers that count.
func (e *ending) strike(status int) {
	for i := range e.policies {
		p := &e.policies[i]
		if p.other || !p.rule.Escalate.Outcomes || !p.rule.Counts.counts(status) || !p.mayBeBanned() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context), settlePatience)
		e.limits.strike(ctx, e.set, p.rule, p.key)
		cancel()
	}
}
