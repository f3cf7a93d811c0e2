package middleware

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/weirgo/weir/internal/invalid"
)

// Headers says which header fields report quotas to clients, and how. Retry-After does not depend on
// it: a refusal has Retry-After if waiting helps.
type Headers struct {
	// Send says which fields responses carry. Zero: HeadersBoth.
	Send Dialect

	// Prefix begins the names of the HeadersLegacy fields, before -Limit, -Remaining and -Reset:
	// X-Rate-Limit or RateLimit, for example. Empty: X-RateLimit.
	Prefix string

	// Delta makes X-RateLimit-Reset a number of seconds from now. False: it is a time, in seconds since
	// 1970.
	Delta bool
}

// A Dialect is a family of header fields.
type Dialect uint8

const (
	// HeadersBoth sends HeadersLegacy and HeadersDraft11. All dialects but HeadersNone also send
	// X-RateLimit-Warning for rules that have reached SoftAt.
	HeadersBoth Dialect = iota

	// HeadersLegacy sends X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset of the
	// strictest limit. They leave out AtOnce, because nobody knows when a slot becomes free. Reset is
	// in seconds since 1970, as at GitHub.
	HeadersLegacy

	// HeadersDraft11 sends RateLimit-Policy and RateLimit, which list every rule, as in
	// draft-ietf-httpapi-ratelimit-headers-11.
	HeadersDraft11

	// HeadersNone sends none of these fields.
	HeadersNone
)

// Validate returns what is wrong with f, or nil.
func (f Headers) Validate() error {
	const most = 64
	if f.Send > HeadersNone {
		return invalid.New("middleware", "%v is %d: there is no such choice", invalid.Name("Headers.Send"), f.Send)
	}
	if (f.Prefix != "" || f.Delta) && (f.Send == HeadersDraft11 || f.Send == HeadersNone) {
		return invalid.New("middleware", "%v excludes the legacy fields, which Headers.Prefix and Delta change", invalid.Name("Headers.Send"))
	}
	if len(f.Prefix) > most || strings.ContainsFunc(f.Prefix, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-')
	}) {
		return invalid.New("middleware", "%v is %.64q: it must be up to 64 letters, digits and -", invalid.Name("Headers.Prefix"), f.Prefix)
	}
	// X-Rate-Limit is a prefix, and X-Rate-Limit-Limit the name of a field.
	name := strings.ToLower(f.Prefix)
	whole, isLimit := strings.CutSuffix(name, "-limit")
	if isLimit && strings.HasSuffix(whole, "limit") || strings.HasSuffix(name, "-remaining") || strings.HasSuffix(name, "-reset") {
		return invalid.New("middleware", "%v is %q, a whole field name: it must be the prefix of the three names, such as %q",
			invalid.Name("Headers.Prefix"), f.Prefix, f.Prefix[:strings.LastIndexByte(f.Prefix, '-')])
	}
	return nil
}

// names returns the names of the three fields, in canonical form.
func (f Headers) names() (limit, remaining, reset string) {
	if f.Prefix == "" {
		return fieldLimit, fieldRemaining, fieldReset
	}
	name := func(end string) string { return http.CanonicalHeaderKey(f.Prefix + end) }
	return name("-Limit"), name("-Remaining"), name("-Reset")
}

// The fields' names in net/http's canonical form, under which Header.Get finds them.
const (
	fieldLimit     = "X-Ratelimit-Limit"
	fieldRemaining = "X-Ratelimit-Remaining"
	fieldReset     = "X-Ratelimit-Reset"
	fieldPolicy    = "Ratelimit-Policy"
	fieldRateLimit = "Ratelimit"
	fieldWarning   = "X-Ratelimit-Warning"
)

// concurrentUnit ends the member of AtOnce: "exports";q=5;qu="concurrent-requests".
const concurrentUnit = `;qu="concurrent-requests"`

// appendMember appends a member of the RateLimit list, such as "ip";r=99;t=13, and returns the text of r.
// The draft's t is the time until the next unit comes. Retry-After must not be shorter than t, so in a
// refusal only the rules that refused have t.
func (e *entry) appendMember(b []byte, allowed bool) (_ []byte, remaining string) {
	b = append(append(b, e.name...), ";r="...)
	from := len(b)
	b = strconv.AppendInt(b, e.Remaining, 10)
	remaining = textOf(b[from:])
	if e.NextAfter > 0 && e.Allowed == allowed && !e.isSlot() { // for slots it is a guess
		b = strconv.AppendInt(append(b, ";t="...), secondsUp(e.NextAfter), 10)
	}
	return b, remaining
}

// limitText and member return the texts of the policy or, during an outage, of its share in this process.
func (e *entry) limitText() string {
	if e.Window == 0 {
		return e.policy.limit
	}
	return strconv.FormatInt(e.Limit, 10)
}

func (e *entry) member() string {
	switch {
	case e.isSlot() && e.Limit != e.quota.Capacity():
		return memberOf(e.name, e.Limit, 0) + concurrentUnit
	case e.Window == 0 && e.isCalendar:
		return memberOf(e.name, e.quota.Capacity(), windowAt(e.quota, e.Receipt.At))
	case e.Window == 0:
		return e.policy.member
	}
	return memberOf(e.name, e.Limit, e.Window)
}

