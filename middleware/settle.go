package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/limiter"
)

// What a rule with Counts or Reserve charges is settled when the request ends.

var settling = feature{
	rule: func(c *compiler, at invalid.Place, r *rule) {
		c.reject(r.Counts.wrong != "", at.Of("Counts"), ": %s", r.Counts.wrong)
		c.reject(r.Cost.settles && r.Cost.of == nil && !r.Counts.after,
			at.Of("Reserve"), "needs an estimate, such as fixed units, for when a request comes, or must be charged afterwards")
	},
	family: func(f *family) (needed bool, err error) {
		if !f.rule.awaitsEnd() {
			return false, nil
		}
		for _, m := range slices.Concat(f.rates, f.values) {
			if m.quota.Settles, m.open = true, true; f.rule.Cost.settles {
				m.most = m.quota.Capacity() // or the request would never pass
			}
		}
		return true, nil
	},
	pass: func(v *visit, h http.Header) (awaits, watches bool) {
		delete(h, unseenMark) // of an answer that is another request's, as in a test
		v.costs.header = h
		for i := range v.met {
			m := &v.met[i]
			if m.said = unsaid; m.isReservation() {
				m.rule.notes.reserved.Add(uint64(m.units))
			}
		}
		return true, v.countsAnswers()
	},
	end: settleAll,
}

// A costs says how a request ends, and what it costs.
type costs struct {
	header http.Header // of the answer; nil if no rule goes by how the request ends

	mu        sync.Mutex // guards what follows, and said and Cost of v.met
	ended     bool
	left      bool // the client left before the request ended, held its body back, or chose when it timed out
	unseen    bool // a limiter further in refused the request
	refusedAs int  // what a refusal with status 200 counts as; 0: there is none
	saidAs    int  // what CountAs says that the answer counts as; 0: nothing
	status    int  // of the answer
}

const unsaid = -1

// awaitsEnd reports whether the charges of the rule may change when a request ends.
func (r *rule) awaitsEnd() bool { return r.Counts.given || r.Cost.settles }

// countsAnswers reports whether a rule that applies goes by the status of the answer.
func (v *visit) countsAnswers() bool {
	for i := range v.met { // no copy: Settle may write to a met at the same time
		if v.met[i].rule.Counts.given {
			return true
		}
	}
	return false
}

// settleAll settles the charges of the request, whose answer has that status.
func settleAll(v *visit, status int) int {
	s := &v.costs
	s.mu.Lock()
	switch {
	case s.saidAs != 0:
		status = s.saidAs
	case s.refusedAs != 0 && (status == http.StatusOK || status == unknownStatus):
		status = s.refusedAs
	}
	s.ended, s.status = true, status
	values, marked := s.header[unseenMark]
	s.unseen = marked && values == nil // a server behind may send a field of that name
	s.left = isGone(v.Context) || v.body.WasHeldBack(status) || status == http.StatusGatewayTimeout && hasTimeout(v.handled.Header)
	var owed []limiter.Settlement
	for i := range v.met {
		m := &v.met[i]
		switch owed = s.correct(owed, m); {
		case !m.isReservation():
		case m.said != unsaid:
			m.rule.notes.settled.Add(uint64(m.said))
		default:
			m.rule.notes.unsettled.Add(uint64(m.Cost))
		}
	}
	s.mu.Unlock()
	v.settle(owed)
	return status
}

// hasTimeout reports whether a client of gRPC or Connect has said how long it waits: it can have any call time out.
func hasTimeout(h http.Header) bool {
	return len(h["Grpc-Timeout"]) > 0 || len(h["Connect-Timeout-Ms"]) > 0
}

// correct appends the settlement of a charge, if it can change and is not what the request cost. If the
// client has left, every answer counts: a proxy answers 502 then though its backend has done the work, so clients
// could choose not to be charged. The same holds if the client sent a broken body, held it back, or chose a timeout.
func (s *costs) correct(owed []limiter.Settlement, m *met) []limiter.Settlement {
	actual := m.units
	switch {
	case !m.isSettled():
		return owed
	case !s.left && s.status != unknownStatus && !m.rule.Counts.counts(s.status):
		actual = 0
	case m.said != unsaid:
		actual = m.said
	case s.unseen && m.rule.Cost.settles:
		actual = 0
	}
	if actual != m.Cost {
		owed = append(owed, limiter.Settlement{Charge: *m.Charge, Actual: actual})
		m.Cost = actual
	}
	return owed
}

