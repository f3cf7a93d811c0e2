package accesslog

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A parser reads lines of one format.
type parser struct {
	*format
	lines     lineParser
	headers   []string
	forwarded int             // the index of forwardedFor in headers
	has       map[string]bool // fields and headers
	required  []string        // the fields that every line has
	mapped    []mapping       // Options.Map
	zone      *time.Location  // of times without a zone; nil: not known
	digits    int             // decimals of a second, in the time of the last line

	date, clock, query, status, vhost string // of the last line, as they are in it
}

// A lineParser reads a line into e. If something is wrong, it is at byte at of the line.
type lineParser interface {
	parse(p *parser, e *Entry, line []byte) (at int, wrong string)
}

// A mapping says that the value at a place is for a slot.
type mapping struct {
	place string
	slot  slot
}

const forwardedFor = "X-Forwarded-For"

// mostNeeded are the fields without which a request cannot be simulated.
var mostNeeded = []string{"client", "method", "target"}

// redacted lists headers that proxies do not log, or log as REDACTED.
var redacted = []string{"Authorization", "Cookie"}

// newParser returns a parser for a format and the options.
func newParser(f *format, o Options) (*parser, error) {
	p := &parser{format: f, headers: slices.Clone(o.Headers), has: map[string]bool{}, zone: o.Zone}
	if f.utc && p.zone == nil {
		p.zone = time.UTC
	}
	p.addHeader(forwardedFor)
	p.forwarded = slices.Index(p.headers, forwardedFor)
	for _, name := range slices.Sorted(maps.Keys(o.Map)) {
		to, err := slotNamed(name)
		if err != nil {
			return nil, err
		}
		if to.unit == 0 && !slices.Contains(fields, to.name) {
			p.addHeader(to.name)
		}
		p.note(to)
		p.mapped = append(p.mapped, mapping{o.Map[name], to})
	}
	if f.text == "" {
		return p, p.readObjects()
	}
	return p, p.readText(f.text)
}

// addHeader makes the parser read a header too.
func (p *parser) addHeader(name string) {
	if !slices.Contains(p.headers, name) {
		p.headers = append(p.headers, name)
	}
}

