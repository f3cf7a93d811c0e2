package serverlimit

import (
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

// words are what fields say after "RateLimit-". The first word that is known counts.
var words = map[string]kind{
	"Limit": limit, "Max": limit, "Remaining": remaining,
	"Reset": reset, "Resettime": reset, "Next": reset,
	"Interval": window, "Period": window, "Window": window,
	"Bucket": name, "Resource": name, "Name": name, "Reason": name,
	"Policy": policy, "Retry": wait,
}

// periods are names of quotas that are periods.
var periods = map[string]time.Duration{
	"second": time.Second, "secondly": time.Second, "minute": time.Minute, "hour": time.Hour,
	"hourly": time.Hour, "day": 24 * time.Hour, "daily": 24 * time.Hour,
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
	return strings.Contains(field, "Rate") || strings.Contains(field, "Retry") || strings.HasSuffix(field, "-Call-Limit")
}

// meaningOf reads a field's name, in net/http's canonical form.
func meaningOf(field string) meaning {
	if m, ok := special[field]; ok {
		return m
	}
	prefix, rest, ok := strings.Cut(field, "Ratelimit")
	if !ok {
		prefix, rest, ok = strings.Cut(field, "Rate-Limit")
	}
	if !ok || prefix != "" && !strings.HasSuffix(prefix, "-") || rest != "" && rest[0] != '-' {
		return meaning{}
	}
	m := meaning{prefix: strings.TrimPrefix(prefix, "X-"), unit: time.Second}
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
		case word == "After" && (m.kind == reset || m.kind == wait), word == "Seconds" && m.kind == window:
		case word == "Ms", word == "Milliseconds":
			m.unit = time.Millisecond
		case m.quota == "":
			m.quota = word
		default:
			m.quota += "-" + word
		}
	}
	switch {
	case m.kind != nothing:
	case periods[strings.ToLower(m.quota)] > 0:
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
	q := unsaid(m.quota)
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
		s, _ := c.clock.read(line, m.unit)
		q.setReset(s)
	case window:
		if s, ok := c.clock.read(line, m.unit); ok && s.d <= year {
			q.Window = s.d
		}
	}
	c.add(&slot{Quota: q, prefix: m.prefix})
}

// setReset ignores a time above a year, and one that has passed.
func (q *Quota) setReset(s span) {
	if s.d > 0 && s.d <= year {
		q.Reset, q.Unsure = s.d, s.step
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
	if s.Quota == unsaid(s.Name) && s.called == "" {
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
		s.again = c.isAgain(s)
	}
	quotas := slices.DeleteFunc(c.slots[:c.n], func(s slot) bool { return s.again })
	for i := range quotas {
		q := &quotas[i]
		if q.Name == "" {
			q.Name = q.called
		}
		if q.Remaining > q.Limit {
			q.Limit = Unsaid // it is another quota's limit, or was misread
		}
		if q.Window == 0 && !q.listed {
			q.Window = periods[q.Name]
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

func unitOf(quota string) string {
	switch {
	case strings.Contains(quota, "token"):
		return "tokens"
	case strings.Contains(quota, "request"):
		return "requests"
	}
	return ""
}
