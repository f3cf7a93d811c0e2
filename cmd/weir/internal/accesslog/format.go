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

	text  string   // as a log_format; empty: it is JSON
	more  bool     // lines may go on
	known []member // of JSON

	// begins says that the time of a line is that of the request's beginning. False: servers
	// write it when they have answered.
	begins bool
}

// A member is where a line of JSON has a value. Of several for one thing the last counts.
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
	{name: "alb", more: true, text: `$type $time_iso8601 $elb $remote_addr $target $request_time $request_time $request_time ` +
		`$status $target_status $received $sent "$request" "$http_user_agent"`},
	{name: "caddy", known: caddy},
	{name: "traefik", begins: true, known: []member{
		{"$.StartUTC", slot{field: fieldTime}}, {"$.Duration", slot{field: fieldTook, unit: time.Nanosecond}}, {"$.DownstreamStatus", slot{field: fieldStatus}},
		{"$.ClientAddr", slot{field: fieldClient}}, {"$.ClientHost", slot{field: fieldClient}}, {"$.RequestMethod", slot{field: fieldMethod}}, {"$.RequestPath", slot{field: fieldTarget}},
		{"$.RequestAddr", slot{field: fieldHost}}, {"$.request_User-Agent", slot{field: fieldUserAgent}}, {"$.request_X-Forwarded-For", slot{field: fieldForwardedFor}},
		{"$.request_*", slot{field: fieldHeader}},
	}},
	{name: anything, known: plainMembers()},
}

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
	for _, name := range slices.Sorted(maps.Keys(variables)) { // which say more, such as a path's query
		members = append(members, member{"$." + name, variables[name]})
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
	parse(p *parser, e *Entry, line []byte) (at int, wrong string)
}

// A parser reads lines of one format.
type parser struct {
	*format
	lines     lineParser
	slots     []slot
	headers   []string
	has       map[field]bool
	hasHeader map[int]bool // by their index

	required []field // of every line
	told     []told  // by Options.Map
	whole    bool    // the time of the last line has whole seconds
}

// A told is where a user says that a value is.
type told struct {
	place string
	slot  int
}

// newParser makes a parser of a format, with what o says of it.
func newParser(f *format, o Options) (*parser, error) {
	p := &parser{format: f, headers: slices.Clone(o.Headers), has: map[field]bool{}, hasHeader: map[int]bool{}}
	overridden := map[slot]bool{}
	for _, name := range slices.Sorted(maps.Keys(o.Map)) {
		to, err := p.slotNamed(name)
		if err != nil {
			return nil, err
		}
		overridden[slot{field: to.field, header: to.header}] = true
		p.told = append(p.told, told{o.Map[name], p.slot(to)})
	}
	isTold := func(to slot) bool { return overridden[slot{field: to.field, header: to.header}] }
	if f.text == "" {
		return p, p.readObjects(isTold)
	}
	return p, p.readText(isTold)
}

// readObjects has the parser read JSON.
func (p *parser) readObjects(isTold func(slot) bool) error {
	lines := &object{}
	p.lines = lines
	for _, m := range p.known {
		if m.slot.field != fieldHeader {
			if !isTold(m.slot) && p.wants(m.slot) {
				if err := lines.add(m.path, p.slot(m.slot)); err != nil {
					return err
				}
			}
			continue
		}
		for i, name := range p.headers {
			to := slot{field: fieldHeader, header: i}
			if isTold(to) || strings.Contains(name, ":") || slices.Contains(redacted, name) {
				continue
			}
			if strings.HasSuffix(m.path, "http_*") {
				name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
			}
			if err := lines.add(strings.Replace(m.path, "*", name, 1), p.slot(to)); err != nil {
				return err
			}
		}
	}
	for _, told := range p.told {
		if err := lines.add(told.place, told.slot); err != nil {
			return err
		}
	}
	if p.name != anything {
		p.required = mostNeeded
	}
	return nil
}

// readText has the parser read text.
func (p *parser) readText(isTold func(slot) bool) error {
	unused := map[string]bool{}
	for _, told := range p.told {
		unused[told.place] = true
	}
	t, err := newTemplate(p.text, func(name string) (slots []int) {
		plain := "$" + variableName(name)
		delete(unused, plain)
		for _, told := range p.told {
			if told.place == plain {
				slots = append(slots, told.slot)
			}
		}
		to, ok := known(name, p.headers)
		if ok && !isTold(to) && p.wants(to) {
			slots = append(slots, p.slot(to))
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

// require has each line say what the log has.
func (p *parser) require() {
	p.required = nil
	for _, of := range mostNeeded {
		if p.has[of] {
			p.required = append(p.required, of)
		}
	}
}

// wants reports whether a value is worth to be read: a user agent, which is as long as all else,
// is if it is one of the headers that are wanted.
func (p *parser) wants(to slot) bool {
	p.has[to.field] = true
	return to.field != fieldUserAgent || slices.Contains(p.headers, "User-Agent")
}

// slot notes a slot, and that lines have what it is for.
func (p *parser) slot(to slot) int {
	p.note(to)
	p.slots = append(p.slots, to)
	return len(p.slots) - 1
}

func (p *parser) note(to slot) {
	p.has[to.field] = true
	switch to.field {
	case fieldRequest:
		p.has[fieldMethod], p.has[fieldTarget] = true, true
	case fieldHeader:
		p.hasHeader[to.header] = true
	}
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
func (p *parser) parse(e *Entry, line []byte) (at int, wrong string) {
	if at, wrong := p.lines.parse(p, e, line); wrong != "" {
		return at, wrong
	}
	if e.At == 0 {
		return 0, "has no time"
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

// begin finds out from the first lines of a log what its lines have. Text says it by its format;
// objects have what their writers chose, or what Options.Map says.
func (p *parser) begin(lines [][]byte) {
	of, ok := p.lines.(*object)
	if !ok {
		return
	}
	clear(p.has)
	clear(p.hasHeader)
	for i := range of.paths {
		of.paths[i].met = false
	}
	for _, line := range lines {
		var e Entry
		if _, wrong := p.parse(&e, line); wrong != "" {
			continue
		}
		for _, needed := range mostNeeded {
			p.has[needed] = p.has[needed] || missing(&e, needed) == ""
		}
	}
	for i := range of.paths {
		for _, to := range of.paths[i].slots {
			if at := p.slots[to]; of.paths[i].met && !slices.Contains(mostNeeded, at.field) && at.field != fieldRequest {
				p.note(at)
			}
		}
		of.paths[i].met = false // see unmet
	}
	p.require()
	for _, told := range p.told {
		p.note(p.slots[told.slot])
	}
}

// unmet is a place that Options.Map names, and that no line had.
func (p *parser) unmet() (place string) {
	of, ok := p.lines.(*object)
	if !ok {
		return "" // the format has it
	}
	for i := range of.paths {
		isTold := slices.ContainsFunc(p.told, func(t told) bool { return t.place == of.paths[i].text })
		if isTold && !of.paths[i].met {
			return of.paths[i].text
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
	case strings.ContainsAny(o.Format, "$ "):
		text, err := logFormat(o.Format)
		if err != nil {
			return nil, err
		}
		these = []format{{name: "its own", text: text}}
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
		if !p.has[fieldTime] {
			errs = append(errs, errors.New("the format has no time: want $time_local, $time_iso8601 or $msec, or say where it is"))
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
