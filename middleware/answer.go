package middleware

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/limiter"
)

// statusClientClosedRequest is nginx's status for a client that left. Only logs see it.
const statusClientClosedRequest = 499

// isGone reports whether the client of a request has left. If only the deadline is over, the client
// still waits for an answer.
func isGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// pass is the last phase of a request that passes. It sets the header fields, and puts the decisions
// into the context of the request for the next handler. If a rule awaits the end of the request, or the
// request holds a slot, it returns an ending.
func (l *RateLimit) pass(set *ruleset, w http.ResponseWriter, r, into *http.Request, one *oneRule, outer *scope, s *decided, heap *heapSpace, slot Slot) (*http.Request, *ending) {
	holds := set.hasSlots.Load() && s.hasSlot()
	awaits := slot != nil || holds || !set.NoResult && set.awaitsEnds && s.awaitsEnd()
	if !awaits && (set.NoResult || one != nil) {
		if set.Headers.Send != HeadersNone {
			f := &fields{}
			s.writeFields(w.Header(), set, &f.values, f.text[:0])
		}
		return r, nil
	}
	admitted, end, kept := into, (*ending)(nil), (*scope)(nil)
	switch {
	case awaits && into != nil:
		end = &ending{}
		kept = &end.scope
	case awaits:
		p := &passedToEnd{}
		admitted, end, kept = &p.request, &p.ending, &p.scope
	case into != nil:
		kept = &scope{}
	default:
		p := &passed{}
		admitted, kept = &p.request, &p.scope
	}
	text := kept.keep(r, outer, s, heap)
	var ctx context.Context = kept
	if awaits {
		end.begin(l, set, slot)
		ctx = end
	}
	*admitted = *r.WithContext(ctx)
	if len(s.policies) > 0 {
		s.writeFields(w.Header(), set, &kept.values, text)
	}
	if holds {
		end.hold()
	}
	return admitted, end
}

// refuse is the last phase of a request that is refused: it answers. s is not nil if limits refused it.
func (set *ruleset) refuse(w http.ResponseWriter, r *http.Request, s *decided, no *refusal, onRefused func(Result)) (*http.Request, *ending) {
	unseen(r)
	if no.status == statusClientClosedRequest {
		w.WriteHeader(no.status)
		return nil, nil
	}
	h, text := w.Header(), no.text[:0]
	if no.isByLimits() {
		text = s.writeFields(h, set, (*[5]string)(no.values[:]), text)
		no.byLimits(s)
	}
	seconds := no.seconds()
	no.set(h, 5, "Cache-Control", "no-store")
	if seconds > 0 {
		from := len(text)
		text = strconv.AppendInt(text, seconds, 10)
		no.set(h, 6, "Retry-After", textOf(text[from:]))
	}
	if no.status == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "" {
		h.Set("WWW-Authenticate", "Bearer")
	}
	answer := set.Refusal.Answer
	if no.reply != nil && no.reply.Answer != nil {
		answer = no.reply.Answer
	}
	switch {
	case onRefused != nil:
		response.Unreads(w, r)
		onRefused(no.result(s))
		written, ok := w.(interface{ Written() bool }) // the adapter's
		response.Drain(w, r, ok && written.Written())
		return nil, nil
	case answer != nil:
		response.Unreads(w, r)
		answered := &response.Response{}
		w = answered.Watch(w)
		answered.Unsaid = no.answered()
		answer(w, r, no.result(s))
		answered.Begin()
		response.Drain(w, r, true)
		return nil, nil
	}
	from := len(text)
	switch negotiate(r.Header["Accept"]) {
	case formatProblem:
		no.set(h, 7, "Content-Type", "application/problem+json")
		text = no.appendProblem(text, s, seconds)
	case formatText:
		no.set(h, 7, "Content-Type", "text/plain; charset=utf-8")
		no.set(h, 8, "X-Content-Type-Options", "nosniff")
		text = append(no.appendMessage(text, seconds, false), '\n')
	default:
		no.set(h, 7, "Content-Type", "application/json")
		text = no.appendPlain(text, seconds)
	}
	writeBody(w, r, no.answered(), text[from:len(text):len(text)])
	return nil, nil
}

// writeBody writes a status and a body, which answers to HEAD lack. The request's body was not read.
func writeBody(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	response.Unreads(w, r)
	if r.Method == http.MethodHead || response.HasBody(r) {
		// For other requests net/http counts the bytes.
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	if len(body) > 0 && r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
	response.Drain(w, r, true)
}

// set sets a field that no other code sets, with the value at index i.
func (no *refusal) set(h http.Header, i int, field, value string) {
	no.values[i] = value
	h[field] = no.values[i : i+1 : i+1]
}

// A scope is the context behind a limiter. It has the decisions, for handlers and for limiters further
// in, which agree with this one on the header fields.
type scope struct {
	context.Context          // the request's
	url             *url.URL // the request's
	decided
	fields

	// The arrays of the slices, if there is one policy.
	policySpace   [1]applied
	decisionSpace [1]limiter.Decision
}

type scopeKey struct{}

// Value returns the scope itself for its key, which saves a context around it.
func (s *scope) Value(key any) any {
	if key == (scopeKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// A passed is an admitted request with its context, in one allocation.
type passed struct {
	scope
	request http.Request
}

// passedToEnd is passed for an ending.
type passedToEnd struct {
	ending
	request http.Request
}

// keep copies the decisions about r off the stack, unless they are in heap. It returns a buffer for the
// text of the header fields.
func (s *scope) keep(r *http.Request, outer *scope, d *decided, heap *heapSpace) []byte {
	s.Context, s.outer, s.url = r.Context(), outer, r.URL
	s.outcome = d.outcome
	n, text := len(d.policies), s.text[:0]
	switch {
	case heap != nil:
		s.policies, s.decisions = heap.policies[:n], heap.decisions[:n]
		return text
	case n <= 1:
		s.policies, s.decisions = s.policySpace[:n], s.decisionSpace[:n]
	default:
		space := &struct {
			policies  [fewRules]applied
			decisions [fewRules]limiter.Decision
			text      [152]byte // makes it 600 bytes; with more it would take 704 instead of 640
		}{}
		text = space.text[:0]
		s.policies, s.decisions = space.policies[:n], space.decisions[:n]
	}
	copy(s.policies, d.policies)
	copy(s.decisions, d.decisions)
	return text
}

// scopeOf returns the scope of the innermost limiter so far, or nil.
func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}
