package accesslog

import (
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A slot is what a value of a line is for.
type slot struct {
	field  field
	header int           // of Options.Headers, for fieldHeader
	unit   time.Duration // of a number; 0: a text says its own
	coded  coding
}

// A coding is how a text is written where it could end a value.
type coding uint8

const (
	plain   coding = iota
	percent        // %20 is a space
	plus           // and so is +
)

// A field is what a log may say about a request.
type field uint8

const (
	fieldNone field = iota
	fieldTime
	fieldDate  // of a time that is in two parts
	fieldClock // the other
	fieldTook
	fieldClient
	fieldForwardedFor
	fieldLastForwarded // the last address of X-Forwarded-For, which the proxy itself appended
	fieldMethod
	fieldTarget
	fieldQuery   // of a target that is in two parts
	fieldRequest // method, target and protocol
	fieldHost
	fieldUserAgent
	fieldUser
	fieldTier
	fieldStatus
	fieldHeader
)

// fieldNames are what fields are called where a user says where they are.
var fieldNames = map[string]field{
	"time": fieldTime, "took": fieldTook, "client": fieldClient, "method": fieldMethod, "target": fieldTarget,
	"request": fieldRequest, "host": fieldHost, "status": fieldStatus, "user": fieldUser, "tier": fieldTier,
}

// A scanner reads values into entries. It remembers what is costly to read again.
type scanner struct {
	slots   []slot
	headers int // how many an entry has

	whole bool  // the entry's time has whole seconds
	parts uint8 // of the entry's time that were read, if it is in parts

	date struct {
		text string // 17/May/2015 or 2015-05-17
		unix int64
	}
	zone struct {
		text   string
		offset int64
	}
}

// put reads a value into e, and returns what is wrong with it, or nothing.
func (s *scanner) put(e *Entry, to slot, value string) (wrong string) {
	switch to.field {
	case fieldTime:
		micros, whole, ok := s.time(value)
		if !ok {
			return "is no time that is read here"
		}
		if micros < 0 || micros > latest {
			return outOfRange
		}
		e.At, s.whole = micros, whole
	case fieldDate:
		day, err := s.day(value)
		if err != nil || day < 0 {
			return "is no date that is read here"
		}
		e.At += day * 1_000_000
		s.parts |= datePart
	case fieldClock:
		seconds, ok := int64(0), false
		if len(value) == len("10:05:03") {
			seconds, ok = clock(value)
		}
		if !ok {
			return "is no time of the day that is read here"
		}
		e.At += seconds * 1_000_000
		s.parts |= clockPart
		s.whole = true
	case fieldTook:
		took, ok := duration(value, to.unit)
		if _, err := strconv.ParseFloat(value, 64); !ok && err == nil && to.unit == 0 {
			return "is a number without a unit: say took_s, took_ms, took_us or took_ns in place of took"
		}
		if !ok {
			return "is no duration that is read here"
		}
		e.Took += took
	case fieldClient:
		client, ok := addressOf(value)
		if !ok {
			return "is no address"
		}
		e.Client = client
	case fieldForwardedFor:
		e.ForwardedFor = to.coded.decode(value)
	case fieldLastForwarded:
		last := strings.TrimSpace(value[strings.LastIndexByte(value, ',')+1:])
		client, ok := addressOf(last)
		if !ok || client == UnixSocket {
			return "does not end with an address"
		}
		e.Client, e.ForwardedFor = client, value
	case fieldMethod:
		e.Method = value
	case fieldTarget:
		if strings.HasPrefix(e.Target, "?") { // the query came before it
			value += e.Target
		}
		e.Target = value
	case fieldQuery:
		e.Target += "?" + value
	case fieldRequest:
		method, rest, _ := strings.Cut(value, " ")
		target, ok := rest, false
		if space := strings.LastIndexByte(rest, ' '); space > 0 {
			target, ok = rest[:space], strings.HasPrefix(rest[space+1:], "HTTP/")
		}
		if !ok || method == "" {
			return "is no request line"
		}
		e.Method, e.Target = method, target
	case fieldHost:
		e.Host = value
	case fieldUserAgent:
		e.UserAgent = to.coded.decode(value)
	case fieldUser:
		e.User = value
	case fieldTier:
		e.Tier = value
	case fieldStatus:
		status, err := strconv.Atoi(value)
		if err != nil || status < 0 || status > 999 {
			return "is no status"
		}
		e.Status = status
	case fieldHeader:
		if e.Headers == nil {
			e.Headers = make([]string, s.headers)
		}
		e.Headers[to.header] = to.coded.decode(value)
	}
	return ""
}

// The parts of a time.
const (
	datePart = 1 << iota
	clockPart
)

// decode is a value as it was before it was written. What is no code stays as it is.
func (c coding) decode(value string) string {
	decoded, err := value, error(nil)
	switch {
	case c == percent && strings.IndexByte(value, '%') >= 0:
		decoded, err = url.PathUnescape(value)
	case c == plus && strings.ContainsAny(value, "%+"):
		decoded, err = url.QueryUnescape(value)
	}
	if err != nil {
		return value
	}
	return decoded
}

// latest is beyond what stores count with, 2^53 microseconds since 1970.
const latest = 1<<53 - 1

const outOfRange = "is a time out of range: it must be from 1970 to 2255"

// time reads a time as logs spell it: 17/May/2015:10:05:03 +0000, RFC 3339, or a number of
// seconds, milliseconds, microseconds or nanoseconds since 1970, whichever its size says.
func (s *scanner) time(text string) (micros int64, whole, ok bool) {
	switch {
	case len(text) == len("17/May/2015:10:05:03 +0000") && text[2] == '/' && text[11] == ':':
		return s.common(text)
	case len(text) >= len("2015-05-17T10:05:03Z") && text[4] == '-':
		return s.rfc3339(text)
	case len(text) == len("2015/05/17 10:05:03.123") && text[4] == '/': // as Go's programs write it, which is UTC of Caddy's
		return s.rfc3339(text[:4] + "-" + text[5:7] + "-" + text[8:] + "Z")
	}
	return epoch(text)
}

func (s *scanner) common(text string) (micros int64, whole, ok bool) {
	if date := text[:11]; date != s.date.text {
		day, err := time.Parse("02/Jan/2006", date)
		if err != nil {
			return 0, false, false
		}
		s.date.text, s.date.unix = strings.Clone(date), day.Unix()
	}
	if text[20] != ' ' {
		return 0, false, false
	}
	clock, ok := clock(text[12:20])
	offset, known := s.offset(text[21:])
	return (s.date.unix + clock - offset) * 1_000_000, true, ok && known
}

func (s *scanner) rfc3339(text string) (micros int64, whole, ok bool) {
	if text[10] != 'T' && text[10] != ' ' {
		return 0, false, false
	}
	day, err := s.day(text[:10])
	if err != nil {
		return 0, false, false
	}
	clock, ok := clock(text[11:19])
	rest, whole := text[19:], true
	if rest != "" && (rest[0] == '.' || rest[0] == ',') {
		end := 1
		for scale := int64(100_000); end < len(rest) && rest[end]-'0' <= 9; end++ {
			micros += int64(rest[end]-'0') * scale
			scale /= 10
		}
		rest, whole = rest[end:], end == 1
	}
	offset := int64(0)
	if rest != "Z" {
		var known bool
		offset, known = s.offset(rest)
		ok = ok && known
	}
	return (day+clock-offset)*1_000_000 + micros, whole, ok
}

// day reads 2015-05-17.
func (s *scanner) day(text string) (unix int64, err error) {
	if text != s.date.text {
		day, err := time.Parse(time.DateOnly, text)
		if err != nil {
			return 0, err
		}
		s.date.text, s.date.unix = strings.Clone(text), day.Unix()
	}
	return s.date.unix, nil
}

// clock reads 10:05:03. A leap second is the one after it.
func clock(text string) (seconds int64, ok bool) {
	var digits [8]int64
	for i := range 8 {
		digits[i] = int64(text[i]) - '0'
		if isColon := i == 2 || i == 5; isColon && text[i] != ':' || !isColon && (digits[i] < 0 || digits[i] > 9) {
			return 0, false
		}
	}
	h, m, sec := digits[0]*10+digits[1], digits[3]*10+digits[4], digits[6]*10+digits[7]
	return h*3600 + m*60 + sec, h < 24 && m < 60 && sec <= 60
}

// offset reads +0200 or +02:00.
func (s *scanner) offset(text string) (seconds int64, ok bool) {
	if text == s.zone.text && text != "" {
		return s.zone.offset, true
	}
	layout := "-0700"
	if len(text) == len("-07:00") {
		layout = "-07:00"
	}
	at, err := time.Parse(layout, text)
	if err != nil {
		return 0, false
	}
	_, east := at.Zone()
	s.zone.text, s.zone.offset = strings.Clone(text), int64(east)
	return s.zone.offset, true
}

// epoch reads a number such as 1431857103.123.
func epoch(text string) (micros int64, whole, ok bool) {
	units, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(units, 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(text, 64) // as in 1.431857103123e9
		if err != nil || !(math.Abs(f) < 1e15) {
			return 0, false, false
		}
		return int64(math.Round(f * 1e6)), false, true
	}
	switch {
	case n < 1e11: // seconds, until the year 5138
		scale := int64(100_000)
		for i := range len(fraction) {
			if fraction[i]-'0' > 9 {
				return 0, false, false
			}
			micros += int64(fraction[i]-'0') * scale
			scale /= 10
		}
		return n*1_000_000 + micros, fraction == "", true
	case n < 1e14:
		return n * 1000, false, true
	case n < 1e17:
		return n, false, true
	}
	return n / 1000, false, true
}

// duration reads a number of units, or a text such as 12ms. A negative one, which ALB writes
// where there is none, is 0.
func duration(text string, unit time.Duration) (time.Duration, bool) {
	if unit != 0 {
		if d, ok := decimal(text, unit); ok {
			return d, true
		}
		if n, err := strconv.ParseFloat(text, 64); err == nil && n < float64(longest/unit) {
			return time.Duration(math.Round(max(0, n) * float64(unit))), true
		}
	}
	d, err := time.ParseDuration(text)
	return max(0, d), err == nil && d < longest
}

// decimal reads a number such as 0.012 of a unit that is a power of ten of nanoseconds, if it has
// no more digits than that and is no longer than most.
func decimal(text string, unit time.Duration) (d time.Duration, ok bool) {
	whole, fraction, hasFraction := strings.Cut(text, ".")
	if whole == "" || len(whole) > 9 || hasFraction && fraction == "" {
		return 0, false
	}
	for i := range len(whole) {
		if whole[i]-'0' > 9 {
			return 0, false
		}
		d = d*10 + time.Duration(whole[i]-'0')
	}
	if d >= longest/unit {
		return 0, false
	}
	d *= unit
	for i := range len(fraction) {
		if unit /= 10; unit == 0 || fraction[i]-'0' > 9 {
			return 0, false
		}
		d += time.Duration(fraction[i]-'0') * unit
	}
	return d, true
}

const longest = 366 * 24 * time.Hour

// UnixSocket is the Client of a request that came over a unix socket.
const UnixSocket = "@"

// addressOf is an address without its port.
func addressOf(text string) (string, bool) {
	if isIPv4(text) {
		return text, true
	}
	if text == "unix:" || text == "@" {
		return UnixSocket, true
	}
	if at, err := netip.ParseAddr(text); err == nil {
		return text, at.Zone() == ""
	}
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().String(), true
	}
	return "", false
}

// isIPv4 knows what is by far the most of what logs have.
func isIPv4(s string) bool {
	dots, n, digits := 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c-'0' <= 9:
			n = n*10 + int(c-'0')
			digits++
			if leadingZero := digits == 2 && n < 10 || digits == 3 && n < 100; digits > 3 || n > 255 || leadingZero {
				return false
			}
		case c == '.' && digits > 0:
			dots, n, digits = dots+1, 0, 0
		default:
			return false
		}
	}
	return dots == 3 && digits > 0
}

// URL writes the target into u as a server reads it.
func (e *Entry) URL(u *url.URL) {
	path, query, _ := strings.Cut(e.Target, "?")
	if strings.HasPrefix(path, "/") && strings.IndexByte(path, '%') < 0 {
		*u = url.URL{Path: path, RawQuery: query}
	} else if parsed, err := url.ParseRequestURI(e.Target); err == nil {
		*u = *parsed
	} else {
		*u = url.URL{Path: e.Target}
	}
}