// isSettled reports whether the end of the request may change the units that it took.
func (m *met) isSettled() bool { return m.quota.Settles && m.took() }

// isReservation reports whether m stands for its rule where Reservations are counted.
func (m *met) isReservation() bool { return m.rule.Cost.settles && m.isFirst() && m.isSettled() }

// Reservations are the units of a rule with [Reserve], in this process since its start: of requests that were admitted
// (Reserved), of requests that were settled, as Settle says (Settled), and of requests that ended without that, and cost
// what was reserved (Unsettled). A request that is settled later counts as Unsettled.
type Reservations struct {
	Rule                         string
	Reserved, Settled, Unsettled uint64
}

// Reservations returns the Reservations of each rule with [Reserve], in the order of Rules.
func (l *RateLimit) Reservations() (all []Reservations) {
	for _, r := range l.rules.Load().all {
		if r.Cost.settles && r.Mode != Deny {
			all = append(all, Reservations{r.Name, r.notes.reserved.Load(), r.notes.settled.Load(), r.notes.unsettled.Load()})
		}
	}
	return all
}

// settle settles what the request cost in the end.
func (v *visit) settle(owed []limiter.Settlement) {
	if err := v.limiter.settle(v.Context, owed); err != nil {
		v.set.warnOnce("weir-not-settled", "",
			"weir: the store did not learn what a request cost in the end; the request stays charged as when it came",
			slog.String("error", err.Error()))
	}
}

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
	for v := visitOf(ctx); v != nil; v = visitOf(v.Context) {
		found := v.ruleNamed(rule)
		if found != nil && found.Cost.settles {
			return v.sayCost(found, n)
		}
		applies = applies || found != nil
	}
	if applies {
		return fmt.Errorf("middleware: Settle of rule %.128q: it cannot be settled: its Cost is not a Reserve", rule)
	}
	return fmt.Errorf("%w: %.128q", ErrNotApplied, rule)
}

// Reserved returns how many units the rules with [Reserve] have reserved for the request with this context, by rule,
// which [Settle] can still settle. If a rule has several limits, it is the most that one of them reserved.
func Reserved(ctx context.Context) map[string]int64 {
	all := map[string]int64{}
	for v := visitOf(ctx); v != nil; v = visitOf(v.Context) {
		of := map[string]int64{}
		v.costs.mu.Lock()
		for i := range v.met { // no copy, as in ruleNamed
			if m := &v.met[i]; m.rule.Cost.settles && m.isSettled() && m.said == unsaid {
				of[m.rule.Name] = max(of[m.rule.Name], m.units)
			}
		}
		v.costs.mu.Unlock()
		maps.Copy(of, all) // the innermost limiter is settled
		all = of
	}
	return all
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
	inner := visitOf(ctx)
	for v := inner; v != nil; v = visitOf(v.Context) {
		if v.countsAnswers() && v.answers(inner.answered.ResponseWriter, &inner.handled) {
			s := &v.costs
			s.mu.Lock()
			if err = nil; s.ended {
				err = errors.New("middleware: CountAs: the request has ended")
			}
			s.saidAs = status
			s.mu.Unlock()
		}
	}
	return err
}

// KeyOf returns the text of the key (see [keyfunc.Classify]) under which a rule counts the request with this context.
// It is for handlers behind a limiter with a rule that has Counts or [Reserve] and applies to the request. If the
// request has met the rule twice, the key is its innermost limiter's. The error is [ErrNotApplied].
func KeyOf(ctx context.Context, rule string) (key string, err error) {
	_, key, err = countedBy(ctx, rule)
	return key, err
}

