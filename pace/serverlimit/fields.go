package serverlimit

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A kind is what a field is about.
type kind uint8

const (
	nothing kind = iota
	limit
	remaining
	reset
	window
	wait
	retry
	name   // of the quota that fields without a quota's name are about
	used   // 32/40: used, of the limit
	list   // RateLimit
	policy // RateLimit-Policy
)

// A meaning is what a field's name says.
type meaning struct {
	kind   kind
	prefix string // fields with different ones are about different quotas
	quota  string // in lower case, and empty where the field names none
	unit   time.Duration
}

// special are the fields whose name does not show their meaning.
var special = map[string]meaning{
	"Retry-After":                   {kind: wait, unit: time.Second},
	"Retry-After-Ms":                {kind: wait, unit: time.Millisecond},
	"X-Ms-Retry-After-Ms":           {kind: wait, unit: time.Millisecond},
	"X-Should-Retry":                {kind: retry},
	"Stripe-Should-Retry":           {kind: retry},
	"Stripe-Rate-Limited-Reason":    {kind: name},
	"X-Shopify-Shop-Api-Call-Limit": {kind: used},
	"X-Amzn-Ratelimit-Limit":        {kind: nothing}, // a rate per second, not a quota
}

// words are what fields say after "RateLimit-" or "Quota-". The first word that is known counts.
var words = map[string]kind{
	"Limit": limit, "Max": limit, "Remaining": remaining,
	"Reset": reset, "Resettime": reset, "Next": reset,
	"Interval": window, "Period": window, "Window": window,
	"Bucket": name, "Resource": name, "Name": name, "Reason": name,
	"Policy": policy, "Retry": wait,
}

// resetWords are words of a field with a time that name no quota.
var resetWords = map[string]bool{
	"After": true, "At": true, "Date": true, "Epoch": true, "In": true, "On": true, "Seconds": true, "Time": true, "Timestamp": true, "Until": true, "Utc": true,
}

// periods are names of quotas that are periods, and last words of others.
var periods = map[string]time.Duration{
	"second": time.Second, "secondly": time.Second, "minute": time.Minute, "hour": time.Hour,
	"hourly": time.Hour, "day": 24 * time.Hour, "daily": 24 * time.Hour,
	"week": 7 * 24 * time.Hour, "weekly": 7 * 24 * time.Hour, "month": 31 * 24 * time.Hour, "monthly": 31 * 24 * time.Hour,
}

// windowOf returns the period that a quota's name ends with, as in minute, tokens-minute and
// requests-5-minute; or 0.
func windowOf(quota string) time.Duration {
	rest, last := "", quota
	if i := strings.LastIndexByte(quota, '-'); i >= 0 {
		rest, last = quota[:i], quota[i+1:]
	}
	window := periods[last]
	if n := readCount(rest[strings.LastIndexByte(rest, '-')+1:]); n > 0 && window > 0 && n <= int64(year/window) {
		return time.Duration(n) * window
	}
	return window
}

