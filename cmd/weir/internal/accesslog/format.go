package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A format is a way in which lines are written.
type format struct {
	name string // several can have one: which of them it is, the log says

	text  string   // as a log_format or a format of Envoy's; empty: it is JSON, or has columns
	more  bool     // lines may go on
	known []member // of JSON

	// console says that JSON has a time before it, a level, a logger and a message, with tabs
	// between them.
	console bool

	columns   map[string]slot // by their names; nil: it has none
	order     []string        // theirs, if no line says it; nil: one has to
	separator byte            // between them

	// begins says that the time of a line is that of the request's beginning. False: servers
	// write it when they have answered.
	begins bool
}

// A member is where a line of JSON has a value.
type member struct {
	path string
	slot slot
}

// anything is the name of objects of JSON whose members are called anything.
const anything = "json"

const combined = `$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`

// formats are all that have a name. Of those that fit a log as well as others, the first is
// taken.
var formats = []format{
	{name: "traefik", text: combined + ` $count "$router" "$server" ${weir_milliseconds}ms`, begins: true},
	{name: "combined", text: combined, more: true},
	{name: "combined", text: "$vhost " + combined, more: true},
	{name: "common", text: `$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent`},
	{name: "envoy", begins: true, more: true, text: `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
		`%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% %UPSTREAM_TRANSPORT_FAILURE_REASON% ` + envoyEnd},
	{name: "envoy", begins: true, more: true, text: `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` + envoyEnd},
	{name: "alb", more: true, text: `$type $time_iso8601 $elb $remote_addr $target $request_time $request_time $request_time ` +
		`$status $target_status $received $sent "$request" "$http_user_agent"`},
	{name: "cloudfront", columns: cloudfront, order: cloudfrontOrder, separator: '\t'},
	{name: "iis", columns: iis, separator: ' '},
	{name: "cloudfront", known: members(cloudfront)},
	{name: "caddy", known: caddy},
	{name: "caddy", known: caddy, console: true},
	{name: "traefik", begins: true, known: []member{
		{"$.StartUTC", slot{field: fieldTime}}, {"$.Duration", slot{field: fieldTook, unit: time.Nanosecond}}, {"$.DownstreamStatus", slot{field: fieldStatus}},
		{"$.ClientAddr", slot{field: fieldClient}}, {"$.ClientHost", slot{field: fieldClient}}, {"$.RequestMethod", slot{field: fieldMethod}}, {"$.RequestPath", slot{field: fieldTarget}},
		{"$.RequestAddr", slot{field: fieldHost}}, {"$.request_User-Agent", slot{field: fieldUserAgent}}, {"$.request_X-Forwarded-For", slot{field: fieldForwardedFor}},
		{"$.request_*", slot{field: fieldHeader}},
	}},
	{name: "envoy", begins: true, known: []member{
		{"$.start_time", slot{field: fieldTime}}, {"$.duration", slot{field: fieldTook, unit: time.Millisecond}}, {"$.response_code", slot{field: fieldStatus}},
		{"$.downstream_remote_address", slot{field: fieldClient}}, {"$.method", slot{field: fieldMethod}}, {"$.path", slot{field: fieldTarget}},
		{"$.authority", slot{field: fieldHost}}, {"$.user_agent", slot{field: fieldUserAgent}}, {"$.x_forwarded_for", slot{field: fieldForwardedFor}},
		// And what Envoy Gateway calls them.
		{`$["x-envoy-origin-path"]`, slot{field: fieldTarget}}, {`$[":authority"]`, slot{field: fieldHost}},
		{`$["user-agent"]`, slot{field: fieldUserAgent}}, {`$["x-forwarded-for"]`, slot{field: fieldForwardedFor}},
	}},
	{name: anything, known: plainMembers()},
}

const envoyEnd = `%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%LAST_FORWARDED%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`

// caddy are the members of Caddy's lines.
var caddy = []member{
	{"$.ts", slot{field: fieldTime}}, {"$.duration", slot{field: fieldTook, unit: time.Second}}, {"$.status", slot{field: fieldStatus}},
	{"$.request.remote_ip", slot{field: fieldClient}}, {"$.request.remote_addr", slot{field: fieldClient}}, {"$.request.client_ip", slot{field: fieldClient}},
	{"$.request.method", slot{field: fieldMethod}}, {"$.request.uri", slot{field: fieldTarget}}, {"$.request.host", slot{field: fieldHost}},
	{`$.request.headers["User-Agent"][0]`, slot{field: fieldUserAgent}}, {`$.request.headers["X-Forwarded-For"][0]`, slot{field: fieldForwardedFor}},
	{`$.request.headers["*"][0]`, slot{field: fieldHeader}},
}

// redacted are headers that proxies leave out of their logs, or write as REDACTED.
var redacted = []string{"Authorization", "Cookie"}

// plainMembers are those of an object whose members are called as nginx calls its variables,
// or as most call them.
func plainMembers() []member {
	var members []member
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		members = append(members, member{"$." + name, variables[name]})
	}
	for name, of := range map[string]field{
		"time": fieldTime, "timestamp": fieldTime, "@timestamp": fieldTime, "ts": fieldTime,
		"client_ip": fieldClient, "remote_ip": fieldClient, "method": fieldMethod, "path": fieldTarget, "uri": fieldTarget, "user_agent": fieldUserAgent,
	} {
		members = append(members, member{"$." + name, slot{field: of}})
	}
	return append(members, member{"$.http_*", slot{field: fieldHeader}})
}

// Formats are the names of the formats that are known.
func Formats() (names []string) {
	for i := range formats {
		if name := formats[i].name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A lineParser reads a line into e. What is wrong with the line begins at its byte at.
type lineParser interface {
	parse(s *scanner, e *Entry, line string) (at int, wrong string)
}

// A parser reads lines of one format.
type parser struct {
	scanner
	*format
	lines   lineParser
	headers []string
	has     map[field]bool

	hasHeader []bool // of JSON: which of headers its first lines have, or Options.Map names; nil: all with a slot

	required []field  // of every line
	told     []string // the places in Options.Map
	missing  string   // of these: a column that is not there
}

// newParser makes a parser of a format, with what o says of it.
func newParser(f *format, o Options) (*parser, error) {
	p := &parser{format: f, headers: slices.Clone(o.Headers), has: map[field]bool{}}
	told := map[string][]int{} // by the place in the format
	overridden := map[slot]bool{}
	for _, name := range slices.Sorted(maps.Keys(o.Map)) {
		to, err := p.slotNamed(name)
		if err != nil {
			return nil, err
		}
		overridden[slot{field: to.field, header: to.header}] = true
		told[o.Map[name]] = append(told[o.Map[name]], p.slot(to))
	}
	p.told = slices.Sorted(maps.Keys(told))
	p.scanner.headers = len(p.headers)
	isTold := func(to slot) bool { return overridden[slot{field: to.field, header: to.header}] }

	if f.columns != nil {
		p.lines = p.newColumns(told, isTold)
		return p, nil
	}
	if f.text == "" {
		root := &tree{}
		for _, m := range f.known {
			if m.slot.field != fieldHeader {
				if !isTold(m.slot) && p.wants(m.slot) {
					if err := root.add(m.path, p.slot(m.slot)); err != nil {
						return nil, err
					}
				}
				continue
			}
			for i, name := range p.headers {
				to := slot{field: fieldHeader, header: i, coded: m.slot.coded}
				if isTold(to) || strings.Contains(name, ":") || slices.Contains(redacted, name) {
					continue
				}
				if strings.HasSuffix(m.path, "http_*") {
					name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
				}
				if err := root.add(strings.Replace(m.path, "*", name, 1), p.slot(to)); err != nil {
					return nil, err
				}
			}
		}
		for _, path := range p.told {
			for _, to := range told[path] {
				if err := root.add(path, to); err != nil {
					return nil, err
				}
			}
		}
		p.lines = root
		if f.console {
			p.lines = &console{root, p.slot(slot{field: fieldTime})}
		}
		if p.name != anything {
			p.required = mostNeeded
		}
		return p, nil
	}

	unused := maps.Clone(told)
	t, err := newTemplate(f.text, func(name string) (slots []int) {
		plain := name
		if strings.HasPrefix(name, "$") {
			plain = "$" + variableName(name)
		}
		delete(unused, plain)
		slots = slices.Clone(told[plain])
		to, ok := known(name, p.headers)
		if ok && !isTold(to) && p.wants(to) {
			slots = append(slots, p.slot(to))
		}
		return slots
	})
	if err != nil {
		return nil, err
	}
	if lost := slices.Sorted(maps.Keys(unused)); len(lost) > 0 {
		var names []string
		for i := range t.parts {
			names = append(names, t.parts[i].name)
		}
		return nil, fmt.Errorf("the format has no %q: it has %s", lost[0], strings.Join(names, ", "))
	}
	t.more = f.more
	p.lines = t
	for _, of := range mostNeeded {
		if p.has[of] {
			p.required = append(p.required, of)
		}
	}
	return p, nil
}

// newColumns reads columns: those that were told, and those that are known.
func (p *parser) newColumns(told map[string][]int, isTold func(slot) bool) *columns {
	made := map[string][]int{} // slots, by the names of columns that have one
	c := &columns{separator: p.separator}
	c.use = func(names []string) (slots [][]int) {
		clear(p.has)
		for _, name := range names {
			for _, at := range told[name] {
				p.note(p.slots[at].field)
			}
			to, ok := p.columns[name]
			if header, isHeader := headerColumn(name); !ok && isHeader {
				to, ok = headerSlot(header, p.headers)
				to.coded = p.columns["cs(User-Agent)"].coded
			}
			if ok = ok && !isTold(to) && p.wants(to); ok && made[name] == nil {
				made[name] = []int{p.slot(to)}
			}
			these := told[name]
			if ok {
				these = slices.Concat(these, made[name])
			}
			slots = append(slots, these)
		}
		p.missing = ""
		for _, name := range p.told {
			if !slices.Contains(names, name) {
				p.missing = name
			}
		}
		return slots
	}
	if p.order != nil {
		c.set(p.order, true)
	}
	return c
}

// directive reports whether a line is no request's, but says what is in the lines behind it.
func (p *parser) directive(line string) bool {
	c, ok := p.lines.(*columns)
	if !ok || !strings.HasPrefix(line, "#") {
		return false
	}
	c.directive(line)
	return true
}

// wants reports whether a value is worth to be read: a user agent, which is as long as all else,
// is if it is one of the headers that are wanted.
func (p *parser) wants(to slot) bool {
	p.has[to.field] = true
	return to.field != fieldUserAgent || slices.Contains(p.headers, "User-Agent")
}

// slot notes a slot.
func (p *parser) slot(to slot) int {
	p.note(to.field)
	p.slots = append(p.slots, to)
	return len(p.slots) - 1
}

// note notes that lines have a field.
func (p *parser) note(of field) {
	p.has[of] = true
	switch of {
	case fieldRequest:
		p.has[fieldMethod], p.has[fieldTarget] = true, true
	case fieldLastForwarded:
		p.has[fieldClient] = true
	}
	p.has[fieldTime] = p.has[fieldTime] || p.has[fieldDate] && p.has[fieldClock]
}

// slotNamed is the slot that a user calls by a name such as took_ms or header:X-Device.
func (p *parser) slotNamed(name string) (slot, error) {
	header, ok := strings.CutPrefix(name, "header:")
	if header = http.CanonicalHeaderKey(header); !ok && (strings.HasPrefix(name, "cookie:") || strings.HasPrefix(name, "key:")) {
		header, ok = name, true
	}
	if ok && !strings.HasSuffix(name, ":") {
		i := slices.Index(p.headers, header)
		if i < 0 {
			i = len(p.headers)
			p.headers = append(p.headers, header)
		}
		return slot{field: fieldHeader, header: i}, nil
	}
	for suffix, unit := range map[string]time.Duration{"": 0, "_s": time.Second, "_ms": time.Millisecond, "_us": time.Microsecond, "_ns": time.Nanosecond} {
		if name == "took"+suffix {
			return slot{field: fieldTook, unit: unit}, nil
		}
	}
	if of, ok := fieldNames[name]; ok {
		return slot{field: of}, nil
	}
	return slot{}, fmt.Errorf("%q is nothing that a log is asked for: want one of %s, took_s, took_ms, took_us, took_ns, header:NAME, cookie:NAME or key:NAME",
		name, strings.Join(slices.Sorted(maps.Keys(fieldNames)), ", "))
}

// parse reads a line, and checks that it says what every line has to.
func (p *parser) parse(e *Entry, line string) (at int, wrong string) {
	p.whole, p.parts = false, 0
	if at, wrong := p.lines.parse(&p.scanner, e, line); wrong != "" {
		return at, wrong
	}
	switch {
	case e.At == 0:
		return 0, "has no time"
	case p.parts == datePart || p.parts == clockPart:
		return 0, "has a date or a time of the day alone"
	case e.At > latest:
		return 0, outOfRange
	}
	if strings.HasPrefix(e.Target, "http://") || strings.HasPrefix(e.Target, "https://") { // as in a request to a proxy
		_, target, _ := strings.Cut(e.Target, "//")
		slash := strings.IndexByte(target, '/')
		if slash < 0 {
			slash = len(target)
		}
		e.Host, e.Target = target[:slash], cmp.Or(target[slash:], "/")
	}
	for _, needed := range p.required {
		if missing := missing(e, needed); missing != "" {
			return 0, "has no " + missing
		}
	}
	return 0, ""
}

// mostNeeded are the fields without which little can be said about a request.
var mostNeeded = []field{fieldClient, fieldMethod, fieldTarget}

// missing is the name of that field, if e does not have it.
func missing(e *Entry, of field) string {
	switch {
	case of == fieldClient && e.Client == "":
		return "client"
	case of == fieldMethod && e.Method == "":
		return "method"
	case of == fieldTarget && e.Target == "":
		return "target"
	}
	return ""
}

// mayLack are the fields that objects with the members of a format do not always have: whoever
// writes them chooses. Neither do they have every header.
var mayLack = []field{fieldStatus, fieldTook, fieldHost, fieldUserAgent, fieldForwardedFor}

// begin finds out from the first lines of a log what its lines have.
func (p *parser) begin(lines []string) {
	switch of := p.lines.(type) {
	case *template:
		return // which says it
	case *columns:
		of.set(p.order, true)
		for _, line := range lines {
			if !p.directive(line) {
				break
			}
		}
	default:
		root := p.tree()
		for _, of := range mayLack {
			p.has[of] = false
		}
		if p.name == anything {
			for _, of := range mostNeeded {
				p.has[of] = false
			}
		}
		root.meets(func(int) {})
		p.hasHeader = make([]bool, len(p.headers))
		for _, place := range p.told {
			if at, err := root.leaf(place); err == nil {
				for _, to := range at.slots {
					if p.slots[to].field == fieldHeader {
						p.hasHeader[p.slots[to].header] = true // see unmet
					}
				}
			}
		}
		for _, line := range lines {
			var e Entry
			if _, wrong := p.parse(&e, line); wrong != "" {
				continue
			}
			root.meets(func(at int) {
				met := p.slots[at]
				p.has[met.field] = p.has[met.field] || slices.Contains(mayLack, met.field)
				if met.field == fieldHeader {
					p.hasHeader[met.header] = true
				}
			})
			for _, of := range mostNeeded {
				p.has[of] = p.has[of] || missing(&e, of) == ""
			}
		}
	}
	p.required = nil
	for _, of := range mostNeeded {
		if p.has[of] {
			p.required = append(p.required, of)
		}
	}
}

// tree is what is wanted of JSON; nil: lines are none.
func (p *parser) tree() *tree {
	switch of := p.lines.(type) {
	case *tree:
		return of
	case *console:
		return of.object
	}
	return nil
}

// unmet is a place that Options.Map names, and that no line had.
func (p *parser) unmet() (place string) {
	root := p.tree()
	if root == nil {
		return "" // the format has it
	}
	for _, place := range p.told {
		if at, err := root.leaf(place); err == nil && !at.met {
			return place
		}
	}
	return ""
}

// candidates are the parsers of the formats that a log may have.
func candidates(o Options) ([]*parser, error) {
	var these []format
	switch {
	case o.Format == "":
		these = formats
	case strings.ContainsAny(o.Format, "$% "):
		text, err := logFormat(o.Format)
		if err != nil {
			return nil, err
		}
		these = []format{{name: "its own", text: text, begins: strings.Contains(text, "%START_TIME")}}
	default:
		for _, f := range formats {
			if f.name == o.Format {
				these = append(these, f)
			}
		}
		if these == nil {
			return nil, fmt.Errorf("there is no format %q: want one of %s, or a log_format as nginx has it", o.Format, strings.Join(Formats(), ", "))
		}
	}
	var found []*parser
	var errs []error
	for i := range these {
		p, err := newParser(&these[i], o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !p.has[fieldTime] && p.columns == nil { // of columns a line will say
			errs = append(errs, errors.New("the format has no time: want $time_local, $time_iso8601, $msec or %START_TIME%, or say where it is"))
			continue
		}
		found = append(found, p)
	}
	if found == nil {
		return nil, errs[0]
	}
	return found, nil
}

var directive = regexp.MustCompile(`(?s)^\s*log_format\s+\S+\s+(?:escape=\S+\s+)?(.*?);?\s*$`)

// logFormat is the format in a directive log_format as nginx has it: strings in quotation
// marks, one after the other. Any other text is a format itself.
func logFormat(text string) (string, error) {
	found := directive.FindStringSubmatch(text)
	if found == nil {
		return strings.TrimSpace(text), nil
	}
	var format strings.Builder
	for rest := strings.TrimSpace(found[1]); rest != ""; rest = strings.TrimSpace(rest) {
		quote := rest[0]
		if quote != '\'' && quote != '"' {
			return "", fmt.Errorf("log_format goes on with %.40q: want strings in quotation marks", rest)
		}
		end := 1
		for end < len(rest) && rest[end] != quote {
			if rest[end] == '\\' && end+1 < len(rest) {
				end++
			}
			format.WriteByte(rest[end])
			end++
		}
		if end == len(rest) {
			return "", fmt.Errorf("log_format has a string without an end: %.40q", rest)
		}
		rest = rest[end+1:]
	}
	return format.String(), nil
}
