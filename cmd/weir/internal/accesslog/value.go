package accesslog

import (
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// A slot says where a value of a line belongs.
type slot struct {
	field  field
	header int           // of Options.Headers, for fieldHeader
	unit   time.Duration // of a number; 0: a text says its own
}

// of returns the slot without its unit.
func (s slot) of() slot { return slot{field: s.field, header: s.header} }

// A field is a property of a request that a log may have.
type field uint8

const (
	fieldNone field = iota
	fieldTime
	fieldTook
	fieldClient
	fieldVhost  // is no list of addresses
	fieldIdent  // is no address
	fieldLogger // of Caddy
	fieldMethod
	fieldTarget
	fieldRequest // method, target and protocol
	fieldHost
	fieldUserAgent
	fieldUser
	fieldTier
	fieldStatus
	fieldHeader
)

// fieldNames are the names of fields in Options.Map.
var fieldNames = map[string]field{
	"time": fieldTime, "took": fieldTook, "client": fieldClient, "method": fieldMethod, "target": fieldTarget,
	"request": fieldRequest, "host": fieldHost, "status": fieldStatus, "user": fieldUser, "tier": fieldTier,
}

// put reads a value into e, and returns what is wrong with it, or "".
func (p *parser) put(e *Entry, to slot, value string) (wrong string) {
	switch to.field {
	case fieldTime:
		micros, whole, ok := timeOf(value)
		if !ok {
			return "is not a time in a known format"
		}
		if micros < 0 || micros > latest {
			return "is a time out of range: it must be from 1970 to 2255"
		}
		e.At, p.whole = micros, whole
	case fieldTook:
		took, ok := duration(value, to.unit)
		if _, err := strconv.ParseFloat(value, 64); !ok && err == nil && to.unit == 0 {
			return "is a number without a unit: say took_s, took_ms, took_us or took_ns in place of took"
		}
		if !ok {
			return "is not a duration in a known format"
		}
		e.Took += took
	case fieldClient:
		last := value
		if comma := strings.LastIndexByte(value, ','); comma >= 0 {
			last, e.Chain = strings.TrimSpace(value[comma+1:]), value
		}
		client, ok := addressOf(last)
		if !ok {
			return "is not an address"
		}
		if p.name == anything && e.Client != "" && e.Client != client {
			return "is another client than " + e.Client + ": say which counts with --map client=PLACE"
		}
		e.Client = client
	case fieldVhost:
		if strings.HasSuffix(value, ",") {
			return "is not a host"
		}
	case fieldIdent:
		if _, isAddress := addressOf(value); isAddress {
			return "is an address behind an address, and either may be the client: write the log_format"
		}
	case fieldLogger:
		if !strings.HasPrefix(value, "http.log.access") {
			return "is not the logger of an access log: a failed request is in both logs"
		}
	case fieldMethod:
		e.Method = value
	case fieldTarget:
		e.Target = value
	case fieldRequest:
		method, rest, _ := strings.Cut(value, " ")
		target, ok := rest, false
		if space := strings.LastIndexByte(rest, ' '); space > 0 {
			target, ok = rest[:space], strings.HasPrefix(rest[space+1:], "HTTP/")
		}
		if !ok || method == "" {
			return "is not a request line"
		}
		e.Method, e.Target = method, target
	case fieldHost:
		e.Host = value
	case fieldUserAgent:
		e.UserAgent = value
	case fieldUser:
		e.User = value
	case fieldTier:
		e.Tier = value
	case fieldStatus:
		status, err := strconv.Atoi(value)
		if err != nil || status < 0 || status > 999 {
			return "is not a status"
		}
		e.Status, e.status = status, value
	case fieldHeader:
		if e.Headers == nil {
			e.Headers = make([]string, len(p.headers))
		}
		e.Headers[to.header] = value
	}
	return ""
}

// latest is the time from which on stores do not count: 2^53 microseconds since 1970.
const latest = 1<<53 - 1

// timeOf reads a time: 17/May/2015:10:05:03 +0000, RFC 3339, or a number of seconds, milliseconds,
// microseconds or nanoseconds since 1970, depending on its size. whole reports whole seconds.
func timeOf(text string) (micros int64, whole, ok bool) {
	layout := ""
	switch {
	case len(text) == len("17/May/2015:10:05:03 +0000") && text[2] == '/':
		layout, whole = "02/Jan/2006:15:04:05 -0700", true
	case len(text) >= len("2015-05-17T10:05:03Z") && text[4] == '-':
		layout, whole = time.RFC3339, text[19] != '.' && text[19] != ','
		if zone := text[len(text)-5:]; zone[0] == '+' || zone[0] == '-' {
			layout = "2006-01-02T15:04:05Z0700"
		}
		if text[10] == ' ' {
			text = text[:10] + "T" + text[11:]
		}
	default:
		return epoch(text)
	}
	at, err := time.Parse(layout, text)
	return at.UnixMicro(), whole, err == nil
}

// epoch reads a time such as 1431857103.123.
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

// duration reads a number of units, or a text such as 12ms. ALB writes a negative number for no duration:
// it is read as 0.
func duration(text string, unit time.Duration) (time.Duration, bool) {
	if n, err := strconv.ParseFloat(text, 64); err == nil && unit != 0 {
		return time.Duration(math.Round(max(0, n) * float64(unit))), n < float64(longest/unit)
	}
	d, err := time.ParseDuration(text)
	return max(0, d), err == nil && d < longest
}

const longest = 366 * 24 * time.Hour

// addressOf returns an address without its port, brackets and zone.
func addressOf(text string) (string, bool) {
	if text == "unix:" || text == "@" {
		return UnixSocket, true
	}
	at, err := netip.ParseAddrPort(text)
	if err == nil {
		return at.Addr().WithZone("").String(), true
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	plain, err := netip.ParseAddr(text)
	if err == nil && plain.Zone() != "" {
		text = plain.WithZone("").String()
	}
	return text, err == nil
}
