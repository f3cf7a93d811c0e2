package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A format says how lines are written.
type format struct {
	name string // several formats may share a name; the log's lines decide

	text  string   // as a log_format; empty: it is JSON
	more  bool     // lines may have further text
	known []member // of JSON

	// speaks reports whether a line that the format reads speaks for it (1), against it (-1) or neither (0).
	// If other formats are possible, a format needs a line that speaks for it. Nil: all do.
	speaks func(line string) int

	// begins says that the time of a line is the request's beginning. False: it is the time of the
	// answer.
	begins bool

	columns *columns // of W3C's extended format; nil: another format
	utc     bool     // the server's documentation says that its times are in UTC
}

// A member is the path of a value in a line of JSON. If several are for the same slot, the last counts.
type member struct {
	path string
	slot slot
}

// anything is the name of the format for JSON objects with any members.
const anything = "json"

const (
	common   = `$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combined = common + ` "$http_referer" "$http_user_agent"`

	// haproxy is HAProxy's httplog. Captured headers, which stand before the request, have no quotes.
	haproxy = `$weir_address_port [$time_local] $frontend $backend $tr/$tw/$tc/$response/$weir_milliseconds ` +
		`$status $bytes $request_cookie $response_cookie $state $connections $queues $captured"$request"`
)

// formats are the formats with names. If several fit a log equally well, the first is used.
var formats = []format{
	{name: "traefik", text: combined + ` $count "$router" "$server" ${weir_milliseconds}ms`, begins: true},
	{name: "main", text: combined + ` "$http_x_forwarded_for"`, more: true, speaks: endsWithAddresses},
	{name: "combined", text: combined, more: true},
	{name: "combined", text: "$vhost " + combined, more: true, speaks: beginsWithName},
	{name: "common", text: common, more: true, speaks: endsWithoutQuotes},
	{name: "alb", more: true, text: `$type $time_iso8601 $elb $remote_addr $target $request_time $request_time $request_time ` +
		`$status $target_status $received $sent "$request" "$http_user_agent"`},
	{name: "haproxy", text: "${syslog}haproxy[$pid]: " + haproxy, more: true, begins: true},
	{name: "haproxy", text: haproxy, more: true, begins: true},
	{name: "zoraxy", text: `${go_log}[$date $time] [router:$router] [origin:$host] [client: $remote_addr] ` +
		`[useragent: $http_user_agent] $request_method $request_uri $status`},
	{name: "iis", columns: iis, utc: true},
	{name: "cloudfront", columns: cloudFront, utc: true},
	{name: "caddy", known: caddy},
	{name: "traefik", begins: true, known: []member{
		{"$.StartUTC", slot{field: fieldTime}}, {"$.Duration", slot{field: fieldTook, unit: time.Nanosecond}}, {"$.DownstreamStatus", slot{field: fieldStatus}},
		{"$.ClientAddr", slot{field: fieldClient}}, {"$.ClientHost", slot{field: fieldClient}}, {"$.RequestMethod", slot{field: fieldMethod}}, {"$.RequestPath", slot{field: fieldTarget}},
		{"$.RequestAddr", slot{field: fieldHost}}, {"$.request_User-Agent", slot{field: fieldUserAgent}},
		{"$.request_*", slot{field: fieldHeader}},
	}},
	{name: anything, known: plainMembers()},
}

// quoted is a field in quotes. Servers write a quote in it as \" or \x22.
const quoted = `"((?:[^"\\]|\\.)*)"`

var mainLine = regexp.MustCompile(`^[^"]*` + quoted + ` \d+ [\d-]+ ` + quoted + ` ` + quoted + ` ` + quoted + `(?: |$)`)

// endsWithAddresses is for lines of nginx's packaged format: the field behind the user agent is
// X-Forwarded-For, which the last proxy ends with its caller's address. An address with a port may be
// that of the upstream server.
func endsWithAddresses(line string) int {
	field := mainLine.FindStringSubmatch(line)
	if field == nil {
		return -1
	}
	last := strings.TrimSpace(field[4][strings.LastIndexByte(field[4], ',')+1:])
	switch _, err := netip.ParseAddr(last); {
	case err == nil:
		return 1
	case last == "-":
		return 0
	}
	return -1
}

