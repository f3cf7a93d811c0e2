package middleware

import (
	"context"
	"errors"
	"fmt"
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

type endingKey struct{}

// Value returns the ending itself for its key.
func (e *ending) Value(key any) any {
	switch {
	case key == (endingKey{}):
		return e
	case key == (response.WatcherKey{}) && e.isWatched():
		return e
	case key == (response.SlotKey{}) && (e.slot != nil || e.holds.Load()):
		return true
	case e.hidden:
		return e.Context.Value(key)
	}
	return e.scope.Value(key)
}

// awaitsEnd reports whether a rule that applied goes by how the request ends.
func (s *decided) awaitsEnd() bool {
	return slices.ContainsFunc(s.policies, func(p applied) bool { return p.rule.awaitsEnd() })
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

// isWatched reports whether to watch the answer as it is written: for its status, if a rule goes by it, or
// to find out whether it is a stream.
func (e *ending) isWatched() bool {
	return e.slot != nil || slices.ContainsFunc(e.policies, func(p applied) bool { return p.rule.Counts.given })
}

// serve calls next with r. If nothing awaits the end of the request, e is nil.
func (e *ending) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if e == nil {
		next.ServeHTTP(w, r)
		return
	}
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
	owed, first := e.close(status)
	if !first {
		return
	}
	e.releaseSlots()
	if e.slot != nil {
		e.slot.Leave()
	}
	e.settle(owed)
	e.strike(status)
}

// close notes how the request ended, and returns what changes of its charges. Only the first call is the
// first.
func (e *ending) close(status int) (owed []limiter.Settlement, first bool) {
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
// by their rules with Reserve. A request with another URL was made by a handler, and that handler
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
		if p.other || !p.rule.Escalate.Outcomes || !p.rule.Counts.counts(status) {
			continue
		}
		if key, ok := p.bannedKey(e.set); ok {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context), settlePatience)
			e.limits.strike(ctx, e.set, p.rule, key)
			cancel()
		}
	}
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

// releaseSlots releases the slots of rules.
func (e *ending) releaseSlots() {
	if !e.holds.Swap(false) {
		return
	}
	for i := range e.policies {
		if c, ok := e.slotOf(i); ok {
			e.policies[i].progress.requests.Add(-1)
			e.limits.releaseSlot(e.Context, e.set, c)
		}
	}
}

// releaseSlot releases a slot of a rule, also if the client is gone.
func (l *RateLimit) releaseSlot(ctx context.Context, set *ruleset, c limiter.Charge) {
	if err := l.settle(ctx, []limiter.Settlement{{Charge: c}}); err != nil {
		set.notices.unreturned.warn(set.Logger, "weir-not-returned",
			"weir: the store did not learn that a request has ended; its slot is released when its lease ends",
			slog.String("error", err.Error()))
	}
	l.room.Released(slotKeyOf(c.Quota, c.Key))
}

// Streams implements [response.Watcher]. A handler that goes on after the request has ended, as within
// an http.TimeoutHandler, has no slot any more.
func (e *ending) Streams(detached bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.slot != nil && !e.ended {
		e.slot.Streams(detached)
	}
}

// Waits implements [response.Watcher].
func (e *ending) Waits(begins bool) {
	if e.slot == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.slot.Waits(begins)
	}
}

// Body implements [response.Watcher].
func (e *ending) Body() *response.Body { return &e.body }

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
// It returns [limiter.ErrSettled], [ErrNotApplied], or an error if no rule with Reserve has the name or
// n is negative.
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
