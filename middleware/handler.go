package middleware

import (
	"net/http"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
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
			l.vet(set, r, true)
		}
		if mux != nil && set.needsRoute && r.URL != nil {
			// Inside another mux, r has that one's pattern, such as "/v1/".
			if _, pattern := mux.Handler(r); pattern != "" {
				routed := *r
				routed.Pattern = pattern
				if refused := l.checkIn(set, w, &routed); refused.Status != 0 {
					set.refuse(w, &routed, refused)
				} else {
					next.ServeHTTP(w, &routed)
				}
				showPattern(r, &routed)
				return
			}
		}
		s, refused := l.check(set, w, r)
		switch {
		case refused.Status != 0:
			set.refuse(w, r, refused)
			return
		case s == nil:
			next.ServeHTTP(w, r)
			return
		}
		behind := r.WithContext(s)
		next.ServeHTTP(w, behind)
		showPattern(r, behind)
	}}
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

// Check decides about r, sets the header fields and, if the request has to wait for
// its turn, waits. When it returns false it has answered already, and the request
// must go no further. When it returns true, r's context holds the [Result]: Check
// changes r in place, for routers that hold on to it.
//
// Check is for adapters: what Handler does, without knowing what comes next.
func (l *RateLimit) Check(w http.ResponseWriter, r *http.Request) bool {
	set := l.ruleset(r)
	refused := l.checkIn(set, w, r)
	if refused.Status != 0 {
		set.refuse(w, r, refused)
	}
	return refused.Status == 0
}

// Refusal is Check, but for the answer: of a request that is refused it sets the header
// fields, and leaves the status, which is the Result's, and the body to its caller.
// Config.OnRefused is not asked.
func (l *RateLimit) Refusal(w http.ResponseWriter, r *http.Request) (result Result, refused bool) {
	if result = l.checkIn(l.ruleset(r), w, r); result.Status == 0 {
		return Result{}, false
	}
	result.writeHeaders(w.Header())
	return result, true
}

// ruleset is the one in force for r.
func (l *RateLimit) ruleset(r *http.Request) *ruleset {
	set := l.rules.Load()
	if !set.vetted.Load() {
		l.vet(set, r, false)
	}
	return set
}

// checkIn is check, where the scope becomes the context of r.
func (l *RateLimit) checkIn(set *ruleset, w http.ResponseWriter, r *http.Request) (refused Result) {
	s, refused := l.check(set, w, r)
	if s != nil {
		*r = *r.WithContext(s)
	}
	return refused
}

// check is the hot path: rules to charges, one decision, header fields. The scope is
// what the next handler's context should be; nil means that no rule applied. A request
// that must go no further has no scope, but a Result with a Status.
func (l *RateLimit) check(set *ruleset, w http.ResponseWriter, r *http.Request) (s *scope, refused Result) {
	if set.hasBans {
		switch ban, status := set.findBan(r); {
		case status == http.StatusOK:
		case set.Shadow:
			set.shadowedBans.noteBan(set.Logger)
		case status == set.BanStatus:
			set.observe(r, OutcomeBanned, ban)
			return nil, bannedResult(ban, status)
		default:
			set.observe(r, OutcomeNoKey, bans.Ban{})
			return nil, Result{Status: status}
		}
	}
	if set.ExemptPreflights && isPreflight(r) {
		return nil, Result{}
	}
	if set.Allow != nil && set.Allow(r) {
		set.observe(r, OutcomeExempt, bans.Ban{})
		return nil, Result{}
	}
	var few [fewRules]limiter.Charge
	s, charges, status, _ := set.match(r, few[:0])
	switch {
	case status != http.StatusOK:
		set.observe(r, OutcomeNoKey, bans.Ban{})
	case s == nil:
		return nil, Result{}
	default:
		if status = l.decideObserved(set, r, s, charges); status == http.StatusServiceUnavailable {
			s = nil
			break
		}
		s.writeHeaders(w.Header(), set.Headers)
	}
	if status != http.StatusOK {
		return nil, s.refusal(status)
	}
	if d := s.delay(); d > 0 && !wait(s, d) {
		return nil, Result{Status: statusClientClosedRequest}
	}
	return s, Result{}
}

// statusClientClosedRequest is nginx's, for a client that went away: it is for logs alone.
const statusClientClosedRequest = 499
