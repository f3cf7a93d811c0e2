package middleware

import (
	"net/http"
	"time"

	"github.com/weirgo/weir/limiter"
)

// Handler limits the requests to next. It is what net/http and chi call a middleware.
//
// Rules that match by [Route] need r.Pattern, which exists once the request is
// routed: around a route's handler, or directly around an *http.ServeMux (or another
// limiter's Handler around one), which Handler asks. A mux inside of that one is known only to a limiter around it.
// Another router's adapter sets it (chilimit, ginlimit, echolimit).
func (l *RateLimit) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("middleware: Handler needs a next handler")
	}
	mux := muxBehind(next)
	if mux != nil {
		l.know(muxed{mux})
	}
	return &handler{mux, func(w http.ResponseWriter, r *http.Request) {
		set := l.rules.Load() // once: what it needs of the request is done here
		if !set.vetted.Load() {
			l.vet(set, r)
		}
		if mux != nil && set.needsRoute && r.URL != nil {
			// Inside another mux, r has that one's pattern, such as "/v1/".
			if _, pattern := mux.Handler(r); pattern != "" {
				routed := *r
				routed.Pattern = pattern
				if behind, end := l.begin(set, w, &routed, &routed, nil, nil); behind != nil {
					serve(next, w, behind, end)
				}
				showPattern(r, &routed)
				return
			}
		}
		if behind, end := l.begin(set, w, r, nil, nil, nil); behind != nil {
			serve(next, w, behind, end)
			showPattern(r, behind)
		}
	}}
}

// serve has next answer, and notes how, if some rule awaits that.
func serve(next http.Handler, w http.ResponseWriter, r *http.Request, end *ending) {
	if end != nil {
		end.serve(next, w, r)
		return
	}
	next.ServeHTTP(w, r)
}

// A handler is what Handler returns. It says which mux it leads to, for a limiter around it.
type handler struct {
	mux   *http.ServeMux // nil: not known
	serve http.HandlerFunc
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(w, r) }

func muxBehind(next http.Handler) *http.ServeMux {
	switch next := next.(type) {
	case *http.ServeMux:
		return next
	case *handler:
		return next.mux
	}
	return nil
}

// showPattern lets those outside see the pattern that a mux inside has left, as they
// would without a limiter between.
func showPattern(outside, inside *http.Request) {
	if outside.Pattern != inside.Pattern {
		outside.Pattern = inside.Pattern
	}
}

// Begin is [RateLimit.Handler] for adapters of routers: it decides about r, which may wait for
// its turn, and puts the [Result] into r's context in place. If it returns false, the request is
// answered, by onRefused or, if that is nil, as the rule's or Config's Refusal says, and must go no further.
//
// Where finish is not nil, the adapter calls it once, when the handlers have returned or while
// they panic, with the status of the answer: of handlers that have answered nothing 200, or 500
// if they panic, and 101 of a connection that they have taken over. Where byStatus is false, any
// status will do.
//
// Begin does not see the request's body, as Handler and Weir's adapters do: a body that was
// broken off or held back is like any other, and a request keeps its place of Config.Overload
// while its handler waits for the client.
func (l *RateLimit) Begin(w http.ResponseWriter, r *http.Request, onRefused func(http.ResponseWriter, *http.Request, Result)) (finish func(status int), byStatus, passed bool) {
	set := l.rules.Load()
	if !set.vetted.Load() {
		l.vet(set, r)
	}
	behind, end := l.begin(set, w, r, r, nil, onRefused)
	if end != nil {
		finish, byStatus = end.finish, end.isWatched()
	}
	return finish, byStatus, behind != nil
}

// begin takes a request through its five phases: gate, match, decide, admit and answer. It
// returns the request that goes further, and its ending if some rule awaits the end; or nil where
// it has answered. Unless into is nil, that is into, whose context is changed in place. Unless one
// is nil, that rule alone decides, and no context has the decision.
//
// All that is known of the request stays on the stack until it passes, so that a refusal
// pays for its answer alone.
func (l *RateLimit) begin(set *ruleset, w http.ResponseWriter, r, into *http.Request, one *oneRule, onRefused func(http.ResponseWriter, *http.Request, Result)) (*http.Request, *ending) {
	switch exempt, no := set.gate(r, one, l.now); {
	case no != nil:
		return set.refuse(w, r, nil, no, onRefused)
	case exempt:
		return r, nil
	}

	var few workspace
	policies, charges, decisions := few.policies[:0], few.charges[:0], few.decisions[:]
	var more *many
	if set.most > fewRules {
		more = &many{make([]applied, 0, set.most), make([]limiter.Decision, set.most)}
		policies, charges, decisions = more.policies, make([]limiter.Charge, 0, set.most), more.decisions
	}
	outer := scopeOf(r.Context())
	policies, charges, skipped, no := set.match(r, outer, one, policies, charges)
	if no != nil {
		set.observeUnasked(r, no)
		return set.refuse(w, r, nil, no, onRefused)
	}
	if skipped != nil {
		skipped.warnUnlimited(set.Logger)
	}
	overload := set.overloadOf(r)
	if one != nil {
		overload = nil // r has its place, and a place of its own would never be left
	}
	if len(charges) == 0 && overload == nil {
		return r, nil
	}

	s := decided{outer: outer, policies: policies, decisions: decisions[:len(charges)], awaits: -1, timed: set.isTimed(l)}
	var slot Slot
	passed := false
	defer func() {
		if !passed { // an observer or Overload panics
			s.keepCharges()
			l.giveBack(r.Context(), set, &s, slot)
		}
	}()
	no, err := l.decide(r.Context(), set, &s, charges)
	var waited time.Duration
	if no == nil {
		slot, waited, no, err = l.admit(set, r, &s, charges, overload, err)
	}
	if set.Observer != nil {
		set.observeDecided(r, &s, no, waited, err)
	}
	if no != nil {
		return set.refuse(w, r, &s, no, onRefused)
	}

	behind, end := l.answer(set, w, r, into, one, outer, &s, more, slot)
	passed = true
	return behind, end
}