var refererLine = regexp.MustCompile(`^[^"]*` + quoted + ` \S+ \S+ "`)

// endsWithoutQuotes is for lines of the format common. Other fields may follow, but not the referer of combined.
func endsWithoutQuotes(line string) int {
	if refererLine.MatchString(line) {
		return -1
	}
	return 1
}

// beginsWithName is for lines that begin with a virtual host, which may be an address, but not in all.
func beginsWithName(line string) int {
	host, _, _ := strings.Cut(line, " ")
	if _, isAddress := addressOf(host); isAddress {
		return 0
	}
	return 1
}

// caddy are the members of Caddy's lines. Its error log has failed requests too, with the same members.
var caddy = []member{
	{"$.logger", slot{field: fieldLogger}},
	{"$.ts", slot{field: fieldTime}}, {"$.duration", slot{field: fieldTook, unit: time.Second}}, {"$.status", slot{field: fieldStatus}},
	{"$.request.remote_ip", slot{field: fieldClient}}, {"$.request.remote_addr", slot{field: fieldClient}}, {"$.request.client_ip", slot{field: fieldClient}},
	{"$.request.method", slot{field: fieldMethod}}, {"$.request.uri", slot{field: fieldTarget}}, {"$.request.host", slot{field: fieldHost}},
	{`$.request.headers["User-Agent"][0]`, slot{field: fieldUserAgent}}, {`$.request.headers["*"]`, slot{field: fieldHeader}},
}

// redacted lists headers that proxies do not log, or log as REDACTED.
var redacted = []string{"Authorization", "Cookie"}

