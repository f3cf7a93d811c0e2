package middleware

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/weirgo/weir/internal/answer"
	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
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
	awaited := v.set.Results && len(v.met)+len(v.parts) > 0
	for _, f := range v.parts {
		if f.pass != nil {
			awaits, watches := f.pass(v, h)
			awaited, v.watches = awaited || awaits, v.watches || watches
		}
	}
	if !awaited {
		v.setPassed(h)
	} else {
		v.setFields(h, &fields{v.memory.values[:], v.memory.text[:0]})
		e.visit = v
		e.Writer, e.Request = v.await(w)
	}
	v.done = true
	return e
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
	m := &struct { // for fields and body
		values [9]string
		text   [208]byte // makes it 352 bytes
	}{}
	f, facts := fields{m.values[:], m.text[:0]}, no.facts(v.seconds(no))
	facts.Stop = no.stops(&facts, &v.set.Refusal)
	v.setRefused(w.Header(), &f, no, &facts)
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
		v.write(w, r, no, facts, &f)
	}
}

// setRefused sets the header fields of a refusal.
func (v *visit) setRefused(h http.Header, f *fields, no *refusal, facts *answer.Facts) {
	if no.limit != nil {
		v.setFields(h, f)
	}
	f.set(h, "Cache-Control", "no-store")
	if facts.Seconds > 0 {
		after := f.number(facts.Wait())
		f.set(h, "Retry-After", after)
		if v.set.retryField != "" {
			f.set(h, v.set.retryField, after)
		}
	}
	if facts.Stop {
		f.set(h, "X-Should-Retry", "false")
	}
	if no.status == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "" {
		h.Set("WWW-Authenticate", challenge(no.rule.Key))
	}
}