// readObjects makes the parser read JSON.
func (p *parser) readObjects() error {
	var members []mapping
	for member := range strings.FieldsSeq(p.object) {
		name, path, _ := strings.Cut(member, "=")
		members = append(members, mapping{path, slotOf(name)})
	}
	for _, name := range p.headers {
		if strings.Contains(name, ":") || slices.Contains(redacted, name) {
			continue
		}
		member := name
		if p.name == anything {
			member = strings.ReplaceAll(strings.ToLower(name), "-", "_")
			if name == "User-Agent" {
				members = append(members, mapping{"$.user_agent", slot{name: name}})
			}
		}
		members = append(members, mapping{strings.Replace(p.header, "*", member, 1), slot{name: name}})
	}
	if p.name == anything {
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			members = append(members, mapping{"$." + name, slotOf(variables[name])})
		}
	}
	members = slices.DeleteFunc(members, func(m mapping) bool { return !p.wants(m.slot) })
	lines := &object{}
	for i, m := range append(members, p.mapped...) {
		names, err := splitPath(m.place)
		if err != nil {
			return err
		}
		lines.paths = append(lines.paths, path{mapping: m, names: names, isMapped: i >= len(members)})
	}
	p.lines = lines
	if p.name != anything {
		p.require()
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
		delete(unused, "$"+name)
		for _, m := range p.mapped {
			if m.place == "$"+name {
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
	p.required = slices.DeleteFunc(slices.Clone(mostNeeded), func(name string) bool { return !p.has[name] })
	if p.name == anything && p.has["status"] {
		p.required = append(p.required, "status") // "request started" is about a request with a line of its own
	}
}

// wants notes that lines have a value, and reports whether to read it: not if Options.Map names another place.
func (p *parser) wants(to slot) bool {
	if slices.ContainsFunc(p.mapped, func(m mapping) bool { return m.slot.name == to.name }) {
		return false
	}
	p.note(to)
	return true
}

// note notes that lines have a slot's value.
func (p *parser) note(to slot) {
	p.has[to.name] = true
	if to.name == "request" {
		p.has["method"], p.has["target"] = true, true
	}
}

// parse reads a line, and checks that it has the required fields.
func (p *parser) parse(e *Entry, line []byte) (at int, wrong string) {
	p.date, p.clock, p.query, p.status, p.vhost = "", "", "", "", ""
	if at, wrong := p.lines.parse(p, e, line); wrong != "" {
		return at, wrong
	}
	switch {
	case p.clock != "" && p.date != "":
		if wrong := p.putTime(e, p.date+" "+p.clock); wrong != "" && e.At == 0 {
			return 0, fmt.Sprintf("%.80q %s", p.date+" "+p.clock, wrong)
		}
	case e.At == 0 && p.clock != "":
		return 0, "has a time without a date: say where with --map date=PLACE"
	case e.At == 0:
		return 0, noTime
	}
	if e.Chain != "" {
		if e.Headers == nil {
			e.Headers = make([]string, len(p.headers))
		}
		if own := e.Headers[p.forwarded]; own != "" && own != e.Chain {
			return 0, "has a list of addresses in the client's place that is not X-Forwarded-For"
		}
		e.Headers[p.forwarded] = e.Chain
		p.has[forwardedFor] = true
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
	if strings.HasPrefix(e.Target, "error:") { // Squid's, for what was no request
		return 0, noRequest
	}
	for _, name := range p.required {
		if p.text(e, name) == "" {
			return 0, "has no " + name
		}
	}
	return 0, ""
}

// What is wrong with lines that are about no request of their own. Lines with noRequest are left out.
const (
	noRequest = "is about no request"
	noStatus  = "has no status"
	noAccess  = "is not the logger of an access log: a failed request is in both logs"
)

const noTime = "has no time in a place that is known: say where with --map time=PLACE"

// text is one of the fields that lines may be required to have.
func (p *parser) text(e *Entry, name string) string {
	switch name {
	case "client":
		return e.Client
	case "method":
		return e.Method
	case "status":
		return p.status
	}
	return e.Target
}

// begin determines from the first lines of a log what its lines have. A text format says so itself, except for hosts
// in targets; an object may have any members, and with Options.Map has the members named there.
func (p *parser) begin(lines [][]byte) {
	of, isObject := p.lines.(*object)
	if isObject {
		clear(p.has)
	}
	read, hosts := 0, 0
	for _, line := range lines {
		var e Entry
		if _, wrong := p.parse(&e, line); wrong != "" {
			continue
		}
		if read++; e.Host != "" {
			hosts++
		}
		for _, name := range mostNeeded {
			p.has[name] = p.has[name] || p.text(&e, name) != ""
		}
	}
	p.has["host"] = p.has["host"] || read > 0 && hosts == read
	if !isObject {
		return
	}
	for _, path := range of.paths {
		if to := path.slot; path.met && to.name != "request" && !slices.Contains(mostNeeded, to.name) {
			p.note(to)
		}
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
	for _, path := range of.paths {
		if path.isMapped && !path.met {
			return path.place
		}
	}
	return ""
}

// slotNamed returns the slot for a name in Options.Map, such as took_ms or header:X-Device.
func slotNamed(name string) (slot, error) {
	header, isHeader := strings.CutPrefix(name, "header:")
	isOther := strings.HasPrefix(name, "cookie:") || strings.HasPrefix(name, "key:")
	switch {
	case isHeader && header != "":
		return slot{name: http.CanonicalHeaderKey(header)}, nil
	case isOther && !strings.HasSuffix(name, ":"), slices.Contains(fields, name):
		return slotOf(name), nil
	}
	return slot{}, fmt.Errorf("%q is not a field of a log: want one of %s, header:NAME, cookie:NAME or key:NAME",
		name, strings.Join(fields, ", "))
}
