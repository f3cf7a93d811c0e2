package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/limiter"
)

// An end is the context of an admitted request whose end matters: its charges may change then, and its slots are
// released. With Config.Results it has the Result for the handlers.
type end struct {
	context.Context // the request's
	visit
	request  http.Request // for the handlers, with this context
	limiter  *RateLimit
	answered response.Response // the answer, if it is watched
	body     response.Body     // the request's body, watched with the answer

	holds bool // slots of rules

	mu    sync.Mutex // guards what follows, and said and the charges of the visit
	ended bool
	left  bool // the client left before the request ended, held its body back, or chose when it timed out

	header http.Header // of the answer; nil if no rule goes by how the request ends
	unseen bool        // a limiter further in refused the request

	refusedAs int // what a refusal with status 200 counts as; 0: there is none
	saidAs    int // what CountAs says that the answer counts as; 0: nothing
	status    int // of the answer

	fields
	text [48]byte
}

const unsaid = -1

// unknownStatus stands for a status that is unknown. Such an answer counts, and leads to no ban.
const unknownStatus = 0

// contextKey is the type of this package's keys of contexts.
type contextKey uint8

const (
	tierKey contextKey = iota
	limitKey
	endKey
)

// Value returns the end itself for its key, which saves a context around it.
func (e *end) Value(key any) any {
	switch {
	case key == endKey:
		return e
	case key == (response.SlotKey{}) && (e.slot != nil || e.holds):
		return true
	}
	return e.Context.Value(key)
}

// endOf returns the innermost end of the request with that context, or nil.
func endOf(ctx context.Context) *end {
	e, _ := ctx.Value(endKey).(*end)
	return e
}

func (r *rule) awaitsEnd() bool { return r.Counts.given || r.Cost.settles }

// isOpen reports whether the end of the request may change charge i. Slots are released.
func (e *end) isOpen(i int) bool {
	limits, _ := e.applied()
	return limits[i].rule.awaitsEnd() && !limits[i].slot && e.took(i)
}

// isWatched reports whether to watch the answer as it is written: for its status, if a rule goes by it, or
// to find out whether it is a stream.
func (e *end) isWatched() bool { return e.counts || e.slot != nil }

// watch returns the ResponseWriter for the handler, and makes e watch the body of r.
func (e *end) watch(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if !e.isWatched() {
		e.answered.ResponseWriter = w // for CountAs
		return w
	}
	w = e.answered.Watch(w)
	if e.slot != nil { // without a watcher, files are sent as without Weir
		e.answered.Watcher = e
	}
	response.WatchBody(r, e)
	return w
}

// finish settles the charges of the request, whose answer has that status. Only the first call does
// anything.
func (e *end) finish(status int) {
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return
	}
	switch {
	case e.saidAs != 0:
		status = e.saidAs
	case e.refusedAs != 0 && (status == http.StatusOK || status == unknownStatus):
		status = e.refusedAs
	}
	e.ended, e.status = true, status
	values, marked := e.header[unseenMark]
	e.unseen = marked && values == nil // a server behind may send a field of that name
	e.left = isGone(e.Context) || e.body.WasHeldBack(status) || status == http.StatusGatewayTimeout && e.hasTimeout()
	var owed []limiter.Settlement
	for i := range e.n {
		owed = e.correct(owed, i)
	}
	e.mu.Unlock()
	e.releaseSlots()
	if e.slot != nil {
		e.slot.Leave()
	}
	e.settle(owed)
	e.strike(status)
}

// hasTimeout reports whether a client of gRPC or Connect has said how long it waits: it can have any call time out.
func (e *end) hasTimeout() bool {
	h := e.request.Header
	return len(h["Grpc-Timeout"]) > 0 || len(h["Connect-Timeout-Ms"]) > 0
}

// correct appends the settlement of charge i, if it can change and is not what the request cost. If the
// client has left, every answer counts: a proxy answers 502 then though its backend has done the work, so clients
// could choose not to be charged. The same holds if the client sent a broken body, held it back, or chose a timeout.
func (e *end) correct(owed []limiter.Settlement, i int) []limiter.Settlement {
	limits, charges := e.applied()
	a, c := &limits[i], &charges[i]
	actual := a.cost
	switch {
	case !e.isOpen(i):
		return owed
	case !e.left && e.status != unknownStatus && !a.rule.Counts.counts(e.status):
		actual = 0
	case a.said != unsaid:
		actual = a.said
	case e.unseen && a.rule.Cost.settles:
		actual = 0
	}
	if actual != c.Cost {
		owed = append(owed, limiter.Settlement{Charge: *c, Actual: actual})
		c.Cost = actual
	}
	return owed
}