// fieldsOf returns the names of the fields that may be about limits, sorted, so that a reading does
// not depend on the order of a map.
func fieldsOf(h http.Header) (fields []string) {
	for field := range h {
		if len(field) <= maxName && mayTell(field) {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields
}

// mayTell reports whether a field may be about limits, as few are.
func mayTell(field string) bool {
	return strings.Contains(field, "Rate") || strings.Contains(field, "Retry") || strings.Contains(field, "Quota-") ||
		strings.HasSuffix(field, "-Call-Limit")
}

// announcements begin fields about quotas that a server announces before they are in force.
var announcements = []string{"Beta-", "Preview-", "Report-Only-"}

// isAnnounced reports whether a field is about a quota that is not in force, unless a request was refused.
func isAnnounced(field string) bool {
	return slices.ContainsFunc(announcements, func(begin string) bool {
		return strings.HasPrefix(strings.TrimPrefix(field, "X-"), begin)
	})
}

// roots are what names of fields about limits have in them, the first that is found.
var roots = []string{"Ratelimit", "Rate-Limit", quotaRoot}

const quotaRoot = "Quota"

// meaningOf reads a field's name, in net/http's canonical form.
func meaningOf(field string) meaning {
	if m, ok := special[field]; ok {
		return m
	}
	prefix, rest, root, found := "", "", "", false
	for _, root = range roots {
		if prefix, rest, found = strings.Cut(field, root); found {
			break
		}
	}
	isQuota := root == quotaRoot
	if !found || prefix != "" && !strings.HasSuffix(prefix, "-") || rest == "" && isQuota || rest != "" && rest[0] != '-' {
		return meaning{}
	}
	m := meaning{prefix: strings.TrimPrefix(prefix, "X-"), unit: time.Second}
	if isQuota {
		m.prefix += root // a server may send X-RateLimit-Limit too, of another quota
	}
	if rest == "" {
		m.kind = list
		return m
	}
	for rest := rest[1:]; rest != ""; {
		var word string
		word, rest, _ = strings.Cut(rest, "-")
		switch k := words[word]; {
		case m.kind == nothing && k != nothing:
			m.kind = k
		case resetWords[word] && (m.kind == reset || m.kind == wait), word == "Seconds" && m.kind == window:
		case word == "Ms", word == "Milliseconds":
			m.unit = time.Millisecond
		case m.quota == "":
			m.quota = word
		default:
			m.quota += "-" + word
		}
	}
	switch {
	case isQuota && m.kind == policy:
		return meaning{}
	case m.kind != nothing:
	case windowOf(strings.ToLower(m.quota)) > 0:
		m.kind = limit // HubSpot's X-HubSpot-RateLimit-Daily: 250000
	default:
		return meaning{}
	}
	m.quota = strings.ToLower(m.quota)
	return m
}

// A collector puts together what the fields of a response say.
type collector struct {
	clock clock
	slots [maxQuotas]slot
	n     int
	wait  span
	retry Retry
}

// A slot holds a quota, by the prefix of its fields and its name.
type slot struct {
	Quota
	prefix string
	called string // what another field says of the quota without a name
	listed bool   // by RateLimit or RateLimit-Policy
	reset  bool   // a field says when more remains; Reset is 0 if that is now
	again  bool   // another is the same
}

// readAll reads the fields of the clock's header.
func (c *collector) readAll(fields []string) {
	policies := fields[:0]
	for _, field := range fields {
		switch m := meaningOf(field); m.kind {
		case nothing:
		case policy:
			policies = append(policies, field) // they add to the quotas of other fields
		default:
			c.read(m, c.clock.header[field])
		}
	}
	for _, field := range policies {
		c.read(meaningOf(field), c.clock.header[field])
	}
}

// read reads the lines of a field. There are bounds, as reading the 10 MiB that net/http lets a
// server send would take a second.
func (c *collector) read(m meaning, lines []string) {
	for _, line := range lines[:min(len(lines), maxLines)] {
		if len(line) <= maxLine {
			c.readLine(m, line)
		}
	}
}

func (c *collector) readLine(m meaning, line string) {
	s := slot{Quota: unsaid(m.quota), prefix: m.prefix}
	q := &s.Quota
	switch m.kind {
	case list:
		c.readList(m.prefix, line)
		return
	case policy:
		c.readPolicy(m.prefix, line)
		return
	case retry:
		switch {
		case strings.EqualFold(line, "false"):
			c.retry = RetryNo
		case strings.EqualFold(line, "true"):
			c.retry = max(c.retry, RetryYes)
		}
		return
	case wait:
		if s, ok := c.clock.read(line, m.unit); ok {
			c.wait = agree(c.wait, s)
		}
		return
	case name:
		c.call(m.prefix, line)
		return
	case limit:
		q.Limit, q.Window = readLimit(line)
	case remaining:
		q.Remaining = readCounts(line)
	case used:
		spent, of, _ := strings.Cut(line, "/")
		if n, all := readCount(spent), readCount(of); n != Unsaid && all != Unsaid {
			q.Limit, q.Remaining = all, max(0, all-n)
		}
	case reset:
		if t, ok := c.clock.read(line, m.unit); ok {
			s.setReset(t)
		}
	case window:
		if s, ok := c.clock.read(line, m.unit); ok && s.d <= year {
			q.Window = s.d
		}
	}
	c.add(&s)
}

// setReset ignores a time above a year. A time that has passed is now.
func (s *slot) setReset(t span) {
	if s.reset = t.d <= year; s.reset && t.d > 0 {
		s.Reset, s.Unsure = t.d, t.step
	}
}

// call names the quota that fields with the prefix are about. The name that is read first stays.
func (c *collector) call(prefix, called string) {
	if called != "" {
		c.add(&slot{Quota: unsaid(""), prefix: prefix, called: called[:min(len(called), maxName)]})
	}
}

// add joins what a field says about a quota with what other fields said.
func (c *collector) add(s *slot) {
	if s.Quota == unsaid(s.Name) && s.called == "" && !s.reset {
		return
	}
	i := c.find(s.prefix, s.Name)
	switch {
	case i < 0 && c.n < maxQuotas:
		c.slots[c.n] = *s
		c.n++
		return
	case i < 0:
		i = c.n - 1 // one too many: that it is used up must not be lost
	}
	known := &c.slots[i]
	known.join(s.Quota)
	known.listed = known.listed || s.listed
	known.reset = known.reset || s.reset
	if known.called == "" {
		known.called = s.called
	}
}

func (c *collector) find(prefix, name string) int {
	return slices.IndexFunc(c.slots[:c.n], func(s slot) bool { return s.prefix == prefix && s.Name == name })
}

// join makes q the safe reading of both.
func (q *Quota) join(other Quota) {
	q.Limit = least(q.Limit, other.Limit)
	q.Remaining = least(q.Remaining, other.Remaining)
	q.Window = max(q.Window, other.Window)
	s := agree(span{q.Reset, q.Unsure}, span{other.Reset, other.Unsure})
	q.Reset, q.Unsure = s.d, s.step
	if q.Unit == "" {
		q.Unit = other.Unit
	}
}

// least is the lesser of two counts. Unsaid counts do not matter.
func least(a, b int64) int64 {
	if a == Unsaid || b == Unsaid {
		return max(a, b)
	}
	return min(a, b)
}

// finish returns the quotas, the closest to being used up first.
func (c *collector) finish() []slot {
	for i := range c.n {
		s := &c.slots[i]
		if s.Quota != unsaid(s.Name) {
			s.Window = cmp.Or(s.Window, windowOf(s.Name))
			s.Unit = cmp.Or(s.Unit, unitOf(s.Name))
		}
		s.again = c.isAgain(s)
	}
	for i := range c.n {
		if s := &c.slots[i]; s.Remaining == 0 && !s.reset && s.Unit != inFlight {
			c.guessReset(s)
		}
	}
	quotas := slices.DeleteFunc(c.slots[:c.n], func(s slot) bool { return s.again || s.called == "" && s.Quota == unsaid(s.Name) })
	for i := range quotas {
		q := &quotas[i]
		if q.Name == "" {
			q.Name = q.called
		}
		if q.Remaining > q.Limit {
			q.Limit = Unsaid // it is another quota's limit, or was misread
		}
		if q.Unit == "" {
			q.Unit = unitOf(q.Name)
		}
	}
	if len(quotas) > 1 {
		slices.SortStableFunc(quotas, closestFirst)
	}
	return quotas
}

// guessReset sets when more remains of a used-up quota, if no field with its name says so: at the reset
// without a name, or when its window is over, if that is sooner. If both are missing, it is the latest reset
// or the longest window among those with a name that no remaining count has.
func (c *collector) guessReset(s *slot) {
	var latest span
	for i := range c.n {
		other := &c.slots[i]
		switch {
		case other.prefix != s.prefix || other == s:
		case other.Name == "" && (other.Reset > 0 || other.reset && other.Remaining == 0):
			s.Reset, s.Unsure = other.Reset, other.Unsure
			if s.Window > 0 && s.Window < s.Reset {
				s.Reset, s.Unsure = s.Window, 0
			}
			return
		case other.Remaining != Unsaid || other.Limit != Unsaid && s.Limit != Unsaid && other.Limit != s.Limit:
		case other.reset:
			latest = agree(latest, span{other.Reset, other.Unsure})
		case other.listed:
			latest = agree(latest, span{other.Window, 0})
		}
	}
	if s.Window > 0 {
		latest = span{s.Window, 0}
	}
	s.Reset, s.Unsure = latest.d, latest.step
}

// isAgain reports whether a quota without a name repeats another one: either it only names another
// quota with its prefix, or RateLimit lists a quota with the same limit and remaining count.
func (c *collector) isAgain(s *slot) bool {
	if s.Name != "" {
		return false
	}
	return slices.ContainsFunc(c.slots[:c.n], func(other slot) bool {
		if s.Quota == unsaid("") {
			return other.prefix == s.prefix && other.Quota != s.Quota
		}
		return other.listed && s.called == "" && s.Limit != Unsaid && s.Remaining != Unsaid && other.Limit == s.Limit && other.Remaining == s.Remaining
	})
}

// inFlight is the unit of a quota that is free again when a request ends.
const inFlight = "concurrent-requests"

func unitOf(quota string) string {
	switch {
	case strings.Contains(quota, "concurren"):
		return inFlight
	case strings.Contains(quota, "token"):
		return "tokens"
	case strings.Contains(quota, "request"):
		return "requests"
	}
	return ""
}
