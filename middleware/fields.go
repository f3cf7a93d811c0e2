package middleware

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/weirgo/weir/internal/answer"
	"github.com/weirgo/weir/limiter"
)

// fields has the values of one response's header fields. Their text is behind them in the same allocation. They
// are never shared between responses: others may append to them or overwrite them.
type fields struct {
	limit, remaining, reset, policy, rateLimit [1]string
}

// setPassed sets the header fields of a request whose end nothing awaits.
func (v *visit) setPassed(h http.Header) {
	switch {
	case v.shown == 0 || v.set.Headers.Send == HeadersNone:
	case v.shown == 1, v.set.Headers.Send == HeadersLegacy:
		f := &struct {
			fields
			text [48]byte // makes it 128 bytes
		}{}
		v.setFields(h, &f.fields, f.text[:0])
	default:
		f := &struct {
			fields
			text [208]byte // makes it 288 bytes
		}{}
		v.setFields(h, &f.fields, f.text[:0])
	}
}

// order appends the indexes of the limits that clients see, those that refuse first. A limit that counted nothing
// has no numbers. It also returns the index of the strictest limit: of those that refuse, if any does, the tightest.
// Slots do not say when all units are back. It is -1 if there is none.
func (v *visit) order(list []uint8) (_ []uint8, strict int) {
	strict = -1
	for i := range v.shown {
		m := &v.met[i]
		d := &m.Decision
		if !d.Counted() {
			continue
		}
		if m.unit == "" && (strict < 0 || isStricter(d, &v.met[strict].Decision)) {
			strict = i
		}
		at := len(list)
		if !d.Allowed && v.outcome != OutcomeAllowed {
			at = slices.IndexFunc(list, func(i uint8) bool { return v.met[i].Decision.Allowed })
			if at < 0 {
				at = len(list)
			}
		}
		list = slices.Insert(list, at, uint8(i))
	}
	return list, strict
}

// isStricter reports whether d matters more to the client: a decision that refuses wins, though the other
// may have fewer units left, and then the tighter one.
func isStricter(d, than *limiter.Decision) bool {
	if d.Allowed != than.Allowed {
		return !d.Allowed
	}
	return d.IsTighterThan(than)
}

// setFields sets the header fields. It appends their text to text, and returns it.
func (v *visit) setFields(h http.Header, f *fields, text []byte) []byte {
	which := v.set.Headers.Send
	var space [limiter.MaxCharges]uint8
	shown, strict := v.order(space[:0])
	if which == HeadersNone || len(shown) == 0 {
		return text
	}
	if v.set.hasSoft {
		v.setWarning(h, shown)
	}
	remaining := ""
	if which != HeadersLegacy {
		text, remaining = v.setLists(h, f, text, shown, strict)
	}
	if which != HeadersDraft11 && strict >= 0 {
		text = v.setLegacy(h, f, text, strict, remaining)
	}
	return text
}

// setLists sets RateLimit-Policy and RateLimit. It returns the text of what limit strict has left.
func (v *visit) setLists(h http.Header, f *fields, text []byte, shown []uint8, strict int) (_ []byte, remaining string) {
	from := len(text)
	for n, i := range shown {
		text = appendComma(text, n)
		var left string
		if text, left = v.met[i].appendMember(text, v.outcome == OutcomeAllowed); int(i) == strict {
			remaining = left
		}
	}
	f.rateLimit[0] = textOf(text[from:])
	f.policy[0], _ = v.met[shown[0]].policy()
	if from = len(text); len(shown) > 1 {
		for n, i := range shown {
			member, _ := v.met[i].policy()
			text = append(appendComma(text, n), member...)
		}
		f.policy[0] = textOf(text[from:])
	}
	if len(h[fieldPolicy]) > 0 || len(h[fieldRateLimit]) > 0 {
		v.joinLists(h, f)
	}
	h[fieldPolicy], h[fieldRateLimit] = f.policy[:], f.rateLimit[:]
	return text, remaining
}

// setLegacy sets the X-RateLimit fields by the strictest limit, unless the response has stricter ones.
func (v *visit) setLegacy(h http.Header, f *fields, text []byte, strict int, remaining string) []byte {
	m := &v.met[strict]
	d, names := &m.Decision, &v.set.legacyFields
	if present := h[names[1]]; len(present) > 0 && isStricterPresent(h, names, d) {
		return text
	}
	after := d.ResetAfter
	if v.outcome != OutcomeAllowed {
		after = min(after, answer.MostWait*time.Second)
	}
	reset := secondsUp(after)
	switch {
	case v.set.Headers.Delta:
	case d.Receipt.At > 0 && m.quota.Algorithm() != limiter.LeakyBucket:
		reset = (d.Receipt.At + after.Microseconds() + 999_999) / 1_000_000
	default: // the request has waited since the decision
		reset = (time.Now().Add(after-v.delay()).UnixMicro() + 999_999) / 1_000_000
	}
	if remaining == "" {
		from := len(text)
		text = strconv.AppendInt(text, d.Remaining, 10)
		remaining = textOf(text[from:])
	}
	from := len(text)
	text = strconv.AppendInt(text, reset, 10)
	_, f.limit[0] = m.policy()
	f.remaining[0], f.reset[0] = remaining, textOf(text[from:])
	h[names[0]], h[names[1]], h[names[2]] = f.limit[:], f.remaining[:], f.reset[:]
	return text
}