// write writes Weir's own answer.
func (v *visit) write(w http.ResponseWriter, r *http.Request, no *refusal, facts answer.Facts, f *fields) {
	h, format := w.Header(), answer.Negotiate(r.Header["Accept"])
	if method := r.Header["Mcp-Method"]; len(method) > 0 {
		format = answer.ForAgents(format, method[0])
	}
	format = no.format(format, &v.set.Refusal)
	f.set(h, "Content-Type", format.ContentType())
	var violated [fewLimits]string
	switch {
	case format == answer.Text:
		f.set(h, "X-Content-Type-Options", "nosniff")
	case format == answer.Problem && no.limit != nil:
		facts.Violated = v.appendViolated(violated[:0])
	}
	from := len(f.text)
	text := answer.Append(f.text, format, &facts)
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

// A refusal says why a request goes no further.
type refusal struct {
	outcome Outcome
	status  int           // without Rule.Refusal
	retry   time.Duration // Never: unknown, or waiting does not help
	rule    *rule         // that denies, that needs a key, or whose limit refuses
	limit   *met          // the tightest limit that refuses; nil: none does
	text    string        // why the request cannot be routed; empty: Weir's own sentence
}

// refuse returns a refusal, in memory of the visit.
func (v *visit) refuse(no refusal) *refusal {
	v.refusal = no
	return &v.refusal
}

// byRule returns the Refusal of the rule that refuses, or nil if none does, or if it needs a key.
func (no *refusal) byRule() *Refusal {
	if no.outcome == OutcomeRefused && no.rule != nil {
		return &no.rule.Refusal
	}
	return nil
}

// answered returns the status that the client sees.
func (no *refusal) answered() int {
	if t := no.byRule(); t != nil && t.Status != 0 {
		return t.Status
	}
	return no.status
}

// slots returns how many requests may be in progress, if only slots are missing, or 0.
func (no *refusal) slots() int64 {
	if no.limit == nil || !no.limit.isSlot() {
		return 0
	}
	return no.limit.Decision.Limit
}

// limitText returns the limit that refuses, as text.
func (no *refusal) limitText() string {
	switch {
	case no.slots() > 0:
		return strconv.FormatInt(no.slots(), 10) + " at once"
	case no.limit != nil:
		return no.limit.quota.Limit().String()
	}
	return ""
}

// seconds returns how long to wait, rounded up, with Paced and Jitter of the rule. It is 0 if that is unknown, or
// if waiting does not help.
func (v *visit) seconds(no *refusal) int64 {
	wait := v.wait(no)
	if wait == limiter.Never {
		return 0
	}
	seconds := secondsUp(wait)
	t := no.byRule()
	if t == nil || t.Jitter == 0 || seconds == 0 {
		return seconds
	}
	most := max(1, (seconds*int64(t.Jitter)+99)/100)
	return seconds + rand.Int64N(most+1)
}

// resultOf returns the Result of a refusal.
func (v *visit) resultOf(no *refusal) (result Result) {
	switch {
	case no.limit != nil:
		result = v.result()
	case no.outcome != OutcomeNoKey && no.rule != nil: // it denies
		result.Rule, result.RetryAfter = no.rule.Name, no.retry
	default:
		result.Rule, result.RetryAfter = v.ban.Rule, no.retry
	}
	result.Status, result.Banned = no.answered(), no.outcome == OutcomeBanned
	return result
}

// kind returns the kind of the refusal, given the seconds to wait.
func (no *refusal) kind(seconds int64) answer.Kind {
	switch {
	case no.status == http.StatusServiceUnavailable:
		return answer.Unavailable
	case no.outcome == OutcomeNoKey && no.status == http.StatusUnauthorized:
		return answer.NoCredentials
	case no.outcome == OutcomeNoKey && no.status == http.StatusRequestEntityTooLarge:
		return answer.TooLong
	case no.outcome == OutcomeNoKey && no.status == http.StatusRequestTimeout:
		return answer.Late
	case no.outcome == OutcomeNoKey:
		return answer.NoKey
	case no.outcome == OutcomeBanned && no.status == http.StatusForbidden:
		return answer.Banned
	case no.rule == nil: // a ban with status 429 looks like a limit
		return answer.Quota
	case no.rule.Mode == Deny && no.status == http.StatusForbidden:
		return answer.Denied
	case no.rule.Mode == Deny:
		return answer.DeniedNow
	case no.limit == nil:
		return answer.Zero
	case no.slots() > 0:
		return answer.AtOnce
	case seconds == 0:
		return answer.Cost
	}
	return answer.Quota
}

// facts returns what the answer says, given the seconds to wait, without the violated rules.
func (no *refusal) facts(seconds int64) answer.Facts {
	f := answer.Facts{Kind: no.kind(seconds), Status: no.answered(), Seconds: seconds, AtOnce: no.slots()}
	if t := no.byRule(); t != nil {
		f.Type, f.Title, f.Message, f.Rule = t.Type, t.Title, t.Message, no.rule.Name
		if answer.StatesLimit(t.Message) {
			f.Limit = no.limitText()
		}
	}
	return f
}

// stops reports whether clients should give up, which they read in X-Should-Retry, given the facts and
// Config.Refusal.
func (no *refusal) stops(f *answer.Facts, general *Refusal) bool {
	longest := general.StopAbove
	if t := no.byRule(); t != nil {
		longest = t.StopAbove
	}
	switch {
	case longest <= 0:
		return false
	case f.Seconds > 0:
		return no.retry > longest
	}
	switch f.Kind {
	case answer.AtOnce, answer.DeniedNow, answer.Unavailable: // nobody knows how long
		return false
	}
	return true
}

// format returns the format of the body. It depends on what the client accepts, and on Config.Refusal.
func (no *refusal) format(accepted answer.Format, general *Refusal) answer.Format {
	body := general.Body
	if t := no.byRule(); t != nil {
		body = t.Body
	}
	if accepted == answer.JSON && body == BodyAI {
		return answer.AI
	}
	return accepted
}

// challenge returns the WWW-Authenticate that a 401 must have. Weir knows one key's scheme.
func challenge(key keyfunc.Func) string {
	if reflect.ValueOf(key).Pointer() == reflect.ValueOf(keyfunc.Bearer).Pointer() {
		return "Bearer"
	}
	return "Key"
}

// appendViolated appends the names of the rules that refused, in quotes, without those in shadow.
func (v *visit) appendViolated(names []string) []string {
	var space [limiter.MaxCharges]uint8
	for _, i := range v.order(space[:0]) {
		if m := &v.met[i]; !m.Decision.Allowed {
			names = append(names, m.name)
		}
	}
	return names
}

// refusedByLimit returns the refusal by the tightest limit that refuses, or by a slot if no limit refuses.
func (v *visit) refusedByLimit() *refusal {
	no := refusal{outcome: OutcomeRefused, status: http.StatusTooManyRequests}
	together := true
	for i := range v.shown {
		m := &v.met[i]
		if m.Decision.Allowed {
			continue
		}
		no.retry = max(no.retry, m.Decision.RetryAfter)
		together = together && m.rule.together
		switch {
		case no.limit == nil, no.limit.isSlot() && !m.isSlot(),
			no.limit.isSlot() == m.isSlot() && m.Decision.IsTighterThan(&no.limit.Decision):
			no.limit, no.rule = m, m.rule
		}
	}
	if together && no.slots() > 0 {
		no.status = http.StatusServiceUnavailable
	}
	return v.refuse(no)
}
