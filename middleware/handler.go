package middleware

import (
	"mime/multipart"
	"net/http"
	"strings"
)

// Handler returns a handler that limits the requests to next: a middleware of net/http and chi.
//
// Rules that match by [Route] need r.Pattern. It is set if next is the handler of a route. If next is
// an *http.ServeMux, or another limiter's Handler around one, Handler looks the pattern up in the
// mux. It does not find the patterns of a mux inside that mux: put a limiter around the inner mux.
// For other routers the adapters set r.Pattern (chilimit, ginlimit, echolimit, echo5limit).
//
// A request is charged each time it passes the limiter.
//
// When next returns or panics, or the request is refused, Handler removes the temporary files of a form that was
// parsed behind it, as net/http's server does.
func (l *RateLimit) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("middleware: Handler needs a next handler")
	}
	mux, _ := next.(*http.ServeMux)
	if around, ok := next.(*handler); ok {
		mux = around.mux
	}
	l.know(nil, mux)
	route := func(set *ruleset, r *http.Request) (wrong string) {
		if mux != nil && set.needsRoute && r.URL != nil {
			// Inside another mux, r has that one's pattern, such as "/v1/".
			if _, pattern := mux.Handler(r); pattern != "" {
				r.Pattern = pattern
			}
		}
		return l.vet(set, r)
	}
	return &handler{mux: mux, HandlerFunc: func(w http.ResponseWriter, r *http.Request) { l.visit(r, route).serve(w, next) }}
}

// vet looks for rules whose routes do not exist, in the first requests.
func (l *RateLimit) vet(set *ruleset, r *http.Request) (wrong string) {
	if !set.vetting.ended.Load() {
		set.vet(l.routers.Load(), r)
	}
	return ""
}

// serve limits the request, and calls next if it passes.
func (v *visit) serve(w http.ResponseWriter, next http.Handler) {
	e := v.enter(w, nil)
	if e.Request == nil {
		return
	}
	status := http.StatusInternalServerError // of a panic
	defer func() { e.End(status) }()
	next.ServeHTTP(e.Writer, e.Request)
	status = http.StatusOK
}

// A handler is what Handler returns. A limiter around it finds the mux inside.
type handler struct {
	http.HandlerFunc
	mux *http.ServeMux // nil: unknown
}

// Gateway is [RateLimit.Handler] for a program without routes of its own, such as one around
// httputil.ReverseProxy. It routes a request by the patterns of the rules: the patterns of ByRoute, and
// of each [Route] in Match, Allow, Bans.Deny and package shed's Exempt. A [MatchFunc] has no patterns. Gateway
// sets r.Pattern, without method and host. [RateLimit.Reconfigure] changes the routes with the rules. If the routes of
// the service are known ([RateLimit.KnowRoutes]), a warning names each rule whose route is not one of them.
//
// A service behind may ignore a slash at the end of a path, parameters (/a;b=c) and empty segments, and may
// read an escaped slash or a backslash as a slash, or //host/login as /login. So does Gateway. If the service
// ignores upper and lower case, set foldCase. A route in Allow exempts only paths that are spelled as in its pattern.
//
// Gateway answers 400 if it cannot tell what the service reads: a method that is not in capitals, a target
// with a # or without a path, a path with a dot segment or a control character, a path that leads to two
// routes, a Host that is neither a name nor an address, and a Connection that lists another field of the
// request, which a proxy removes: the service would not see what the rules count. Fields of connections, such as
// Upgrade, may be listed. A service behind CGI reads the field X_Key as X-Key: let next remove fields that are spelled
// so.
func (l *RateLimit) Gateway(next http.Handler, foldCase bool) http.Handler {
	if next == nil {
		panic("middleware: Gateway needs a next handler")
	}
	fold := 0
	if foldCase {
		fold = 1
	}
	route := func(set *ruleset, r *http.Request) (wrong string) {
		if wrong = set.gateway[fold]().Set(r); wrong == "" && len(l.routers.Load().routes) > 0 {
			return l.vet(set, r)
		}
		return wrong
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.visit(r, route).serve(w, next) })
}

// An Entered is a request that a [RateLimit] has admitted.
type Entered struct {
	// Writer and Request are for the handlers. They are what Enter was given, unless something awaits the end of
	// the request.
	Writer  http.ResponseWriter
	Request *http.Request

	parsed *multipart.Form // before
	visit  *visit          // nil: nothing awaits the end
}

// Enter is [RateLimit.Handler] for adapters of routers. It decides about r, whose Pattern must be set, and blocks
// while r must wait. It returns nil if r goes no further: onRefused has answered it or, if onRefused is nil, Enter
// has, by Rule.Refusal and Config.Refusal. Otherwise the adapter calls the handlers with Writer and Request, and
// then End, also if they panic.
//
// After onRefused, Enter reads what is left of an HTTP/1 request's body, for a second at most. If w has
// a method Written() bool, as gin's has, and it reports that onRefused has answered, Enter first flushes
// w, and reads for as long as the body arrives fast enough, for 30 seconds at most.
func (l *RateLimit) Enter(w http.ResponseWriter, r *http.Request, onRefused func(Result)) *Entered {
	if e := l.visit(r, l.vet).enter(w, onRefused); e.Request != nil {
		return &e
	}
	return nil
}

