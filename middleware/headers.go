package middleware

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/limiter"
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
func (f Headers) names() [3]string {
	name := func(end string) string { return http.CanonicalHeaderKey(cmp.Or(f.Prefix, "X-RateLimit") + end) }
	return [3]string{name("-Limit"), name("-Remaining"), name("-Reset")}
}

// The fields' names in net/http's canonical form, under which Header.Get finds them.
const (
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
			for ; i > 0 && !list[i].Allowed && list[i-1].Allowed; i-- {
				list[i], list[i-1] = list[i-1], list[i]
			}
		}
	}
	strict, remaining := strictest(list, false), ""
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
			if text, r = list[i].appendMember(appendComma(text, i), s.isAllowed()); &list[i] == strict {
				remaining = r
			}
		}
		values[4] = textOf(text[from:])
		s.writeList(h, fieldPolicy, values, 3)
		s.writeList(h, fieldRateLimit, values, 4)
	}
	if which != HeadersDraft11 && strict != nil {
		from := len(text)
		if remaining == "" {
			text = strconv.AppendInt(text, strict.Remaining, 10)
			remaining = textOf(text[from:])
			from = len(text)
		}
		reset := secondsUp(strict.ResetAfter)
		if !set.Headers.Delta {
			reset = (time.Now().Add(strict.ResetAfter-s.delay()).UnixMicro() + 999_999) / 1_000_000 // the request has waited since the decision
		}
		text = strconv.AppendInt(text, reset, 10)
		values[0], values[1], values[2] = strict.limitText(), remaining, textOf(text[from:])
		for i, field := range set.legacyFields {
			h[field] = values[i : i+1 : i+1]
		}
	}
	return text
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

// An entry is the decision of one policy. It is a copy, as a list of pointers would escape to the heap.
type entry struct {
	applied
	limiter.Decision
}

// isNear reports whether the rule has reached its SoftAt.
func (e *entry) isNear() bool {
	softAt := e.softAt
	// During an outage the limit is a share of the policy's. It is at most 10^12.
	return softAt > 0 && e.Counted() && e.Remaining <= e.Limit*(100-softAt)/100
}

// entries appends the entries of all limiters so far to list, those of outer limiters first, without
// rules in shadow. If two entries have the same name, the stricter one replaces the first.
func (s *decided) entries(list []entry) []entry {
	if n := len(list) + len(s.policies); n > cap(list) {
		list = append(make([]entry, 0, n), list...)
	}
	if s.outer != nil {
		list = s.outer.entries(list)
	}
	for i := range s.policies {
		if p := &s.policies[i]; !p.shadow && !p.ofValue {
			list = merge(list, entry{*p, s.decisions[i]})
		}
	}
	return list
}

func merge(list []entry, e entry) []entry {
	for i := range list {
		if list[i].name == e.name {
			if e.stricter(&list[i]) {
				list[i] = e
			}
			return list
		}
	}
	return append(list, e)
}

// stricter reports whether e matters more to the client: an entry that refuses wins, though the other
// may have fewer units left, and then the tighter one.
func (e *entry) stricter(than *entry) bool {
	if e.Allowed != than.Allowed {
		return !e.Allowed
	}
	return e.IsTighterThan(&than.Decision)
}

// strictest returns the strictest entry, of slots only if the caller wants these: they do not say when all
// units are back. It returns nil if there is none.
func strictest(list []entry, slots bool) (found *entry) {
	for i := range list {
		if e := &list[i]; (slots || !e.isSlot()) && (found == nil || e.stricter(found)) {
			found = e
		}
	}
	return found
}
