package middleware

import (
	"net/http"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// Handler returns a handler that limits the requests to next: a middleware of net/http and chi.
//
// Rules that match by [Route] need r.Pattern. It is set if next is the handler of a route. If next is
// an *http.ServeMux, or another limiter's Handler around one, Handler looks the pattern up in the
// mux. It does not find the patterns of a mux inside that mux: put a limiter around the inner mux.
// For other routers the adapters set r.Pattern (chilimit, ginlimit, echolimit, echo5limit).
//
// When next returns or panics, Handler removes the temporary files of a form that was parsed behind it, as
// net/http's server does.
func (l *RateLimit) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("middleware: Handler needs a next handler")
	}
	mux, _ := next.(*http.ServeMux)
	if around, ok := next.(*handler); ok {
		mux = around.mux
	}
	if mux != nil {
		l.know(muxed{mux})
	}
	return &handler{mux: mux, HandlerFunc: func(w http.ResponseWriter, r *http.Request) {
		set := l.vetted(r)
		routed, into := r, (*http.Request)(nil)
		if mux != nil && set.needsRoute && r.URL != nil {
			// Inside another mux, r has that one's pattern, such as "/v1/".
			if _, pattern := mux.Handler(r); pattern != "" {
				own := *r
				own.Pattern = pattern
				routed, into = &own, &own
			}
		}
		parsed := r.MultipartForm
		defer func() {
			handBack(r, routed)
			if form := r.MultipartForm; form != nil && form != parsed {
				_ = form.RemoveAll() // a router such as chi hides it from net/http's server, which would
			}
		}()
		if admitted, end := l.begin(set, w, routed, into, nil, nil); admitted != nil {
			routed = admitted
			end.serve(next, w, admitted)
		}
	}}
}

// handBack gives r what the handlers, or a key function, set in their copy of it, such as the Pattern and the form.
func handBack(r, copied *http.Request) {
	if r == copied {
		return
	}
	body, trailer := r.Body, r.Trailer // the server's own
	*r = *copied.WithContext(r.Context())
	r.Body, r.Trailer = body, trailer
}

// A handler is what Handler returns. A limiter around it finds the mux inside.
type handler struct {
	http.HandlerFunc
	mux *http.ServeMux // nil: unknown
}

// Begin is [RateLimit.Handler] for adapters of routers. It decides about r, blocks while r must wait,
// and changes r's context in place, so that [FromContext] finds the Result. If passed is false, the
// adapter must not call the handlers: onRefused has answered r. If onRefused is nil, Begin has answered
// r by Rule.Refusal and Config.Refusal.
//
// After onRefused, Begin reads what is left of an HTTP/1 request's body, for a second at most. If w has
// a method Written() bool, as gin's has, and it reports that onRefused has answered, Begin first flushes
// w, and reads for as long as the body arrives fast enough, for 30 seconds at most.
//
// If finish is not nil, the adapter must call it once, when the handlers return or panic, with the
// status of the answer. If they sent nothing, the status is 200, 500 after a panic, or 101 if they
// hijacked the connection. If byStatus is false, the status that finish gets does not matter.
//
// Begin does not watch the request's body, unlike Handler and Weir's adapters. So a body that the
// client broke off or held back counts as complete, and a request keeps its slot of Config.Overload
// while its handler waits for the client.
func (l *RateLimit) Begin(w http.ResponseWriter, r *http.Request, onRefused func(Result)) (finish func(status int), byStatus, passed bool) {
	set := l.vetted(r)
	admitted, end := l.begin(set, w, r, r, nil, onRefused)
	if end != nil {
		finish, byStatus = end.finish, end.isWatched()
	}
	return finish, byStatus, admitted != nil
}