// isStricterPresent reports whether the response has X-RateLimit fields of a stricter limit, whoever wrote them.
func isStricterPresent(h http.Header, names *[3]string, d *limiter.Decision) bool {
	var present [3]int64
	for i, name := range names {
		values := h[name]
		if len(values) != 1 {
			return false
		}
		var err error
		if present[i], err = strconv.ParseInt(values[0], 10, 64); err != nil || present[i] < 0 {
			return false
		}
	}
	return present[1] < d.Remaining || present[1] == d.Remaining && d.Allowed
}

// setWarning lists the rules that have reached SoftAt, as in the RateLimit field: "search";r=3;q=30.
func (v *visit) setWarning(h http.Header, shown []uint8) {
	var text []byte
	for _, i := range shown {
		m := &v.met[i]
		d := &m.Decision
		if !m.isNear(d) {
			continue
		}
		text = append(appendComma(text, len(text)), m.name...)
		text = strconv.AppendInt(append(text, ";r="...), d.Remaining, 10)
		text = strconv.AppendInt(append(text, ";q="...), d.Limit, 10)
	}
	if text != nil {
		h[fieldWarning] = []string{strings.Join(append(slices.Clone(h[fieldWarning]), textOf(text)), ", ")}
	}
}

// joinLists adds this limiter's members to the fields that the response has, without reading those. Members that refuse
// come first, and replace RateLimit: in a refusal only the rules that refuse are listed there.
func (v *visit) joinLists(h http.Header, f *fields) {
	policy, left := strings.Join(h[fieldPolicy], ", "), strings.Join(h[fieldRateLimit], ", ")
	switch {
	case v.outcome == OutcomeAllowed:
		policy, left = joinFields(policy, f.policy[0]), joinFields(left, f.rateLimit[0])
	default:
		policy, left = joinFields(f.policy[0], policy), f.rateLimit[0]
	}
	f.policy[0], f.rateLimit[0] = policy, left
}

// joinFields joins two lists of a field, which may be empty.
func joinFields(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + ", " + second
}

// appendMember appends a member of the RateLimit list, such as "ip";r=99;t=13, and returns the text of r.
// The draft's t is the time until the next unit comes. Retry-After must not be shorter than t, so in a
// refusal only the rules that refused have t.
func (m *met) appendMember(b []byte, allowed bool) (_ []byte, remaining string) {
	d := &m.Decision
	b = append(append(b, m.name...), ";r="...)
	from := len(b)
	b = strconv.AppendInt(b, d.Remaining, 10)
	remaining = textOf(b[from:])
	if d.NextAfter > 0 && d.Allowed == allowed && m.unit == "" { // for slots it is a guess
		next := secondsUp(d.NextAfter)
		if !allowed {
			next = min(next, answer.MostWait)
		}
		b = strconv.AppendInt(append(b, ";t="...), next, 10)
	}
	return b, remaining
}

// policy returns the member of RateLimit-Policy and the X-RateLimit-Limit of the limit or, during an outage, of its
// share in this process.
func (m *met) policy() (member, limit string) {
	switch d := &m.Decision; {
	case d.Window != 0 || m.unit != "" && d.Limit != m.quota.Capacity():
		return memberOf(m.name, d.Limit, d.Window) + m.unit, strconv.FormatInt(d.Limit, 10)
	case m.isCalendar:
		return memberOf(m.name, m.quota.Capacity(), windowAt(m.quota, d.Receipt.At)), m.capacity
	}
	return m.member, m.capacity
}

// memberOf returns a member of the RateLimit-Policy list: "ip";q=100;w=60.
func memberOf(name string, limit int64, window time.Duration) string {
	member := strconv.AppendInt([]byte(name+";q="), limit, 10)
	if window >= time.Second { // the draft knows no shorter window
		member = strconv.AppendInt(append(member, ";w="...), secondsUp(window), 10)
	}
	return string(member)
}

// isNear reports whether the rule has reached its SoftAt.
func (m *meter) isNear(d *limiter.Decision) bool {
	// During an outage the limit is a share of the rule's. It is at most 10^12.
	softAt := int64(m.rule.SoftAt)
	return softAt > 0 && d.Counted() && d.Remaining <= d.Limit*(100-softAt)/100
}

// textOf returns b as a string, without a copy. Nothing may write to b any more.
func textOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func appendComma(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ", "...)
	}
	return b
}

// secondsUp returns d in whole seconds, rounded up.
func secondsUp(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}
