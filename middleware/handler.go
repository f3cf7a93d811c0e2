package middleware

import (
	"mime/multipart"
	"net/http"

	"github.com/weirgo/weir/internal/answer"
	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/middleware/bans"
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
	return &handler{mux: mux, HandlerFunc: func(w http.ResponseWriter, r *http.Request) { l.serve(w, r, route, next) }}
}

// vet looks for rules whose routes do not exist, in the first requests.
func (l *RateLimit) vet(set *ruleset, r *http.Request) (wrong string) {
	if !set.vetting.ended.Load() {
		set.vet(l.routers.Load(), r)
	}
	return ""
}

// serve limits r, and calls next if it passes.
func (l *RateLimit) serve(w http.ResponseWriter, r *http.Request, route router, next http.Handler) {
	e, status := Entered{}, http.StatusInternalServerError // of a panic
	defer func() { e.End(status) }()
	if e = l.enter(w, r, route, nil); e.Request != nil {
		next.ServeHTTP(e.Writer, e.Request)
		status = http.StatusOK
	}
}

// A router sets the Pattern of a request for these rules, or returns why the request cannot be routed.
type router func(*ruleset, *http.Request) (wrong string)

// A handler is what Handler returns. A limiter around it finds the mux inside.
type handler struct {
	http.HandlerFunc
	mux *http.ServeMux // nil: unknown
}

// Gateway is [RateLimit.Handler] for a program without routes of its own, such as one around
// httputil.ReverseProxy. It routes a request by the patterns of the rules: the patterns of ByRoute, and
// of each [Route] in Match, Allow, Bans.Deny and package shed's Exempt. A [MatchFunc] has no patterns. Gateway
// sets r.Pattern, without method and host. [RateLimit.Reconfigure] changes the routes with the rules.
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
	route := func(set *ruleset, r *http.Request) (wrong string) { return set.gateway[fold]().Set(r) }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.serve(w, r, route, next) })
}

// An Entered is a request that a [RateLimit] has admitted.
type Entered struct {
	// Writer and Request are for the handlers. They are what Enter was given, unless something awaits the end of
	// the request.
	Writer  http.ResponseWriter
	Request *http.Request

	given  *http.Request   // nil: Request is the same
	parsed *multipart.Form // before
	end    *end            // nil: nothing awaits it
	ended  bool
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
	e := l.enter(w, r, l.vet, onRefused)
	if e.Request == nil {
		return nil
	}
	return &e
}

// End ends a request. Status is the status of the answer if Writer has seen none: 500 after a panic, and what the
// router sends otherwise. Trailers of gRPC must be set. End removes the temporary files of a form that was parsed since
// Enter. A second call does nothing.
func (e *Entered) End(status int) {
	if e.Request == nil || e.ended {
		return
	}
	e.ended = true
	if e.given != nil {
		handBack(e.given, e.Request)
	}
	removeFiles(e.Request, e.parsed)
	switch {
	case e.end == nil:
	case e.end.isWatched():
		e.end.finish(answer.StatusOf(e.end.answered.Status(status), e.end.answered.Header()))
	default:
		e.end.finish(unknownStatus)
	}
}

// removeFiles removes the temporary files of r's form, if it is not that one. If a handler in front has copied the
// request, as chi does, net/http's server does not see the form.
func removeFiles(r *http.Request, before *multipart.Form) {
	if form := r.MultipartForm; form != nil && form != before {
		_ = form.RemoveAll()
	}
}

// handBack gives r what the handlers, or a key function, set in their copy of it, such as the Pattern and the form.
func handBack(r, copied *http.Request) {
	body, trailer := r.Body, r.Trailer // the server's own
	*r = *copied.WithContext(r.Context())
	r.Body, r.Trailer = body, trailer
}

// enter takes a request through its five phases: gate, match, decide, admit, and pass or refuse. If it has
// answered, it returns the zero Entered.
func (l *RateLimit) enter(w http.ResponseWriter, r *http.Request, route router, onRefused func(Result)) Entered {
	v, done, parsed := visit{set: l.rules.Load()}, false, r.MultipartForm
	defer func() {
		if !done { // an observer or Overload panics
			removeFiles(r, parsed)
			v.place.Leave()
			v.keepCharges()
			l.giveBack(r.Context(), &v)
		}
	}()
	var no refusal
	for {
		if wrong := route(v.set, r); wrong != "" {
			no, done = refusal{status: http.StatusBadRequest}, true
			v.place.Leave()
			w.Header().Set("Cache-Control", "no-store")
			response.Unreads(w, r)
			http.Error(w, wrong, no.status)
			response.Drain(w, r, true)
			break
		}
		var err error
		if no, err = l.admitted(r, &v, route); err != errOutdated {
			if v.place != nil {
				v.place.Leave()
			}
			if done = no.status != 0; done {
				v.refuse(w, r, no, onRefused)
			}
			break
		}
		v = visit{set: l.rules.Load(), waited: v.waited, place: v.place}
	}
	switch {
	case no.status != 0:
		markUnseen(w, r)
		removeFiles(r, parsed)
		return Entered{}
	case v.n == 0 && v.slot == nil:
		if v.skipped != nil {
			v.warnUnlimited(w)
		}
		done = true
		return Entered{Writer: w, Request: r, parsed: parsed}
	}
	e := l.pass(w, r, &v)
	e.parsed, done = parsed, true
	return e
}

// admitted takes a request through the phases from gate to admit. The error is errOutdated if the rules have changed
// while the request waited for a slot: it begins again then.
func (l *RateLimit) admitted(r *http.Request, v *visit, route router) (no refusal, err error) {
	set := v.set
	if l.requests.Load() < 2 {
		l.noteRequest(set)
	}
	if set.hasGate {
		if exempt, no := set.gate(r, noKey); exempt || no.status != 0 {
			return no, nil
		}
	}
	if set.byRoute != nil {
		set.unrouted.note(r, set.Logger)
	}
	no = v.match(r)
	if set.hasShadow {
		v.noteShadowed()
	}
	if no.status != 0 {
		set.observe(r, no, bans.Ban{})
		return no, nil
	}
	var overload Overload
	if set.Overload != nil {
		overload = set.overloadFor(r)
	}
	return l.charge(r, v, overload, route)
}

// charge takes a request that has met its rules through the phases decide and admit, and reports it to the observer.
func (l *RateLimit) charge(r *http.Request, v *visit, overload Overload, route router) (no refusal, err error) {
	if no, err = l.decide(r.Context(), v); err == errOutdated {
		return no, err
	}
	if no.status == 0 && (v.turns || overload != nil) {
		no = l.admit(r, v, overload, route)
	}
	if v.set.hasShadow && err == nil {
		v.noteShadows()
	}
	if v.set.Observer != nil && (v.n > 0 || overload != nil) {
		v.observe(r, no, err)
	}
	return no, err
}

// warnUnlimited warns that all rules skipped a request, unless a limiter further out has limits.
func (v *visit) warnUnlimited(w http.ResponseWriter) {
	if len(w.Header()[fieldPolicy]) == 0 {
		v.set.warnOnce("weir-unlimited", v.skipped.Name,
			"weir: all rules skipped a request without a key, so such requests are not limited; add a rule by address, or change NoKey")
	}
}
