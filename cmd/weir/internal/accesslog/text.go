package accesslog

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A template describes a line of text: variables, and the text between them.
type template struct {
	before string // the first variable
	parts  []part
	more   bool // a line may have further text
}

// A part is a variable and the text behind it.
type part struct {
	name    string // as in the format
	slots   []slot // which its value is read into
	literal string

	isList bool // the value may be a list, as in nginx's $upstream_ variables
}

// parse implements lineParser.
func (t *template) parse(in *parser, e *Entry, text []byte) (at int, wrong string) {
	line := string(text) // e keeps parts of it
	rest, ok := trimLiteral(strings.TrimLeft(line, " "), t.before)
	if !ok {
		return 0, fmt.Sprintf("does not begin with %q", t.before)
	}
	for i := range t.parts {
		p := &t.parts[i]
		at = len(line) - len(rest)
		cut := cutLiteral
		if p.isList {
			cut = cutList
		}
		value, behind, found := cut(rest, p.literal)
		last := i == len(t.parts)-1
		if !found && last && p.literal == `"` && len(rest) > 0 { // the line was cut off there
			value, behind, found = cutLiteral(rest+`"`, p.literal)
		}
		if !found || last && behind != "" && !(t.more && behind[0] == ' ') {
			if found {
				return len(line) - len(behind), "continues after the format's end"
			}
			return at, fmt.Sprintf("has no %q behind %s", p.literal, p.name)
		}
		rest = behind
		if len(p.slots) == 0 || value == "-" || value == "" {
			continue
		}
		if plain, err := url.PathUnescape(value); in.escaped && err == nil {
			value = plain
		}
		if strings.IndexByte(value, '\\') >= 0 {
			if plain, err := strconv.Unquote(`"` + value + `"`); err == nil { // \" and \x22, as servers write them
				value = plain
			}
		}
		for _, to := range p.slots {
			if wrong := in.put(e, to, value); wrong != "" {
				return at, fmt.Sprintf("%s %.80q %s", p.name, value, wrong)
			}
		}
	}
	return 0, ""
}

// cutList cuts a line at the first literal behind a list. Its elements are separated by commas, or for
// nginx's upstream servers also by " : ".
func cutList(line, literal string) (value, rest string, found bool) {
	value, rest, found = cutLiteral(line, literal)
	for found && rest != "" {
		before := strings.TrimRight(value, " ")
		if !strings.HasSuffix(before, ",") && !strings.HasSuffix(before, " :") && !strings.HasPrefix(rest, ": ") {
			break
		}
		_, rest, found = cutLiteral(strings.TrimLeft(rest, " "), literal)
		value = strings.TrimSuffix(line[:len(line)-len(rest)], literal)
	}
	return value, rest, found
}

// cutLiteral cuts a line at the first literal, in which a blank matches several. If the literal begins with a quote, a
// quote behind a backslash does not count, and any other quote ends the value. Without a literal, it
// cuts at the first space.
func cutLiteral(line, literal string) (value, rest string, found bool) {
	if literal == "" { // the line's end
		end := strings.IndexByte(line, ' ')
		if end < 0 {
			end = len(line)
		}
		return line[:end], line[end:], true
	}
	for from := 0; ; from++ {
		at := strings.IndexByte(line[from:], literal[0])
		if at < 0 {
			return "", "", false
		}
		from += at
		if isQuote := literal[0] == '"'; isQuote && isEscaped(line, from) {
			continue
		} else if rest, found := trimLiteral(line[from:], literal); found || isQuote {
			return line[:from], rest, found
		}
	}
}

// isEscaped reports whether an odd number of backslashes stand before a character.
func isEscaped(line string, at int) bool {
	return (at-len(strings.TrimRight(line[:at], `\`)))%2 == 1
}

// trimLiteral returns a text without the literal at its beginning, in which a blank matches several.
func trimLiteral(text, literal string) (rest string, found bool) {
	for i := range len(literal) {
		if text == "" || text[0] != literal[i] {
			return "", false
		}
		if text = text[1:]; literal[i] == ' ' {
			text = strings.TrimLeft(text, " ")
		}
	}
	return text, true
}

var blanks = regexp.MustCompile(` +`)

var nginxVariable = regexp.MustCompile(`\$(?:\{([a-z0-9_]+)\}|([a-z0-9_]+))`)

// upstreamList matches the variables of nginx that have a value for each upstream server that was tried.
var upstreamList = regexp.MustCompile(`^\$\{?upstream_(addr|status|bytes_[a-z]+|[a-z]+_(time|length))\}?$`)

// newTemplate reads a log_format of nginx. slotsOf returns the slots of a variable.
func newTemplate(text string, slotsOf func(name string) []slot) (*template, error) {
	text = blanks.ReplaceAllString(text, " ")
	found := nginxVariable.FindAllStringIndex(text, -1)
	if len(found) == 0 {
		return nil, fmt.Errorf("the format %.80q has no variables: want a log_format as nginx has it, or the name of a format", text)
	}
	t := &template{before: text[:found[0][0]]}
	for i, at := range found {
		end := len(text)
		if i+1 < len(found) {
			if end = found[i+1][0]; end == at[1] {
				return nil, fmt.Errorf("the format has %s and %s without anything between, so they cannot be told apart", text[at[0]:at[1]], text[found[i+1][0]:found[i+1][1]])
			}
		}
		name := text[at[0]:at[1]]
		slots := slotsOf(strings.Trim(name, "${}"))
		isList := upstreamList.MatchString(name) || slices.ContainsFunc(slots, func(to slot) bool { return to.name == "client" })
		t.parts = append(t.parts, part{name, slots, text[at[1]:end], isList})
	}
	return t, nil
}

// variables maps variables of nginx, and of our own formats, to names of slots.
var variables = map[string]string{
	"remote_addr": "client", "weir_address_port": "client_port",
	"time_local": "time", "time_iso8601": "time", "msec": "time", "time": "time", "date": "date",
	"request": "request", "request_method": "method", "request_uri": "target", "weir_query": "query",
	"host": "host", "http_host": "host", "status": "status",
	"request_time": "took_s", "weir_milliseconds": "took_ms",
	"weir_user": "user", "weir_tier": "tier",
}

// known returns the slot of a variable that Options.Map does not name.
func known(name string, headers []string) (slot, bool) {
	header, isHeader := strings.CutPrefix(name, "http_")
	cookie, isCookie := strings.CutPrefix(name, "cookie_")
	switch to := variables[name]; {
	case to != "":
		return slotOf(to), true
	case name == "vhost", name == "ident", name == "go_log":
		return slot{name: name}, true
	case isHeader:
		name = http.CanonicalHeaderKey(strings.ReplaceAll(header, "_", "-"))
	case isCookie:
		name = "cookie:" + cookie
	case name == "content_length":
		name = "Content-Length"
	}
	return slot{name: name}, slices.Contains(headers, name)
}
