package middleware

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/weirgo/weir/internal/answer"
	"github.com/weirgo/weir/internal/response"
)

// statusClientClosedRequest is nginx's status for a client that left. Only logs see it.
const statusClientClosedRequest = 499

// isGone reports whether the client of a request has left. If only the deadline is over, the client
// still waits for an answer.
func isGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// pass is the last phase of a request that passes. It sets the header fields. The request goes on as it came,
// unless something awaits its end or its handlers want the Result.
func (v *visit) pass(w http.ResponseWriter) Entered {
	e, h := Entered{Writer: w, Request: v.request, parsed: v.parsed}, w.Header()
	if v.skipped != nil && len(v.met) == 0 {
		v.warnUnlimited(h)
	}
	if len(v.parts) > 0 || v.set.Results && len(v.met) > 0 {
		v.header = h
		for _, f := range v.parts {
			if f.pass != nil {
				v.needed = max(v.needed, f.pass(v))
			}
		}
	}
	if v.needed == needNothing && !v.set.Results || len(v.met)+len(v.parts) == 0 {
		v.setPassed(h)
	} else {
		v.setFields(h, &v.values.fields, v.values.text[:0])
		e.visit = v
		e.Writer, e.Request = v.await(w)
	}
	v.done = true
	return e
}

// A reply is the memory of a refusal's answer, in one allocation.
type reply struct {
	fields
	cacheControl, retryAfter, contentType, options [1]string
	text                                           [208]byte
}

// answer is the last phase of a request that is refused. Config.Refusal, the rule's, or an adapter may answer in its
// place.
func (v *visit) answer(w http.ResponseWriter, r *http.Request, no *refusal, onRefused func(Result)) {
	switch {
	case no.status == statusClientClosedRequest:
		w.WriteHeader(no.status)
		return
	case no.text != "":
		w.Header().Set("Cache-Control", "no-store")
		response.LeaveUnread(w, r)
		http.Error(w, no.text, no.status)
		response.Drain(w, r, true)
		return
	}
	a, facts := &reply{}, no.facts(v.seconds(no))
	facts.Stop = no.stops(&facts, &v.set.Refusal)
	text := v.setRefused(w.Header(), a, no, &facts)
	answers := v.set.Refusal.Answer
	if t := no.byRule(); t != nil && t.Answer != nil {
		answers = t.Answer
	}
	switch protocol := answer.ProtocolOf(r); {
	case onRefused != nil:
		response.LeaveUnread(w, r)
		onRefused(v.resultOf(no))
		written, ok := w.(interface{ Written() bool }) // the adapter's
		response.Drain(w, r, ok && written.Written())
	case answers != nil:
		response.LeaveUnread(w, r)
		answered := &response.Response{}
		w = answered.Watch(w)
		answered.Unsaid = no.answered()
		answers(w, r, v.resultOf(no))
		answered.Begin()
		response.Drain(w, r, true)
	case protocol != answer.HTTP:
		status, body := protocol.Refuse(w.Header(), r, &facts)
		if status == http.StatusOK {
			countsAs(w, r, no.answered())
		}
		writeBody(w, r, status, body)
	case no.streams(r, &facts):
		no.stream(w, r, &facts)
	default:
		v.write(w, r, no, facts, a, text)
	}
}

// setRefused sets the header fields of a refusal. It returns their text.
func (v *visit) setRefused(h http.Header, a *reply, no *refusal, facts *answer.Facts) (text []byte) {
	text = a.text[:0]
	if no.limit != nil {
		text = v.setFields(h, &a.fields, text)
	}
	a.cacheControl[0] = "no-store"
	h["Cache-Control"] = a.cacheControl[:]
	if facts.Seconds > 0 {
		from := len(text)
		text = strconv.AppendInt(text, facts.Wait(), 10)
		a.retryAfter[0] = textOf(text[from:])
		h["Retry-After"] = a.retryAfter[:]
		if v.set.retryField != "" {
			h[v.set.retryField] = []string{a.retryAfter[0]}
		}
	}
	if facts.Stop {
		h["X-Should-Retry"] = []string{"false"}
	}
	if no.status == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "" {
		h.Set("WWW-Authenticate", challenge(no.rule.Key))
	}
	return text
}

// write writes Weir's own answer. Its body is behind the text of the fields.
func (v *visit) write(w http.ResponseWriter, r *http.Request, no *refusal, facts answer.Facts, a *reply, text []byte) {
	h, format := w.Header(), answer.Negotiate(r.Header["Accept"])
	if method := r.Header["Mcp-Method"]; len(method) > 0 {
		format = answer.ForAgents(format, method[0])
	}
	format = no.format(format, &v.set.Refusal)
	a.contentType[0] = format.ContentType()
	h["Content-Type"] = a.contentType[:]
	var violated [fewLimits]string
	switch {
	case format == answer.Text:
		a.options[0] = "nosniff"
		h["X-Content-Type-Options"] = a.options[:]
	case format == answer.Problem && no.limit != nil:
		facts.Violated = v.appendViolated(violated[:0])
	}
	from := len(text)
	text = answer.Append(text, format, &facts)
	writeBody(w, r, no.answered(), text[from:len(text):len(text)])
}

// writeBody writes a status and a body, which answers to HEAD lack. The request's body was not read.
func writeBody(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	response.LeaveUnread(w, r)
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