// memberOf returns a member of the RateLimit-Policy list: "ip";q=100;w=60.
func memberOf(name string, limit int64, window time.Duration) string {
	member := strconv.AppendInt([]byte(name+";q="), limit, 10)
	if window >= time.Second { // the draft knows no shorter window
		member = strconv.AppendInt(append(member, ";w="...), secondsUp(window), 10)
	}
	return string(member)
}

// fields has the values of one response's header fields, in the order of writeFields, and their text. They
// are never shared between responses: others may append to them or overwrite them.
type fields struct {
	values [5]string
	text   [48]byte // makes a passed 632 bytes; with more it would take 704 instead of 640
}

// writeFields sets the fields of this limiter and those further out. It appends their text to text, and
// returns it.
func (s *decided) writeFields(h http.Header, set *ruleset, values *[5]string, text []byte) []byte {
	which := set.Headers.Send
	if which == HeadersNone {
		return text
	}
	var space [fewRules]entry
	list := s.entries(space[:0])
	for i := len(list) - 1; i >= 0; i-- {
		if !list[i].Counted() { // it has no numbers
			list = slices.Delete(list, i, i+1)
		}
	}
	if len(list) == 0 {
		return text // nothing was counted, or only by rules in shadow
	}
	writeWarning(h, list)
	if len(list) > 1 && !s.isAllowed() {
		// The rules that refused come first. A sort by package slices would add 9 KB to every program.
		for i := range list {
			for ; i > 0 && refusedFirst(&list[i]) < refusedFirst(&list[i-1]); i-- {
				list[i], list[i-1] = list[i-1], list[i]
			}
		}
	}
	strictest, remaining := strictestRate(list), ""
	if which != HeadersLegacy {
		values[3] = list[0].member()
		if len(list) > 1 {
			if room := 48 * len(list); cap(text)-len(text) < room {
				text = make([]byte, 0, room) // enough for most
			}
			from := len(text)
			for i := range list {
				text = append(appendComma(text, i), list[i].member()...)
			}
			values[3] = textOf(text[from:])
		}
		from := len(text)
		for i := range list {
			var r string
			if text, r = list[i].appendMember(appendComma(text, i), s.isAllowed()); &list[i] == strictest {
				remaining = r
			}
		}
		values[4] = textOf(text[from:])
		s.writeList(h, fieldPolicy, values, 3)
		s.writeList(h, fieldRateLimit, values, 4)
	}
	if which != HeadersDraft11 && strictest != nil {
		from := len(text)
		if remaining == "" {
			text = strconv.AppendInt(text, strictest.Remaining, 10)
			remaining = textOf(text[from:])
			from = len(text)
		}
		reset := secondsUp(strictest.ResetAfter)
		if !set.Headers.Delta {
			reset = (time.Now().Add(strictest.ResetAfter-s.delay()).UnixMicro() + 999_999) / 1_000_000 // the request has waited since the decision
		}
		text = strconv.AppendInt(text, reset, 10)
		values[0], values[1], values[2] = strictest.limitText(), remaining, textOf(text[from:])
		h[set.limitField] = values[0:1:1]
		h[set.remainingField] = values[1:2:2]
		h[set.resetField] = values[2:3:3]
	}
	return text
}

// strictestRate returns the strictest entry without slots, for the legacy fields: they say when all units
// are back, which is unknown for slots.
func strictestRate(list []entry) (strictest *entry) {
	for i := range list {
		if e := &list[i]; !e.isSlot() && (strictest == nil || e.stricter(strictest)) {
			strictest = e
		}
	}
	return strictest
}

// writeWarning lists the rules that have reached SoftAt, as in the RateLimit field: "search";r=3;q=30. It
// replaces the list of a limiter further out.
func writeWarning(h http.Header, list []entry) {
	var text []byte
	for i := range list {
		e := &list[i]
		if !e.isNear() {
			continue
		}
		text = append(appendComma(text, len(text)), e.name...)
		text = strconv.AppendInt(append(text, ";r="...), e.Remaining, 10)
		text = strconv.AppendInt(append(text, ";q="...), e.Limit, 10)
	}
	if text != nil {
		h[fieldWarning] = []string{textOf(text)}
	}
}

// textOf returns b as a string, without a copy. Nothing may write to b any more.
func textOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// writeList sets a list field to this limiter's value. It includes the members of the outer limiters, so it
// replaces their value. Values that others have set stay.
func (s *decided) writeList(h http.Header, field string, values *[5]string, i int) {
	ours := values[i : i+1 : i+1]
	present := h[field]
	if len(present) == 0 {
		h[field] = ours
		return
	}
	for outer := s.outer; outer != nil; outer = outer.outer {
		if at := slices.Index(present, outer.values[i]); at >= 0 && outer.values[i] != "" {
			replaced := slices.Clone(present)
			replaced[at] = ours[0]
			h[field] = replaced
			return
		}
	}
	h[field] = append(present[:len(present):len(present)], ours[0])
}

func refusedFirst(e *entry) int {
	if e.Allowed {
		return 1
	}
	return 0
}

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
