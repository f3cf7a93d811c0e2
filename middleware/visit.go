package middleware

import (
	"context"
	"mime/multipart"
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/internal/reading"
	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// How many limits and parts a visit has room for. More take another allocation.
const (
	fewLimits = 4
	fewParts  = 4
)

// A visit is a request on its way through a limiter. If something awaits the end of the request, the visit is also the
// request's context. Otherwise it is used again for another request.
type visit struct {
	limiter *RateLimit
	request *http.Request   // as it came
	parsed  *multipart.Form // the form that the request came with

	// route sets the Pattern of a request for these rules, or returns why the request cannot be routed.
	route func(*ruleset, *http.Request) string

	state
	waited time.Duration // for a slot
	done   bool          // the request was answered, or goes to the handlers

	parts []*feature // that the request needs; mostly none
	needs []int      // their indexes
	slots slots
	slot  overloadSlot
	costs costs

	// Set if something awaits the end of the request: the visit is then the context of the request for the handlers.
	context.Context                   // of the request as it came; nil: nothing awaits its end
	handled         http.Request      // for the handlers, with the visit as its context
	watches         bool              // a part needs the status of the answer
	holds           bool              // a slot, until the request ends
	answered        response.Response // the answer, if it is watched
	body            response.Body     // the request's body, watched with the answer
	waiter          interface {       // is called as a response.Watcher is; nil: there is none
		Streams(detached bool)
		Waits(begins bool)
	}

	memory struct {
		met     [fewLimits]met
		charges [fewLimits]limiter.Charge
		parts   [fewParts]*feature
		needs   [fewParts]int
		values  [5]string // of header fields
		text    [48]byte  // of values
	}
}

// A state is what the rules in force have said about a request. restart forgets it.
type state struct {
	set *ruleset

	met     []met            // first what clients see, then what is in shadow, then what counts values
	charges []limiter.Charge // of met
	shown   int              // how many of met clients see
	limits  int              // how many of met are limits of rules

	outcome  Outcome       // of the decision: OutcomeAllowed, OutcomeRefused, OutcomeUndecided; zero: there is none
	err      error         // why the store could not decide
	refusal  refusal       // the memory of what the phases return
	ban      bans.Ban      // that refuses the request
	given    *contextLimit // by WithLimit; nil: none
	skipped  *rule         // the last rule with NoKeySkip that skipped the request
	seen     []*met        // cost nothing, because their value of Distinct was seen before
	forgot   bool          // the cost of some became 0 since the store was asked
	held     *reading.Held // the body, while rules that read it are put off
	late     []*rule       // that read the body
	shadowed []*rule       // in shadow; would have refused the request before the store was asked
	elapsed  time.Duration // in the store, if the observer wants it
	explains bool          // no client has sent the request

	// asks returns the context for the store, for a request with that context; nil: the request's own.
	asks func(context.Context) (context.Context, context.CancelFunc)
}

// A met is a limit that a request meets, and the request's charge.
type met struct {
	*meter
	*limiter.Charge
	class keyfunc.Class
	rank  int   // in the order of the rules
	units int64 // that the request costs; Cost is less for units that are charged when it ends
	said  int64 // the cost that Settle was given, or unsaid
}

// visit returns the visit of a request.
func (l *RateLimit) visit(r *http.Request, route func(*ruleset, *http.Request) (wrong string)) *visit {
	v, _ := l.visits.Get().(*visit)
	if v == nil {
		v = &visit{limiter: l}
	}
	if v.met == nil {
		v.met, v.charges = v.memory.met[:0], v.memory.charges[:0]
		v.parts, v.needs = v.memory.parts[:0], v.memory.needs[:0]
	}
	v.request, v.parsed, v.route, v.set = r, r.MultipartForm, route, l.rules.Load()
	if l.requests.Load() < 2 {
		l.noteRequest(v.set)
	}
	return v
}

// contextKey is the type of this package's keys of contexts.
type contextKey uint8

const (
	tierKey contextKey = iota
	limitKey
	visitKey
)

// Value returns the visit itself for its key, which saves a context around it.
func (v *visit) Value(key any) any {
	switch {
	case key == visitKey:
		return v
	case key == (response.SlotKey{}) && v.holds:
		return true
	}
	return v.Context.Value(key)
}

// visitOf returns the innermost visit of the request with that context, or nil.
func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey).(*visit)
	return v
}

// restart forgets what the rules said about the request, and takes the rules in force. What it waits for stays.
func (v *visit) restart() {
	v.forget()
	v.set = v.limiter.rules.Load()
}

