package accesslog

import (
	"fmt"
	"strconv"
	"strings"
)

// A tree says which values of a line of JSON are wanted: those at its leaves.
type tree struct {
	name     string // of the member, or the index of the element
	slots    []int
	children []*tree
	met      bool // a line had it, if only as null

	// seen are the members of the objects here, in the order of one of them. Those of the next
	// object are mostly called the same.
	seen []seenMember
}

// A seenMember is a member's name as it is written, with quotes and colon, and what of its
// value is wanted.
type seenMember struct {
	text string
	tree *tree // nil: nothing
}

// mostSeen bounds how many names are remembered of an object.
const mostSeen = 64

// add grows a path such as $.request.headers["User-Agent"][0].
func (t *tree) add(path string, to int) error {
	at, err := t.leaf(path)
	if err == nil {
		at.slots = append(at.slots, to)
	}
	return err
}

// leaf is the end of a path, which grows where there is none.
func (t *tree) leaf(path string) (*tree, error) {
	names, err := splitPath(path)
	if err != nil {
		return nil, err
	}
	at := t
	for _, name := range names {
		next := at.child(name)
		if next == nil {
			next = &tree{name: name}
			at.children = append(at.children, next)
		}
		at = next
	}
	return at, nil
}

// meets calls found with every slot that a line had a value for, and forgets that it had.
func (t *tree) meets(found func(slot int)) {
	if t.met {
		for _, to := range t.slots {
			found(to)
		}
	}
	t.met = false
	for _, c := range t.children {
		c.meets(found)
	}
}

