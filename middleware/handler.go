package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

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
				if behind, end := l.check(set, w, &routed, how{inPlace: true, ends: true}, nil); behind != nil {
					serve(next, w, behind, end)
				}
				showPattern(r, &routed)
				return
			}
		}
		if behind, end := l.check(set, w, r, how{ends: true}, nil); behind != nil {
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

// Check decides about r, sets the header fields and, if the request has to wait for
// its turn, waits. When it returns false it has answered already, and the request
// must go no further. When it returns true, r's context holds the [Result], unless
// [Config.NoResult] is set: Check changes r in place, for routers that hold on to it.
//
// Check is for adapters: what Handler does, without knowing what comes next. It is not told
// how the request ends, so rules with [Rule.Counts] count every answer, and [Settle] settles
// at once. A place of [Rule.Concurrency] is returned when the request's [http.Server] ends its
// context, and so is one of [Config.Overload]; without a server a request that needs a place is
// refused with 503, as it could never be returned. See [RateLimit.Begin].
func (l *RateLimit) Check(w http.ResponseWriter, r *http.Request) bool {
	behind, _ := l.check(l.ruleset(r), w, r, how{inPlace: true}, nil)
	return behind != nil
}

// Refusal is Check, but for the answer: of a request that is refused it sets the header
// fields, and leaves the status, which is the Result's, and the body to its caller.
// Config.OnRefused is not asked.
func (l *RateLimit) Refusal(w http.ResponseWriter, r *http.Request) (result Result, refused bool) {
	behind, _ := l.check(l.ruleset(r), w, r, how{inPlace: true}, &result)
	return result, behind == nil
}

// ruleset is the one in force for r.
func (l *RateLimit) ruleset(r *http.Request) *ruleset {
	set := l.rules.Load()
	if !set.vetted.Load() {
		l.vet(set, r, false)
	}
	return set
}

// how is in what way a request is checked.
type how struct {
	inPlace bool // the request itself goes further, and not a copy
	ends    bool // the ending is told how the request ends
}

// check is the hot path: rules to charges, one decision, header fields. It returns the
// request that goes further, with the scope as its context if a rule applied: r itself, or
// a copy if not in place; and that scope's ending, if some rule awaits it. It returns nil
// where it has answered, or told told what to answer.
//
// All that is known of the request stays on the stack until it passes, so that a refusal
// pays for its answer alone.
func (l *RateLimit) check(set *ruleset, w http.ResponseWriter, r *http.Request, how how, told *Result) (*http.Request, *ending) {
	if set.hasBans {
		switch ban, status := set.findBan(r); {
		case status == http.StatusOK:
		case set.Shadow:
			set.shadowedBans.noteBan(set.Logger)
		case status == set.BanStatus:
			set.observe(r, OutcomeBanned, ban)
			set.refuse(w, r, nil, refusedFor(ban, status, l.room.Now()), told)
			return refused(r, scopeOf(r.Context()))
		default:
			set.observe(r, OutcomeNoKey, bans.Ban{})
			set.refuse(w, r, nil, refusal{status: status}, told)
			return refused(r, scopeOf(r.Context()))
		}
	}
	if set.ExemptPreflights && isPreflight(r) {
		return r, nil
	}
	if set.Allow != nil && set.Allow(r) {
		set.observe(r, OutcomeExempt, bans.Ban{})
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
	policies, charges, status, refuses := set.match(r, outer, how.ends, set.placeable(r, how), policies, charges)
	if status != http.StatusOK {
		no := refusal{status: status}
		switch {
		case refuses.Deny:
			no.rule, no.reply, no.retryAfter = refuses.Name, refuses.reply, refuses.reply.RetryAfter
			set.observeRefused(r, refuses, no.retryAfter)
		case status == statusEndless:
			no.status, no.rule, no.retryAfter = http.StatusServiceUnavailable, refuses.Name, limiter.Never
			set.observeRefused(r, refuses, no.retryAfter)
		default:
			set.observe(r, OutcomeNoKey, bans.Ban{})
		}
		set.refuse(w, r, nil, no, told)
		return refused(r, outer)
	}
	overload, endless := set.overloadOf(r, how)
	if endless {
		set.observe(r, OutcomeShed, bans.Ban{})
		set.refuse(w, r, nil, refusal{status: http.StatusServiceUnavailable, shed: true, retryAfter: limiter.Never}, told)
		return refused(r, outer)
	}
	if len(charges) == 0 {
		if refuses != nil {
			refuses.warnUnlimited(set.Logger)
		}
		if overload == nil {
			return r, nil
		}
		return l.admitUncharged(set, w, r, how, told)
	}
	s := decided{outer: outer, policies: policies, decisions: decisions[:len(charges)]}
	var place Place
	var retryAfter time.Duration
	if set.hasPlaces {
		status, place, retryAfter = l.decideGuarded(set, r, &s, charges, overload)
	} else {
		status, place, retryAfter = l.decideObserved(set, r, &s, charges, overload)
	}
	switch status {
	case http.StatusOK:
	case statusShed:
		set.refuse(w, r, nil, refusal{status: http.StatusServiceUnavailable, shed: true, retryAfter: retryAfter}, told)
		return nil, nil
	case statusClientClosedRequest:
		set.refuse(w, r, nil, refusal{status: status}, told)
		return nil, nil
	case http.StatusServiceUnavailable:
		set.refuse(w, r, nil, refusal{status: status}, told)
		return refused(r, outer)
	default:
		no := refusal{status: status}
		if set.hasPlaces {
			var shared bool
			if no.full, shared = s.full(); shared {
				no.status = http.StatusServiceUnavailable
			}
		}
		set.refuse(w, r, &s, no, told)
		return refused(r, outer)
	}
	holds := set.hasPlaces && s.hasPlace()
	behind, end := r, (*ending)(nil)
	var values *[5]string
	var text []byte
	switch {
	case set.NoResult && (place != nil || holds):
		behind, end, text = l.await(set, r, how, outer, &s, more)
		if set.Headers != HeadersNone {
			values = &end.values
		}
	case set.NoResult && set.Headers == HeadersNone:
	case set.NoResult:
		f := &fields{}
		values, text = &f.values, f.text[:0]
	case place != nil || holds || set.awaitsEnds && s.awaitsEnd():
		behind, end, text = l.await(set, r, how, outer, &s, more)
		values = &end.values
	case how.inPlace:
		kept := &scope{}
		values, text = &kept.values, kept.keep(r, outer, &s, more)
		*r = *r.WithContext(kept)
	default:
		p := &passed{}
		values, text = &p.values, p.keep(r, outer, &s, more)
		p.request = *r.WithContext(&p.scope)
		behind = &p.request
	}
	passed := false
	if holds {
		end.hold()
		defer func() {
			if !passed {
				end.release()
			}
		}()
	}
	if values != nil {
		s.writeFields(w.Header(), set, values, text)
	}
	if place != nil {
		end.occupy(place, how)
		passed = true
		return behind, end
	}
	if d := s.delay(); d > 0 && !l.delayed(r.Context(), d) {
		if end != nil {
			end.cancel()
		}
		set.refuse(w, r, nil, refusal{status: statusClientClosedRequest}, told)
		return refused(r, outer)
	}
	passed = true
	if !how.ends {
		if holds {
			context.AfterFunc(end.Context, end.release)
		}
		end = nil
	}
	return behind, end
}

// statusClientClosedRequest is nginx's, for a client that went away: it is for logs alone.
const statusClientClosedRequest = 499

// isGone reports whether the client of a request has left. Of one whose deadline is over it waits
// for an answer.
func isGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