// Gateway is [RateLimit.Handler] for a program without routes of its own, such as one around
// httputil.ReverseProxy. It routes a request by the patterns of the rules: the patterns of ByRoute, and
// of each [Route] in Match, Allow and package shed's Exempt. A [MatchFunc] has no patterns. Gateway
// sets r.Pattern, without method and host. [RateLimit.Reconfigure] changes the routes with the rules.
//
// A service behind may ignore a slash at the end of a path, parameters (/a;b=c) and empty segments, and may
// read an escaped slash or a backslash as a slash, or //host/login as /login. So does Gateway. If the service
// ignores upper and lower case, set foldCase. A route in Allow exempts only paths that are spelled as in its pattern.
//
// Gateway answers 400 if it cannot tell what the service reads: a method that is not in capitals, a target
// with a # or without a path, a path with a dot segment or a control character, a path that leads to two
// routes, and a Host that is neither a name nor an address.
func (l *RateLimit) Gateway(next http.Handler, foldCase bool) http.Handler {
	if next == nil {
		panic("middleware: Gateway needs a next handler")
	}
	fold := 0
	if foldCase {
		fold = 1
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := l.rules.Load()
		if reason := set.gateway[fold]().Set(r); reason != "" {
			w.Header().Set("Cache-Control", "no-store")
			http.Error(w, reason, http.StatusBadRequest)
			return
		}
		if behind, end := l.begin(set, w, r, r, nil, nil); behind != nil {
			end.serve(next, w, behind)
		}
	})
}

// begin takes a request through its five phases: gate, match, decide, admit, and pass or refuse. It returns
// the request for the next handler, and its ending if some rule awaits the end. It returns nil if it
// has answered. If into is not nil, it changes the context of into in place and returns into. If one
// is not nil, only that rule decides, and the context does not change.
//
// The state of the request stays on the stack until it passes, so that a refusal allocates nothing but
// its answer.
func (l *RateLimit) begin(set *ruleset, w http.ResponseWriter, r, into *http.Request, one *oneRule, onRefused func(Result)) (*http.Request, *ending) {
	switch exempt, no := set.gate(r, one, l.now); {
	case no != nil:
		return set.refuse(w, r, nil, no, onRefused)
	case exempt:
		return r, nil
	}

	var stack workspace
	policies, charges, decisions := stack.policies[:0], stack.charges[:0], stack.decisions[:]
	var heap *heapSpace
	if set.most > fewRules {
		heap = &heapSpace{make([]applied, 0, set.most), make([]limiter.Decision, set.most)}
		policies, charges, decisions = heap.policies, make([]limiter.Charge, 0, set.most), heap.decisions
	}
	outer := scopeOf(r.Context())
	policies, charges, skipped, no := set.match(r, outer, one, policies, charges)
	if no != nil {
		set.observe(r, no.outcome, bans.Ban{}, no.by)
		return set.refuse(w, r, nil, no, onRefused)
	}
	if skipped != nil {
		skipped.warnUnlimited(set.Logger)
	}
	var overload Overload
	if set.Overload != nil && one == nil { // Allow's request has its slot, and nothing would release another
		overload = set.overloadOf(r)
	}
	if len(charges) == 0 && overload == nil {
		return r, nil
	}

	if n := len(charges); n > len(decisions) { // a client's own limit has more parts than the rules
		heap = &heapSpace{slices.Clone(policies), make([]limiter.Decision, n)}
		policies, decisions = heap.policies, heap.decisions
	}
	s := decided{outer: outer, policies: policies, decisions: decisions[:len(charges)], outcome: OutcomeUndecided, awaits: -1, timed: set.isTimed(l)}
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

	admitted, end := l.pass(set, w, r, into, one, outer, &s, heap, slot)
	passed = true
	return admitted, end
}

// A workspace has the arrays for a decision, on the stack.
type workspace struct {
	policies  [fewRules]applied
	decisions [fewRules]limiter.Decision
	charges   [fewRules]limiter.Charge
}

// A heapSpace has the slices of a request that may meet more than fewRules policies.
type heapSpace struct {
	policies  []applied
	decisions []limiter.Decision
}

// vetted returns the rules in force. At their first request, r, it looks for rules whose route no known
// router has.
func (l *RateLimit) vetted(r *http.Request) *ruleset {
	set := l.rules.Load()
	if set.vetted.Load() {
		return set
	}
	if routers := l.routers.Load(); routers != nil && set.vetted.CompareAndSwap(false, true) {
		set.vetRoutes(*routers, r)
	}
	return set
}
