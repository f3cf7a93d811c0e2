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

// fields is the memory for the header fields of one response: for their values, and for the text of these. No two
// responses share it: others may append to the values, or overwrite them.
type fields struct {
	values []string
	text   []byte
}

// set sets a field.
func (f *fields) set(h http.Header, name, value string) {
	if len(f.values) == 0 {
		f.values = make([]string, 1)
	}
	f.values[0] = value
	h[name], f.values = f.values[:1:1], f.values[1:]
}

// number returns the text of n.
func (f *fields) number(n int64) string {
	from := len(f.text)
	f.text = strconv.AppendInt(f.text, n, 10)
	return textOf(f.text[from:])
}

// setPassed sets the header fields of a request whose end nothing awaits, in one allocation.
func (v *visit) setPassed(h http.Header) {
	switch {
	case v.shown == 0 || v.set.Headers.Send == HeadersNone:
	case v.set.Headers.Send == HeadersLegacy:
		m := &struct {
			values [3]string
			text   [48]byte // makes it 96 bytes
		}{}
		v.setFields(h, &fields{m.values[:], m.text[:0]})
	case v.shown == 1:
		m := &struct {
			values [5]string
			text   [48]byte // makes it 128 bytes
		}{}
		v.setFields(h, &fields{m.values[:], m.text[:0]})
	default:
		m := &struct {
			values [5]string
			text   [208]byte // makes it 288 bytes
		}{}
		v.setFields(h, &fields{m.values[:], m.text[:0]})
	}
}

// setFields sets the header fields.
func (v *visit) setFields(h http.Header, f *fields) {
	send := v.set.Headers.Send
	if send == HeadersNone {
		return
	}
	if send != HeadersLegacy || v.set.hasSoft {
		var space [limiter.MaxCharges]uint8
		shown := v.order(space[:0])
		v.setWarning(h, shown)
		if send != HeadersLegacy && len(shown) > 0 {
			v.setLists(h, f, shown)
		}
	}
	if m := v.strictest(); m != nil && send != HeadersDraft11 {
		v.setLegacy(h, f, m)
	}
}

// order appends the indexes of the limits that clients see, those that refuse first. A limit that counted nothing
// has no numbers.
func (v *visit) order(list []uint8) []uint8 {
	for i := range v.shown {
		d := &v.met[i].Decision
		if !d.Counted() {
			continue
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
	return list
}

// strictest returns the tightest limit that refuses or, if none does, the tightest limit. It returns nil if none
// counted. Slots do not say when all units are back.
func (v *visit) strictest() (strictest *met) {
	for i := range v.shown {
		m := &v.met[i]
		if m.unit == "" && m.Decision.Counted() && (strictest == nil || isStricter(&m.Decision, &strictest.Decision)) {
			strictest = m
		}
	}
	return strictest
}

// isStricter reports whether d matters more to the client: a decision that refuses wins, though the other
// may have fewer units left, and then the tighter one.
func isStricter(d, than *limiter.Decision) bool {
	if d.Allowed != than.Allowed {
		return !d.Allowed
	}
	return d.IsTighterThan(than)
}

// setLists sets RateLimit-Policy and RateLimit.
func (v *visit) setLists(h http.Header, f *fields, shown []uint8) {
	from := len(f.text)
	for n, i := range shown {
		f.text = v.met[i].appendMember(appendComma(f.text, n), v.outcome == OutcomeAllowed)
	}
	left := textOf(f.text[from:])
	policy, _ := v.met[shown[0]].policy()
	if from = len(f.text); len(shown) > 1 {
		for n, i := range shown {
			member, _ := v.met[i].policy()
			f.text = append(appendComma(f.text, n), member...)
		}
		policy = textOf(f.text[from:])
	}
	if len(h[fieldPolicy]) > 0 || len(h[fieldRateLimit]) > 0 {
		policy, left = v.joinLists(h, policy, left)
	}
	f.set(h, fieldPolicy, policy)
	f.set(h, fieldRateLimit, left)
}

// setLegacy sets the X-RateLimit fields by the strictest limit, unless the response has stricter ones.
func (v *visit) setLegacy(h http.Header, f *fields, m *met) {
	d, names := &m.Decision, &v.set.legacyFields
	if present := h[names[1]]; len(present) > 0 && isStricterPresent(h, names, d) {
		return
	}
	after := d.ResetAfter
	if v.outcome != OutcomeAllowed {
		after = min(after, answer.MostWait*time.Second)
	}
	reset := secondsUp(after)
	switch {
	case v.set.Headers.Delta:
	case d.Receipt.At > 0 && !m.hasTurns:
		reset = (d.Receipt.At + after.Microseconds() + 999_999) / 1_000_000
	default: // the request has waited since the decision
		reset = (time.Now().Add(after-v.delay()).UnixMicro() + 999_999) / 1_000_000
	}
	_, limit := m.policy()
	f.set(h, names[0], limit)
	f.set(h, names[1], f.number(d.Remaining))
	f.set(h, names[2], f.number(reset))
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

// joinLists joins this limiter's lists to the response's lists, without reading the latter. Members that refuse come
// first, and replace RateLimit: in a refusal only the rules that refuse are listed there.
func (v *visit) joinLists(h http.Header, policy, left string) (allPolicy, allLeft string) {
	policies, lefts := strings.Join(h[fieldPolicy], ", "), strings.Join(h[fieldRateLimit], ", ")
	if v.outcome == OutcomeAllowed {
		return joinFields(policies, policy), joinFields(lefts, left)
	}
	return joinFields(policy, policies), left
}

// joinFields joins two lists of a field, which may be empty.
func joinFields(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + ", " + second
}

// appendMember appends a member of the RateLimit list, such as "ip";r=99;t=13. The draft's t is the time until the next
// unit comes. Retry-After must not be shorter than t, so in a refusal only the rules that refused have t.
func (m *met) appendMember(b []byte, allowed bool) []byte {
	d := &m.Decision
	b = strconv.AppendInt(append(append(b, m.name...), ";r="...), d.Remaining, 10)
	if d.NextAfter > 0 && d.Allowed == allowed && m.unit == "" { // for slots it is a guess
		next := secondsUp(d.NextAfter)
		if !allowed {
			next = min(next, answer.MostWait)
		}
		b = strconv.AppendInt(append(b, ";t="...), next, 10)
	}
	return b
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