// Reset is [RateLimit.Reset] for the key under which a rule counts the request with this context, such as for the
// failures before a success. What the request took is forgotten too. It returns the errors of [KeyOf] and of the store.
func Reset(ctx context.Context, rule string) error {
	l, key, err := countedBy(ctx, rule)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
	defer cancel()
	return l.Reset(ctx, rule, key)
}

// countedBy returns the innermost limiter with a rule of that name that counts the request, and the key.
func countedBy(ctx context.Context, rule string) (l *RateLimit, key string, err error) {
	for v := visitOf(ctx); v != nil; v = visitOf(v.Context) {
		for i := range v.met { // no copy: Settle may write to a met at the same time
			if m := &v.met[i]; m.rule.Name == rule {
				return v.limiter, m.Key, nil
			}
		}
	}
	return nil, "", fmt.Errorf("%w: %.128q", ErrNotApplied, rule)
}

// ruleNamed returns the rule with that name if it applies, or nil.
func (v *visit) ruleNamed(name string) *rule {
	for i := range v.met { // no copy: another Settle may write to a met at the same time
		if r := v.met[i].rule; r.Name == name {
			return r
		}
	}
	return nil
}

// sayCost notes that the request cost n units of a rule, and settles them if the request has ended.
func (v *visit) sayCost(rule *rule, n int64) error {
	var owed []limiter.Settlement
	s, settled := &v.costs, false
	s.mu.Lock()
	for i := range v.met { // of one rule all are settled, or none
		switch m := &v.met[i]; {
		case m.rule != rule || !m.isSettled():
		case m.said != unsaid:
			settled = true
		default:
			if m.said = n; rule.Distinct != nil {
				m.said = min(n, m.units) // a value that was seen costs nothing
			}
			if s.ended {
				owed = s.correct(owed, m)
			}
		}
	}
	s.mu.Unlock()
	if settled {
		return fmt.Errorf("middleware: Settle of rule %.128q: %w", rule.Name, limiter.ErrSettled)
	}
	v.settle(owed)
	return nil
}

// unseenMark is a key in the header map of a refusal. It has no value, so no server sends it.
const unseenMark = "Weir-Unseen"

// markUnseen notes that no handler sees a request that limiters further out admitted, so that it costs nothing by their
// rules with Reserve. They find the mark if the refusal was written to the writer that they passed on, or to the writer
// of a http.TimeoutHandler, which is copied to it. A handler that calls a limiter with a request and a writer of its own
// may have done work.
func markUnseen(w http.ResponseWriter, r *http.Request) {
	for v := visitOf(r.Context()); v != nil; v = visitOf(v.Context) {
		if h := w.Header(); v.costs.header != nil && (v.isOf(r) || isSame(h, v.costs.header)) {
			h[unseenMark] = nil
			return
		}
	}
}

// countsAs notes that an answer to r with status 200 is a refusal with that status: in gRPC, and in streams of
// Connect. Otherwise a client could hide from Counts behind its Content-Type. If r is a clone, and the
// answer goes to the request that was cloned, the limiters around that request count it too.
func countsAs(w http.ResponseWriter, r *http.Request, status int) {
	for v := visitOf(r.Context()); v != nil; v = visitOf(v.Context) {
		if v.answers(w, r) {
			v.costs.mu.Lock()
			v.costs.refusedAs = status
			v.costs.mu.Unlock()
		}
	}
	if log, ok := response.Behind[interface{ RefusedAs(status int) }](w); ok { // of weir serve
		log.RefusedAs(status)
	}
}

// answers reports whether what is written to w, for r, answers the request of v.
func (v *visit) answers(w http.ResponseWriter, r *http.Request) bool {
	return v.isOf(r) || v.answered.Covers(w)
}

// isOf reports whether v is a visit of r itself. Copies of a request share its map of header fields, as
// http.StripPrefix and WithContext make them. A request that a handler has built or cloned has a map of its own.
func (v *visit) isOf(r *http.Request) bool { return isSame(v.handled.Header, r.Header) }

// isSame reports whether a and b are one map.
func isSame(a, b http.Header) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}