// unseenMark is a key in the header map of a refusal. It has no value, so no server sends it.
const unseenMark = "Weir-Unseen"

// markUnseen notes that no handler sees a request that limiters further out admitted, so that it costs nothing by their
// rules with Reserve. They find the mark if the refusal was written to the writer that they passed on, or to one that
// http.TimeoutHandler copies to it. A handler that calls a limiter with a request and a writer of its own may have done
// work.
func markUnseen(w http.ResponseWriter, r *http.Request) {
	for e := endOf(r.Context()); e != nil; e = endOf(e.Context) {
		if h := w.Header(); e.header != nil && (e.isOf(r) || isSame(h, e.header)) {
			h[unseenMark] = nil
			return
		}
	}
}

// countsAs notes that an answer to r with status 200 is a refusal with that status: in gRPC, and in streams of
// Connect. Otherwise a client could hide from Counts behind its Content-Type. If r is a clone, and the
// answer goes to the request that was cloned, the limiters around that request count it too.
func countsAs(w http.ResponseWriter, r *http.Request, status int) {
	for e := endOf(r.Context()); e != nil; e = endOf(e.Context) {
		if e.answers(w, r) {
			e.mu.Lock()
			e.refusedAs = status
			e.mu.Unlock()
		}
	}
	if log, ok := response.Behind[interface{ RefusedAs(status int) }](w); ok { // of weir serve
		log.RefusedAs(status)
	}
}

// answers reports whether what is written to w, for r, answers the request of e.
func (e *end) answers(w http.ResponseWriter, r *http.Request) bool {
	return e.isOf(r) || e.answered.Covers(w)
}

// isOf reports whether e is an end of r itself. Copies of a request share its map of header fields, as
// http.StripPrefix and WithContext make them. A request that a handler has built or cloned has a map of its own.
func (e *end) isOf(r *http.Request) bool { return isSame(e.request.Header, r.Header) }

// isSame reports whether a and b are one map.
func isSame(a, b http.Header) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// settlePatience is how long the end of a request waits for the store.
const settlePatience = time.Second

// settle calls the store, also if the client is gone or the request's deadline is over.
func (l *RateLimit) settle(ctx context.Context, owed []limiter.Settlement) error {
	if l.memory != nil {
		return l.memory.Settle(ctx, owed)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
	defer cancel()
	return l.store.Settle(ctx, slices.Clone(owed)) // of a Memory owed stays on the stack
}

// settle settles what the request cost in the end.
func (e *end) settle(owed []limiter.Settlement) {
	if len(owed) == 0 {
		return
	}
	if err := e.limiter.settle(e.Context, owed); err != nil {
		e.set.warnOnce("weir-not-settled", "",
			"weir: the store did not learn what a request cost in the end; the request stays charged as when it came",
			slog.String("error", err.Error()))
	}
}

// strike counts an answer for the rules that ban a key after too many answers that count.
func (e *end) strike(status int) {
	limits, charges := e.applied()
	for i := range limits {
		a := &limits[i]
		if a.other || !a.rule.Escalate.Outcomes || status == unknownStatus || !a.rule.Counts.counts(status) {
			continue
		}
		if key := charges[i].Key; a.bans(e.set, key) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context), settlePatience)
			e.limiter.strike(ctx, e.set, a.rule, key)
			cancel()
		}
	}
}

// releaseSlots releases the slots of rules.
func (e *end) releaseSlots() {
	limits, charges := e.applied()
	for i := range limits {
		if e.holds && limits[i].slot && e.took(i) {
			limits[i].progress.requests.Add(-1)
			e.limiter.releaseSlot(e.Context, e.set, charges[i])
		}
	}
}

// releaseSlot releases a slot of a rule, also if the client is gone.
func (l *RateLimit) releaseSlot(ctx context.Context, set *ruleset, c limiter.Charge) {
	if err := l.settle(ctx, []limiter.Settlement{{Charge: c}}); err != nil {
		set.warnOnce("weir-not-returned", "",
			"weir: the store did not learn that a request has ended; its slot is released when its lease ends",
			slog.String("error", err.Error()))
	}
	l.room.Released(keyOf(&c))
}