// End ends a request. Status is the status of the answer if Writer has seen none: 500 after a panic, and what the
// router sends otherwise. Trailers of gRPC must be set. End removes the temporary files of a form that was parsed since
// Enter. A second call does nothing, on a copy of e either.
func (e *Entered) End(status int) {
	v := e.visit
	if v != nil {
		e.visit = nil
		copyBack(v.request, e.Request)
	}
	removeFiles(e.Request, e.parsed)
	if v != nil {
		v.finish(status)
	}
}

// removeFiles removes the temporary files of r's form, if it is not that one. If a handler in front has copied the
// request, as chi does, net/http's server does not see the form.
func removeFiles(r *http.Request, before *multipart.Form) {
	if form := r.MultipartForm; form != nil && form != before {
		_ = form.RemoveAll()
	}
}

// copyBack sets in r what the handlers, or a key function, set in their copy of it, such as the Pattern and the form.
func copyBack(r, copied *http.Request) {
	body, trailer := r.Body, r.Trailer // the server's own
	*r = *copied.WithContext(r.Context())
	r.Body, r.Trailer = body, trailer
}

// enter takes a request through its phases. If it has answered, it returns the zero Entered.
func (v *visit) enter(w http.ResponseWriter, onRefused func(Result)) Entered {
	defer v.close()
	exempt, no := v.begin()
	if no == nil && !exempt {
		exempt, no = v.charge()
	}
	v.conclude(exempt, no)
	if no == nil {
		return v.pass(w)
	}
	v.done = true
	v.answer(w, v.request, no, onRefused)
	markUnseen(w, v.request)
	removeFiles(v.request, v.parsed)
	return Entered{}
}

// begin takes the request through the phases gate and match.
func (v *visit) begin() (exempt bool, no *refusal) {
	r, set := v.request, v.set
	if wrong := v.route(set, r); wrong != "" {
		return false, v.refuse(refusal{outcome: OutcomeNoKey, status: http.StatusBadRequest, text: wrong})
	}
	if set.hasGate {
		if exempt, no = v.gate(r, noKey); exempt || no != nil {
			return exempt, no
		}
	}
	if len(set.needs) > 0 {
		v.use(set.needs)
	}
	return false, v.match(r)
}

// charge takes a request that has met its rules through the phases decide and admit. If the rules change while it
// waits for a slot, it begins again.
func (v *visit) charge() (exempt bool, no *refusal) {
	for again := true; again && no == nil && !exempt; {
		if again, no = v.decide(); again && v.slots.place != nil && v.isOutdated() {
			v.restart()
			exempt, no = v.begin()
		}
	}
	if no == nil && !exempt && len(v.parts) > 0 && v.isOutdated() { // it was charged by the rules before
		no = v.gateAgain()
	}
	return exempt, no
}

// isOutdated reports whether the rules have changed since the request came.
func (v *visit) isOutdated() bool { return v.limiter.rules.Load() != v.set }

// gateAgain applies the gate of new rules to a request that was charged by the rules before.
func (v *visit) gateAgain() *refusal {
	now := &visit{limiter: v.limiter, request: v.request, state: state{set: v.limiter.rules.Load()}}
	if v.route(now.set, v.request) != "" {
		return v.refuseKey(http.StatusBadRequest, nil)
	}
	_, no := now.gate(v.request, noKey)
	v.ban = now.ban
	return no
}

// conclude gives back what a request took that goes no further, and reports the request.
func (v *visit) conclude(exempt bool, no *refusal) {
	if len(v.parts) > 0 && (exempt || no != nil) {
		v.undo()
		v.refund((*met).took)
	}
	if len(v.shadowed) > 0 || v.shown < v.limits {
		v.noteShadows()
	}
	if v.set.Observer != nil {
		v.observe(exempt, no)
	}
}

// warnUnlimited warns that all rules skipped a request, unless a limiter further out limits it. The response has that
// limiter's header fields, under any prefix, or the context its visit. HeadersNone may leave no trace.
func (v *visit) warnUnlimited(h http.Header) {
	for name := range h {
		if name == fieldPolicy || strings.HasSuffix(name, "-Remaining") {
			return
		}
	}
	for outer := visitOf(v.request.Context()); outer != nil; outer = visitOf(outer.Context) {
		if outer.shown > 0 {
			return
		}
	}
	v.set.warnOnce("weir-unlimited", v.skipped.Name,
		"weir: all rules skipped a request without a key, so such requests are not limited; add a rule by address, or change NoKey")
}
