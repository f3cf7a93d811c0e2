package accesslog

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Columns are how W3C's extended log is written: values with a separator between them, of which
// a line that begins with #Fields: says what they are. It may come again, as in parts of a log
// one after the other.
type columns struct {
	separator byte
	use       func(names []string) [][]int // the slots of columns, from here on

	names   []string
	slots   [][]int // of each column; nil: it is not wanted
	assumed bool    // no line has said the names
}

// directive reads a line that is no request's.
func (c *columns) directive(line string) {
	fields, ok := strings.CutPrefix(line, "#Fields:")
	if !ok {
		return
	}
	if names := strings.Fields(fields); c.assumed || !slices.Equal(names, c.names) {
		c.set(names, false)
	}
}

func (c *columns) set(names []string, assumed bool) {
	c.names, c.assumed = make([]string, len(names)), assumed
	for i, name := range names {
		c.names[i] = strings.Clone(name)
	}
	c.slots = c.use(c.names)
}

// parse implements lineParser.
func (c *columns) parse(s *scanner, e *Entry, line string) (at int, wrong string) {
	if len(c.names) == 0 {
		return 0, "comes before a line #Fields:, which says what is in a column"
	}
	rest, last := line, len(c.names)-1
	for i, name := range c.names {
		at = len(line) - len(rest)
		end := strings.IndexByte(rest, c.separator)
		switch {
		case end < 0 && i < last && c.assumed && rest != "": // as it was before there were more columns
			last = i
			end = len(rest)
		case end < 0 && i < last:
			return at, fmt.Sprintf("ends with %s: #Fields: has %d columns", name, len(c.names))
		case end >= 0 && i == last && !c.assumed:
			return at + end, fmt.Sprintf("goes on behind %s, the last of #Fields:", name)
		case end < 0:
			end = len(rest)
		}
		value := rest[:end]
		rest = rest[min(end+1, len(rest)):]
		if value == "-" || value == "" {
			continue
		}
		for _, to := range c.slots[i] {
			if wrong := s.put(e, s.slots[to], value); wrong != "" {
				return at, fmt.Sprintf("%s %.80q %s", name, value, wrong)
			}
		}
		if i == last {
			break
		}
	}
	return 0, ""
}

// cloudfront are the columns of CloudFront that say something about a request. Their order in a
// log that says none, as a part of one, is that of cloudfrontOrder.
var cloudfront = map[string]slot{
	"date": {field: fieldDate}, "time": {field: fieldClock}, "time-taken": {field: fieldTook, unit: time.Second},
	"c-ip": {field: fieldClient}, "x-forwarded-for": {field: fieldForwardedFor, coded: percent}, "cs-method": {field: fieldMethod},
	"cs-uri-stem": {field: fieldTarget}, "cs-uri-query": {field: fieldQuery}, "x-host-header": {field: fieldHost},
	"cs(User-Agent)": {field: fieldUserAgent, coded: percent}, "sc-status": {field: fieldStatus},
}

var cloudfrontOrder = strings.Fields(`date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer)
	cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken
	x-forwarded-for ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version fle-status fle-encrypted-fields c-port
	time-to-first-byte x-edge-detailed-result-type sc-content-type sc-content-len sc-range-start sc-range-end`)

// iis are those of IIS.
var iis = map[string]slot{
	"date": {field: fieldDate}, "time": {field: fieldClock}, "time-taken": {field: fieldTook, unit: time.Millisecond},
	"c-ip": {field: fieldClient}, "X-Forwarded-For": {field: fieldForwardedFor}, "cs-method": {field: fieldMethod},
	"cs-uri-stem": {field: fieldTarget}, "cs-uri-query": {field: fieldQuery}, "cs-host": {field: fieldHost}, "cs(Host)": {field: fieldHost},
	"cs(User-Agent)": {field: fieldUserAgent, coded: plus}, "sc-status": {field: fieldStatus},
}

// headerColumn is the header of a column such as cs(Referer).
func headerColumn(name string) (header string, ok bool) {
	header, ok = strings.CutPrefix(name, "cs(")
	header, closed := strings.CutSuffix(header, ")")
	return http.CanonicalHeaderKey(header), ok && closed
}

// members are the columns as members of JSON.
func members(columns map[string]slot) (all []member) {
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		all = append(all, member{`$["` + name + `"]`, columns[name]})
	}
	return append(all, member{`$["cs(*)"]`, slot{field: fieldHeader, coded: percent}})
}
