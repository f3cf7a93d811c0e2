package accesslog

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A slot says where a value of a line belongs.
type slot struct {
	name string        // one of fields, the name of a header, or a part of a line that parser.put checks
	unit time.Duration // of a number; 0: a text says its own
	port bool          // a colon and a port follow an address, which has no brackets
}

// fields are the names of an Entry's fields in Options.Map.
var fields = []string{
	"client", "date", "host", "method", "request", "status", "target", "tier", "time",
	"took", "took_s", "took_ms", "took_us", "took_ns", "user",
}

var units = map[string]time.Duration{
	"took_s": time.Second, "took_ms": time.Millisecond, "took_us": time.Microsecond, "took_ns": time.Nanosecond,
}

// slotOf returns the slot for a name, which may have a unit.
func slotOf(name string) slot {
	switch unit := units[name]; {
	case unit != 0:
		return slot{name: "took", unit: unit}
	case name == "client_port":
		return slot{name: "client", port: true}
	}
	return slot{name: name}
}

// put reads a value into e, and returns what is wrong with it, or "".
func (p *parser) put(e *Entry, to slot, value string) (wrong string) {
	switch to.name {
	case "time":
		if len(value) >= len("10:05:03") && value[2] == ':' && value[5] == ':' {
			p.clock = value
			return ""
		}
		return p.putTime(e, value)
	case "date":
		p.date = value
	case "took":
		took, ok := duration(value, to.unit)
		if _, err := strconv.ParseFloat(value, 64); !ok && err == nil && to.unit == 0 {
			return "is a number without a unit: say took_s, took_ms, took_us or took_ns in place of took"
		}
		if !ok {
			return "is not a duration in a known format"
		}
		e.Took += took
	case "client":
		if colon := strings.LastIndexByte(value, ':'); to.port && colon >= 0 && !strings.HasPrefix(value, "unix:") {
			value = value[:colon]
		}
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
	case "vhost":
		p.vhost = value
		if strings.HasSuffix(value, ",") {
			return "is not a host" // of a list of addresses
		}
	case "ident":
		if _, isAddress := addressOf(value); isAddress {
			return "is an address behind an address, and either may be the client: write the log_format, or name lighttpd, where it is the host"
		}
	case "go_log":
		if _, err := time.Parse("2006/01/02 15:04:05 ", value); err != nil {
			return "is not a time as Go's package log writes it"
		}
	case "logger":
		if !strings.HasPrefix(value, "http.log.access") {
			return noAccess
		}
	case "method":
		e.Method = value
	case "target":
		e.Target = value
	case "query":
		p.query = value
	case "request":
		method, rest, _ := strings.Cut(value, " ")
		target, ok := rest, false
		if space := strings.LastIndexByte(rest, ' '); space > 0 {
			target, ok = rest[:space], strings.HasPrefix(rest[space+1:], "HTTP/")
		}
		switch {
		case value == "PRI * HTTP/2.0", method == "<unknown>": // lighttpd, for a connection; nghttpx
			return noRequest
		case !ok || method == "":
			return "is not a request line"
		}
		e.Method, e.Target = method, target
	case "host":
		e.Host = value
	case "user":
		e.User = value
	case "tier":
		e.Tier = value
	case "status":
		status, err := strconv.Atoi(value)
		if err != nil || status < -1 || status > 999 {
			return "is not a status"
		}
		e.Status, p.status = max(0, status), value // HAProxy's -1: the client went away before the answer
	default:
		if e.Headers == nil {
			e.Headers = make([]string, len(p.headers))
		}
		e.Headers[slices.Index(p.headers, to.name)] = value
	}
	return ""
}

// latest is the time from which on stores do not count: 2^53 microseconds since 1970.
const latest = 1<<53 - 1

// noZone is wrong with a time if neither the log nor Options.Zone says its zone.
const noZone = "is a time without a zone: say which with --zone, such as --zone UTC"

// putTime reads a time into e, and returns what is wrong with it, or "". Of several times of a line the finest counts,
// and of equally fine ones the last.
func (p *parser) putTime(e *Entry, text string) (wrong string) {
	micros, digits, wrong := timeOf(text, p.zone)
	if wrong == "" && (micros < 0 || micros > latest) {
		wrong = "is a time out of range: it must be from 1970 to 2255"
	}
	if wrong == "" && (e.At == 0 || digits >= p.digits) {
		e.At, p.digits = micros, digits
	}
	return wrong
}

// timeOf reads a time: 17/May/2015:10:05:03 +0000, 2015/05/17 10:05:03, RFC 3339, each of them with a fraction or
// without a zone, or a number of seconds, milliseconds, microseconds or nanoseconds since 1970, depending on its
// size. digits is the number of decimals of a second.
func timeOf(text string, zone *time.Location) (micros int64, digits int, wrong string) {
	layout := "2006-01-02T15:04:05"
	switch {
	case len(text) >= len("17/May/2015:10:05:03") && text[2] == '/':
		layout = "02/Jan/2006:15:04:05"
	case len(text) < len(layout) || text[4] != '-' && text[4] != '/':
		return epoch(text)
	case text[10] == ' ':
		layout = "2006-01-02 15:04:05"
	}
	if text[4] == '/' {
		layout = strings.ReplaceAll(layout, "-", "/")
	}
	behind := text[len(layout):]
	offset := strings.TrimLeft(behind, ".,0123456789") // a layout needs no fraction
	digits = max(0, len(behind)-len(offset)-1)
	var at time.Time
	var err error
	switch {
	case offset == "" && zone == nil:
		return 0, 0, noZone
	case offset == "":
		at, err = time.ParseInLocation(layout, text, zone)
	case offset[0] == ' ':
		at, err = time.Parse(layout+" -0700", text)
	case len(offset) == len("+0000"):
		at, err = time.Parse(layout+"Z0700", text)
	default:
		at, err = time.Parse(layout+"Z07:00", text)
	}
	if err != nil {
		return 0, 0, notATime
	}
	return at.UnixMicro(), digits, ""
}

const notATime = "is not a time in a known format"

// epoch reads a time such as 1431857103.123.
func epoch(text string) (micros int64, digits int, wrong string) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(math.Abs(n) < 1e20) {
		return 0, 0, notATime
	}
	if _, decimals, ok := strings.Cut(text, "."); ok {
		digits = len(decimals)
	}
	switch {
	case n < 1e11: // seconds, until the year 5138
		n *= 1e6
	case n < 1e14:
		n, digits = n*1e3, digits+3
	case n < 1e17:
		digits += 6
	default:
		n, digits = n/1e3, digits+9
	}
	return int64(math.Round(n)), digits, ""
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
	if strings.HasPrefix(text, "unix:") || text == "@" {
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