// Streams implements [response.Watcher]. A handler that goes on after the request has ended, as within
// an http.TimeoutHandler, has no slot any more.
func (e *end) Streams(detached bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.slot != nil && !e.ended {
		e.slot.Streams(detached)
	}
}

// Waits implements [response.Watcher].
func (e *end) Waits(begins bool) {
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
func (e *end) Body() *response.Body { return &e.body }

// ErrNotApplied is the error of [Settle] if the rule did not apply to the request: it did not match, or
// the request was exempt.
var ErrNotApplied = errors.New("middleware: the rule did not apply to this request")

// Settle sets the real cost of the request with this context to n units, for a rule with [Reserve].
// Units that were reserved and not used are refunded. Units beyond the reservation are charged even if
// the limit has no room: they become a debt, and later requests are refused until it is paid. The debt
// is at most the units that the limit allows at once.
//
// The charge changes when the handlers have returned, or at once if they have returned already. If a
// request is settled twice, the first call counts. If it is never settled, it costs what was reserved. If the
// request has met the rule twice, its innermost limiter is settled.
// It returns [limiter.ErrSettled], [ErrNotApplied], or an error if no rule with Reserve has the name or
// n is negative.
func Settle(ctx context.Context, rule string, n int64) error {
	if n < 0 {
		return fmt.Errorf("middleware: Settle of rule %.128q: %d units: they must not be negative", rule, n)
	}
	applies := false
	for e := endOf(ctx); e != nil; e = endOf(e.Context) {
		found := e.ruleNamed(rule)
		if found != nil && found.Cost.settles {
			return e.say(found, n)
		}
		applies = applies || found != nil
	}
	if applies {
		return fmt.Errorf("middleware: Settle of rule %.128q: it cannot be settled: its Cost is not a Reserve", rule)
	}
	return fmt.Errorf("%w: %.128q", ErrNotApplied, rule)
}

// CountAs says which status the answer to the request with this context counts as, for [Rule.Counts] and
// Escalate.Outcomes. Use it if the status does not say how the request ended: for an error of gRPC-Web or of a stream
// of Connect, whose end Weir does not read, or for an error in the body of a 200, as in GraphQL. The last call
// replaces the status that was sent, for all limiters around the handler. If the client has left, the answer counts
// whatever CountAs said.
//
// It returns an error if the status is not from 100 to 599 or the request has ended, and [ErrNotApplied] if no rule
// with Counts applied to the request.
func CountAs(ctx context.Context, status int) error {
	if status < leastStatus || status > mostStatus {
		return fmt.Errorf("middleware: CountAs: the status %d must be from %d to %d", status, leastStatus, mostStatus)
	}
	err := fmt.Errorf("%w, or has no Counts", ErrNotApplied)
	inner := endOf(ctx)
	for e := inner; e != nil; e = endOf(e.Context) {
		if e.counts && e.answers(inner.answered.ResponseWriter, &inner.request) {
			e.mu.Lock()
			if err = nil; e.ended {
				err = errors.New("middleware: CountAs: the request has ended")
			}
			e.saidAs = status
			e.mu.Unlock()
		}
	}
	return err
}

// ruleNamed returns the rule with that name if it applies, or nil.
func (e *end) ruleNamed(name string) *rule {
	limits, _ := e.applied()
	for i := range limits { // no copy: another Settle may write to a limit at the same time
		if r := limits[i].rule; r.Name == name {
			return r
		}
	}
	return nil
}

// say notes that the request cost n units of a rule, and settles them if the request has ended.
func (e *end) say(rule *rule, n int64) error {
	var owed []limiter.Settlement
	settled := false
	e.mu.Lock()
	limits, _ := e.applied()
	for i := range limits { // of one rule all are settled, or none
		switch a := &limits[i]; {
		case a.rule != rule || !e.isOpen(i):
		case a.said != unsaid:
			settled = true
		default:
			a.said = n
			if e.ended {
				owed = e.correct(owed, i)
			}
		}
	}
	e.mu.Unlock()
	if settled {
		return fmt.Errorf("middleware: Settle of rule %.128q: %w", rule.Name, limiter.ErrSettled)
	}
	e.settle(owed)
	return nil
}