func (t *tree) child(name string) *tree {
	for _, c := range t.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

func splitPath(path string) (names []string, err error) {
	wrong := fmt.Errorf("%q is no path in JSON such as $.user.id or $.headers[\"X-Device\"][0]", path)
	rest, ok := strings.CutPrefix(path, "$")
	if !ok || rest == "" {
		return nil, wrong
	}
	for rest != "" {
		var name string
		switch {
		case strings.HasPrefix(rest, `["`):
			name, rest, ok = strings.Cut(rest[2:], `"]`)
		case rest[0] == '[':
			if name, rest, ok = strings.Cut(rest[1:], "]"); ok {
				_, err := strconv.ParseUint(name, 10, 16)
				ok = err == nil
			}
		case rest[0] == '.':
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			name, rest = rest[1:1+end], rest[1+end:]
		default:
			ok = false
		}
		if !ok || name == "" {
			return nil, wrong
		}
		names = append(names, name)
	}
	return names, nil
}

// A document is a line of JSON that is being read. It is read once, from its beginning to
// its end, and only what is wanted of it is decoded.
type document struct {
	*scanner
	e     *Entry
	text  string
	at    int
	wrong string
	depth int
}

// deepest is more than any log nests.
const deepest = 64

// parse reads a line into e. What is wrong with the line begins at its byte at.
func (t *tree) parse(s *scanner, e *Entry, line string) (at int, wrong string) {
	d := &document{scanner: s, e: e, text: line}
	d.space()
	if d.at == len(line) || line[d.at] != '{' {
		return d.at, "is no object of JSON"
	}
	if d.value(t) {
		if d.space(); d.at < len(line) {
			d.fail("goes on behind the object")
		}
	}
	return d.at, d.wrong
}

// A console is JSON as programs write it for people, behind a time and more: Caddy's format
// console, which it has on a terminal.
type console struct {
	object *tree
	time   int // its slot
}

// parse implements lineParser.
func (c *console) parse(s *scanner, e *Entry, line string) (at int, wrong string) {
	time, rest, tabbed := strings.Cut(line, "\t")
	begin := strings.Index(rest, "\t{") + 1
	if !tabbed || begin == 0 {
		return 0, "has no JSON behind a time and tabs"
	}
	if wrong := s.put(e, s.slots[c.time], time); wrong != "" {
		return 0, fmt.Sprintf("%.80q %s", time, wrong)
	}
	at, wrong = c.object.parse(s, e, rest[begin:])
	return len(time) + 1 + begin + at, wrong
}

func (d *document) fail(wrong string) bool {
	if d.wrong == "" {
		d.wrong = wrong
	}
	return false
}

func (d *document) space() {
	for d.at < len(d.text) && d.text[d.at] <= ' ' && isSpace(d.text[d.at]) {
		d.at++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// value reads any value; what of it is wanted, t says, which may be nil.
func (d *document) value(t *tree) bool {
	if d.space(); d.at == len(d.text) {
		return d.fail("ends within the JSON")
	}
	if t != nil {
		t.met = true
	}
	begin := d.at
	switch d.text[d.at] {
	case '"':
		if t != nil && len(t.slots) > 0 {
			if text, ok := d.plain(); ok {
				return d.put(t, begin, text)
			}
		}
		text, ok := d.quoted()
		if !ok || t == nil || len(t.slots) == 0 {
			return ok
		}
		if strings.IndexByte(text, '\\') >= 0 {
			text = unescape(text)
		}
		return d.put(t, begin, text)
	case '{', '[':
		if t == nil {
			return d.skip()
		}
		if d.depth++; d.depth > deepest {
			return d.fail("nests too deep")
		}
		ok := d.members(t, d.text[d.at] == '{')
		d.depth--
		return ok
	}
	d.bare()
	text := d.text[begin:d.at]
	if c := text; c == "" || c[0] != '-' && c[0]-'0' > 9 && c != "true" && c != "false" && c != "null" {
		d.at = begin
		return d.fail("has a value that is no JSON")
	}
	if t == nil || text == "null" {
		return true
	}
	return d.put(t, begin, text)
}

// bare passes over what is no string, object or array.
func (d *document) bare() {
	for ; d.at < len(d.text); d.at++ {
		if c := d.text[d.at]; c == ',' || c == ']' || c == '}' || c <= ' ' && isSpace(c) {
			return
		}
	}
}

// put gives a value to what it is for. What is empty or - is not there.
func (d *document) put(t *tree, begin int, text string) bool {
	if text == "" || text == "-" {
		return true
	}
	for _, to := range t.slots {
		if wrong := d.scanner.put(d.e, d.slots[to], text); wrong != "" {
			d.at = begin
			return d.fail(fmt.Sprintf("%q: %.80q %s", t.name, text, wrong))
		}
	}
	return true
}

// mostPlain is up to what length a string is read byte by byte.
const mostPlain = 40

// plain reads a string, if it is a short one without escapes, as most are.
func (d *document) plain() (text string, ok bool) {
	begin := d.at + 1
	for at := begin; at < min(len(d.text), begin+mostPlain); at++ {
		switch d.text[at] {
		case '"':
			d.at = at + 1
			return d.text[begin:at], true
		case '\\':
			return "", false
		}
	}
	return "", false
}

// quoted reads a string, without undoing escapes.
func (d *document) quoted() (text string, ok bool) {
	begin := d.at + 1
	for at := begin; ; {
		end := strings.IndexByte(d.text[at:], '"')
		if end < 0 {
			return "", d.fail("ends within a string")
		}
		if end += at; end == begin || d.text[end-1] != '\\' {
			d.at = end + 1
			return d.text[begin:end], true
		}
		backslashes := 0
		for end-backslashes > begin && d.text[end-1-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			d.at = end + 1
			return d.text[begin:end], true
		}
		at = end + 1
	}
}

// skip passes over an object or an array of which nothing is wanted.
func (d *document) skip() bool {
	for open := 0; d.at < len(d.text); d.at++ {
		switch d.text[d.at] {
		case '"':
			if _, ok := d.quoted(); !ok {
				return false
			}
			d.at--
		case '{', '[':
			open++
		case '}', ']':
			if open--; open == 0 {
				d.at++
				return true
			}
		}
	}
	return d.fail("ends within the JSON")
}

// name reads a member's name and the colon.
func (d *document) name() (name string, ok bool) {
	if d.text[d.at] != '"' {
		return "", d.fail("has a member without a name")
	}
	if name, ok = d.quoted(); !ok {
		return "", false
	}
	if d.space(); d.at == len(d.text) || d.text[d.at] != ':' {
		return "", d.fail("has a name without a value")
	}
	d.at++
	return name, true
}

// member is what is wanted of the member of that name, and which of those that were seen comes
// after it.
func (t *tree) member(name string) (child *tree, next int) {
	for i := range t.seen {
		if seen := &t.seen[i]; seen.text[1:len(seen.text)-2] == name {
			return seen.tree, i + 1
		}
	}
	child = t.child(name)
	if len(t.seen) < mostSeen {
		t.seen = append(t.seen, seenMember{`"` + name + `":`, child})
	}
	return child, len(t.seen)
}

// members reads what is in an object or an array.
func (d *document) members(t *tree, object bool) bool {
	end := byte(']')
	if object {
		end = '}'
	}
	d.at++
	expected := 0 // of t.seen
	for i := 0; ; i++ {
		if d.space(); d.at == len(d.text) {
			return d.fail("ends within the JSON")
		}
		if i == 0 && d.text[d.at] == end {
			d.at++
			return true
		}
		var child *tree
		switch {
		case object && expected < len(t.seen) && strings.HasPrefix(d.text[d.at:], t.seen[expected].text):
			d.at += len(t.seen[expected].text)
			child = t.seen[expected].tree
			expected++
		case object:
			name, ok := d.name()
			if !ok {
				return false
			}
			child, expected = t.member(name)
		case len(t.children) > 0:
			child = t.child(strconv.Itoa(i))
		}
		if !d.value(child) {
			return false
		}
		if d.space(); d.at == len(d.text) {
			return d.fail("ends within the JSON")
		}
		switch d.text[d.at] {
		case end:
			d.at++
			return true
		case ',':
			d.at++
		default:
			return d.fail("has no comma where one belongs")
		}
	}
}