func (v *visit) forget() { v.state = state{met: v.met[:0], charges: v.charges[:0]} }

// close must be called when the limiter has answered the request or passes it on. After a panic it refunds
// the charges that the end of the request may change.
func (v *visit) close() {
	switch {
	case !v.done:
		removeFiles(v.request, v.parsed)
		v.undo()
		v.refund((*met).isOpen)
	case v.Context != nil: // the handlers have it, perhaps even after the request has ended
	case len(v.parts) > 0:
		*v = visit{limiter: v.limiter}
		v.limiter.visits.Put(v)
	default:
		v.forget()
		v.request, v.parsed, v.done = nil, nil, false
		v.limiter.visits.Put(v)
	}
}

// add adds a limit that the request meets, and its charge. A reservation is at most what the limit allows at once, or
// the request would never pass.
func (v *visit) add(m *meter, key string, class keyfunc.Class, cost int64) {
	at := v.shown
	if m.rule.shadow {
		at = v.limits
	} else {
		v.shown++
	}
	v.insert(at, m, key, class, cost)
	v.met[at].rank = v.limits
	v.limits++
}

// insert adds a met, before those that come later in v.met.
func (v *visit) insert(at int, m *meter, key string, class keyfunc.Class, cost int64) {
	if at == len(v.met) {
		v.charges, v.met = append(v.charges, limiter.Charge{}), append(v.met, met{})
	} else {
		v.charges, v.met = slices.Insert(v.charges, at, limiter.Charge{}), slices.Insert(v.met, at, met{})
	}
	cost = min(cost, m.most)
	c := &v.charges[at]
	c.Quota, c.Key, c.Cost, c.Optional = m.quota, key, min(cost, m.atOnce), m.rule.shadow
	v.met[at] = met{meter: m, class: class, rank: -1, units: cost}
	for i := range v.met { // they may have moved
		v.met[i].Charge = &v.charges[i]
	}
}

// took reports whether the request has what m takes. In an outage, a rule with FailOpen takes nothing.
func (m *met) took() bool { return m.Decision.Allowed && m.Decision.Counted() }

// isOpen reports whether the end of the request may change what it took.
func (m *met) isOpen() bool { return m.open && m.took() }

// lacks reports whether the limit has too little left for the request. The decision must be a look's.
func (m *met) lacks() bool {
	if m.atOnce == 0 { // charged afterwards
		return m.Decision.Remaining <= 0 || m.units > m.quota.Capacity()
	}
	return m.Decision.Remaining < m.units
}

// delay returns how long the request must wait for its turn.
func (v *visit) delay() (d time.Duration) {
	for i := range v.met {
		if m := &v.met[i]; !m.Optional {
			d = max(d, m.Decision.Delay)
		}
	}
	return d
}

// refund refunds the taken charges for which of is true. Their decisions become a look's.
func (v *visit) refund(of func(*met) bool) {
	if v.outcome != OutcomeAllowed {
		return
	}
	v.outcome = OutcomeRefused
	var taken []limiter.Settlement
	for i := range v.met {
		m := &v.met[i]
		if m.Cost == 0 || !of(m) {
			continue
		}
		c, d := *m.Charge, &m.Decision
		c.Decision.Receipt = m.quota.Undo(d)
		taken = append(taken, limiter.Settlement{Charge: c})
		if d.Remaining = min(d.Remaining+c.Cost, d.Limit); d.Remaining == d.Limit {
			d.NextAfter, d.ResetAfter = 0, 0
		}
		d.Receipt = limiter.Receipt{} // nothing is left to refund
	}
	if err := v.limiter.settle(v.request.Context(), taken); err != nil {
		v.set.warnStoreFailure(err)
	}
}

// settle corrects what charges took, also if the client is gone or the request's deadline is over.
func (l *RateLimit) settle(ctx context.Context, owed []limiter.Settlement) (err error) {
	switch {
	case len(owed) == 0:
		return nil
	case l.memory != nil:
		err = l.memory.Settle(ctx, owed)
	default:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
		defer cancel()
		err = l.store.Settle(ctx, slices.Clone(owed)) // of a Memory owed stays on the stack
	}
	for i := range owed {
		l.room.Released(keyOf(&owed[i].Charge))
	}
	return err
}

// settlePatience is how long the end of a request waits for the store.
const settlePatience = time.Second

// A counterKey names a counter of a rule in one tier.
type counterKey struct{ rule, tier, key string }

func keyOf(c *limiter.Charge) counterKey { return counterKey{c.Quota.Rule(), c.Quota.Tier(), c.Key} }