// plainMembers are members with the names of nginx's variables, or with common names.
func plainMembers() []member {
	var members []member
	for _, as := range []struct {
		of    field
		names string
	}{
		{fieldTime, "time timestamp @timestamp ts"}, {fieldClient, "remote_ip client_ip"},
		{fieldMethod, "method"}, {fieldTarget, "path uri"}, {fieldUserAgent, "user_agent"},
	} {
		for name := range strings.FieldsSeq(as.names) {
			members = append(members, member{"$." + name, slot{field: as.of}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) { // which have more, such as a path's query
		if to := variables[name].field; to != fieldVhost && to != fieldIdent && to != fieldGoLog {
			members = append(members, member{"$." + name, variables[name]})
		}
	}
	return append(members, member{"$.http_*", slot{field: fieldHeader}})
}

// Formats returns the names of the known formats.
func Formats() (names []string) {
	for i := range formats {
		if name := formats[i].name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A lineParser reads a line into e. If something is wrong, it is at byte at of the line.
type lineParser interface {
	parse(p *parser, e *Entry, line []byte) (at int, wrong string)
}

// A parser reads lines of one format.
type parser struct {
	*format
	lines    lineParser
	headers  []string
	has      map[slot]bool  // without units
	required []string       // the fields that every line has
	mapped   []mapping      // Options.Map
	whole    bool           // the time of the last line has whole seconds
	zone     *time.Location // of times without a zone; nil: not known

	date, clock, query string // of the last line, if the format has them apart

	forwarded int // the index of forwardedFor in headers
}

const forwardedFor = "X-Forwarded-For"

// A mapping is an entry of Options.Map.
type mapping struct {
	place string
	slot  slot
}

// newParser returns a parser for a format and the options.
func newParser(f *format, o Options) (*parser, error) {
	p := &parser{format: f, headers: slices.Clone(o.Headers), has: map[slot]bool{}, zone: o.Zone}
	if f.utc && p.zone == nil {
		p.zone = time.UTC
	}
	if p.forwarded = slices.Index(p.headers, forwardedFor); p.forwarded < 0 {
		p.forwarded = len(p.headers)
		p.headers = append(p.headers, forwardedFor)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Map)) {
		to, err := p.slotNamed(name)
		if err != nil {
			return nil, err
		}
		p.note(to)
		p.mapped = append(p.mapped, mapping{o.Map[name], to})
	}
	switch {
	case f.columns != nil:
		p.lines = noColumns("has no #Fields line before it, which names its columns")
		return p, nil
	case f.text == "":
		return p, p.readObjects()
	}
	return p, p.readText(f.text)
}

// readObjects makes the parser read JSON.
func (p *parser) readObjects() error {
	lines := &object{}
	p.lines = lines
	for _, m := range p.known {
		if m.slot.field != fieldHeader {
			if p.wants(m.slot) {
				if err := lines.add(m.path, m.slot); err != nil {
					return err
				}
			}
			continue
		}
		for i, name := range p.headers {
			to := slot{field: fieldHeader, header: i}
			if strings.Contains(name, ":") || slices.Contains(redacted, name) || !p.wants(to) {
				continue
			}
			if strings.HasSuffix(m.path, "http_*") {
				name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
			}
			if err := lines.add(strings.Replace(m.path, "*", name, 1), to); err != nil {
				return err
			}
		}
	}
	for _, m := range p.mapped {
		if err := lines.add(m.place, m.slot); err != nil {
			return err
		}
	}
	if p.name != anything {
		p.required = mostNeeded
	}
	return nil
}

// readText makes the parser read lines of a log_format.
func (p *parser) readText(format string) error {
	unused := map[string]bool{}
	for _, m := range p.mapped {
		unused[m.place] = true
	}
	t, err := newTemplate(format, func(name string) (slots []slot) {
		plain := "$" + variableName(name)
		delete(unused, plain)
		for _, m := range p.mapped {
			if m.place == plain {
				slots = append(slots, m.slot)
			}
		}
		if to, ok := known(name, p.headers); ok && p.wants(to) {
			slots = append(slots, to)
		}
		return slots
	})
	if err != nil {
		return err
	}
	if lost := slices.Sorted(maps.Keys(unused)); len(lost) > 0 {
		var names []string
		for i := range t.parts {
			names = append(names, t.parts[i].name)
		}
		return fmt.Errorf("the format has no %q: it has %s", lost[0], strings.Join(names, ", "))
	}
	t.more = p.more
	p.lines = t
	p.require()
	return nil
}

// require makes the fields that the log has required in each line.
func (p *parser) require() {
	p.required = slices.DeleteFunc(slices.Clone(mostNeeded), func(name string) bool { return !p.has[slot{field: fieldNames[name]}] })
	if p.name == anything && p.has[slot{field: fieldStatus}] {
		p.required = append(p.required, "status") // "request started" is about a request with a line of its own
	}
}

// wants notes that lines have a value, and reports whether to read it: not if Options.Map names another
// place, nor if it is a user agent, which is long, and nobody asked for it.
func (p *parser) wants(to slot) bool {
	if slices.ContainsFunc(p.mapped, func(m mapping) bool { return m.slot.of() == to.of() }) {
		return false
	}
	p.note(to)
	return to.field != fieldUserAgent || slices.Contains(p.headers, "User-Agent")
}

// note notes that lines have a slot's value.
func (p *parser) note(to slot) {
	p.has[to.of()] = true
	if to.field == fieldRequest {
		p.has[slot{field: fieldMethod}], p.has[slot{field: fieldTarget}] = true, true
	}
}

// slotNamed returns the slot for a name such as took_ms or header:X-Device.
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
	return slot{}, fmt.Errorf("%q is not a field of a log: want one of %s, took_s, took_ms, took_us, took_ns, header:NAME, cookie:NAME or key:NAME",
		name, strings.Join(slices.Sorted(maps.Keys(fieldNames)), ", "))
}

// parse reads a line, and checks that it has the required fields.
func (p *parser) parse(e *Entry, line []byte) (at int, wrong string) {
	p.date, p.clock, p.query = "", "", ""
	if at, wrong := p.lines.parse(p, e, line); wrong != "" {
		return at, wrong
	}
	switch _, isObject := p.lines.(*object); {
	case e.At == 0 && p.clock != "" && p.date != "":
		if wrong := p.putTime(e, p.date+" "+p.clock); wrong != "" {
			return 0, fmt.Sprintf("%.80q %s", p.date+" "+p.clock, wrong)
		}
	case e.At == 0 && p.clock != "":
		return 0, "has a time without a date: say where with --map date=PLACE"
	case e.At == 0 && isObject:
		return 0, noTime
	case e.At == 0:
		return 0, "has no time"
	}
	if e.Chain != "" {
		if e.Headers == nil {
			e.Headers = make([]string, len(p.headers))
		}
		if own := e.Headers[p.forwarded]; own != "" && own != e.Chain {
			return 0, "has a list of addresses in the client's place that is not X-Forwarded-For"
		}
		e.Headers[p.forwarded] = e.Chain
		p.note(slot{field: fieldHeader, header: p.forwarded})
	}
	if p.query != "" {
		e.Target += "?" + p.query
	}
	if strings.HasPrefix(e.Target, "http://") || strings.HasPrefix(e.Target, "https://") { // as in a request to a proxy
		_, target, _ := strings.Cut(e.Target, "//")
		slash := strings.IndexByte(target, '/')
		if slash < 0 {
			slash = len(target)
		}
		e.Host, e.Target = target[:slash], cmp.Or(target[slash:], "/")
	}
	for _, name := range p.required {
		if e.text(name) == "" {
			return 0, "has no " + name
		}
	}
	return 0, ""
}

const noTime = "has no time in a place that is known: say where with --map time=PLACE"

// mostNeeded are the fields without which a request cannot be simulated.
var mostNeeded = []string{"client", "method", "target"}

// text is one of these fields.
func (e *Entry) text(name string) string {
	switch name {
	case "client":
		return e.Client
	case "method":
		return e.Method
	case "status":
		return e.status
	}
	return e.Target
}

// begin determines from the first lines of a log what its lines have. A text format says so itself, except
// for hosts in targets; an object may have any members, and with Options.Map has the members named there.
func (p *parser) begin(lines [][]byte) {
	of, isObject := p.lines.(*object)
	if isObject {
		clear(p.has)
		for i := range of.paths {
			of.paths[i].met = false
		}
	}
	read, hosts := 0, 0
	for _, line := range lines {
		var e Entry
		if p.directive(line) {
			continue
		}
		if _, wrong := p.parse(&e, line); wrong != "" {
			continue
		}
		if read++; e.Host != "" {
			hosts++
		}
		for _, name := range mostNeeded {
			if e.text(name) != "" {
				p.has[slot{field: fieldNames[name]}] = true
			}
		}
	}
	if read > 0 && hosts == read {
		p.note(slot{field: fieldHost})
	}
	if !isObject {
		return
	}
	for i := range of.paths {
		for _, to := range of.paths[i].slots {
			switch to.field {
			case fieldClient, fieldMethod, fieldTarget, fieldRequest:
			default:
				if of.paths[i].met {
					p.note(to)
				}
			}
		}
		of.paths[i].met = false // see unmet
	}
	p.require()
	for _, m := range p.mapped {
		p.note(m.slot)
	}
}

// unmet returns a place that Options.Map names and no line had, or "".
func (p *parser) unmet() (place string) {
	of, ok := p.lines.(*object)
	if !ok {
		return "" // the format has it
	}
	for i := range of.paths {
		if p.isMapped(&of.paths[i]) && !of.paths[i].met {
			return of.paths[i].text
		}
	}
	return ""
}

// candidates returns parsers for the formats that a log may have.
func candidates(o Options) ([]*parser, error) {
	var these []format
	switch {
	case o.Format == "":
		these = formats
	case strings.ContainsAny(o.Format, "$ "):
		these = []format{{name: "its own", text: strings.TrimSpace(o.Format), more: true}}
	default:
		for _, f := range formats {
			if f.name == o.Format {
				these = append(these, f)
			}
		}
		if these == nil {
			return nil, fmt.Errorf("there is no format %q: want one of %s, or a log_format as nginx has it", o.Format, strings.Join(Formats(), ", "))
		}
		if len(these) == 1 {
			these[0].speaks = nil
			if c := these[0].columns; c != nil {
				these[0].columns = c.withoutMark()
			}
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
		if !p.has[slot{field: fieldTime}] && p.columns == nil {
			errs = append(errs, errors.New("the format has no time: want $time_local, $time_iso8601, $msec or $date and $time, or say where it is"))
			continue
		}
		found = append(found, p)
	}
	if found == nil {
		return nil, errs[0]
	}
	return found, nil
}
