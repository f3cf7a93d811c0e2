package serverlimit

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// readList reads a line of the RateLimit field: since draft 08 a List of RFC 9651
// ("default";r=50;t=30), in draft 07 a Dictionary (limit=100, remaining=50, reset=5).
// A line that is neither is ignored, as the drafts want.
func (c *collector) readList(prefix, line string) {
	if !isList(line) {
		c.readDictionary(prefix, line)
		return
	}
	for p := (parser{rest: line}); ; {
		m, more := p.member()
		if !more {
			return
		}
		q := unsaid(m.name)
		switch {
		case m.name != "" && m.params.r != Unsaid:
			q.Remaining = m.params.r
			q.setSeconds(m.params.t)
			c.add(&slot{Quota: q, prefix: prefix, listed: true})
		case m.integer != Unsaid:
			q.Limit = m.integer // Zendesk's X-Rate-Limit: 700
			c.add(&slot{Quota: q, prefix: prefix})
		}
	}
}

// readDictionary reads a line of draft 07.
func (c *collector) readDictionary(prefix, line string) {
	q := unsaid("")
	p := parser{rest: line}
	for {
		key, n, more := p.entry()
		if !more {
			break
		}
		switch key {
		case "limit":
			q.Limit = n
		case "remaining":
			q.Remaining = n
		case "reset":
			q.setSeconds(n)
		}
	}
	if !p.failed {
		c.add(&slot{Quota: q, prefix: prefix})
	}
}

// readPolicy reads a line of the RateLimit-Policy field: "burst";q=100;w=60, and in drafts up
// to 07 100;w=60, which is about the quota without a name that has this limit.
func (c *collector) readPolicy(prefix, line string) {
	if !isList(line) {
		return
	}
	for p := (parser{rest: line}); ; {
		m, more := p.member()
		if !more {
			return
		}
		q := unsaid(m.name)
		q.Window = seconds(m.params.w)
		switch {
		case m.name != "" && m.params.q != Unsaid:
			q.Limit, q.Unit = m.params.q, m.params.unit
			if q.Unit == "" {
				q.Unit = "requests" // the draft's default
			}
			c.add(&slot{Quota: q, prefix: prefix, listed: true})
		case m.integer != Unsaid:
			if i := c.find(prefix, ""); i >= 0 && c.slots[i].Limit == m.integer {
				c.slots[i].join(q)
			}
		}
	}
}

func (q *Quota) setSeconds(n int64) {
	if n != Unsaid {
		q.setReset(span{time.Duration(min(n, 2*yearSeconds)) * time.Second, time.Second})
	}
}

// A parser reads Structured Fields (RFC 9651) without keeping what limits do not need. It takes
// a parameter of the wrong type for one that is not there, and anything against the grammar
// for the end: then failed is set. A test holds it equal to an independent parser.
type parser struct {
	rest   string
	begun  bool
	failed bool
}

// A member is one of a List.
type member struct {
	name    string // of a String or Token
	integer int64  // of an Integer; or Unsaid
	params  params
}

// params are the parameters that limits have. Numbers are 0 or more, or Unsaid.
type params struct {
	r, t, q, w int64
	unit       string
}

var noParams = params{Unsaid, Unsaid, Unsaid, Unsaid, ""}

// isList reports whether the whole line is a List.
func isList(line string) bool {
	p := parser{rest: line}
	for {
		if _, more := p.member(); !more {
			return !p.failed
		}
	}
}

// member reads the next member of a List. Of an inner list it reads the parameters alone.
func (p *parser) member() (m member, ok bool) {
	if !p.next() {
		return m, false
	}
	v := p.itemOrInnerList()
	m = member{integer: v.integer, params: p.params()}
	if v.text != "" {
		m.name = v.text[:min(len(v.text), maxName)]
	}
	return m, !p.failed
}

// entry reads the next entry of a Dictionary. n is its value if that is an Integer of 0 or more;
// else Unsaid.
func (p *parser) entry() (key string, n int64, ok bool) {
	if !p.next() {
		return "", 0, false
	}
	key, n = p.key(), Unsaid
	if p.take('=') {
		n = p.itemOrInnerList().integer
	}
	p.params()
	return key, n, !p.failed
}

// next goes to the next member of a List or Dictionary, over the comma, and reports whether
// there is one.
func (p *parser) next() bool {
	if p.failed {
		return false
	}
	if !p.begun {
		p.begun = true
		p.rest = strings.Trim(p.rest, " ")
		return p.rest != ""
	}
	p.rest = strings.TrimLeft(p.rest, " \t")
	if p.rest == "" {
		return false
	}
	if !p.take(',') {
		return p.fail()
	}
	p.rest = strings.TrimLeft(p.rest, " \t")
	return p.rest != "" || p.fail()
}

func (p *parser) fail() bool {
	p.failed = true
	p.rest = ""
	return false
}

func (p *parser) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// A value is a bare item: text of a String or Token, an Integer of 0 or more, or neither.
type value struct {
	text    string
	integer int64
}

var neither = value{integer: Unsaid}

func (p *parser) itemOrInnerList() value {
	if !p.take('(') {
		return p.item()
	}
	for {
		p.rest = strings.TrimLeft(p.rest, " ")
		if p.take(')') {
			return neither
		}
		p.item()
		p.params()
		if p.rest == "" || p.rest[0] != ' ' && p.rest[0] != ')' {
			p.fail()
			return neither
		}
	}
}

func (p *parser) item() value {
	if p.rest == "" {
		p.fail()
		return neither
	}
	switch c := p.rest[0]; {
	case c == '"':
		return value{text: p.quoted(), integer: Unsaid}
	case c == '-' || isDigit(c):
		return value{integer: p.number()}
	case c == '*' || isAlpha(c):
		return value{text: p.span(isToken), integer: Unsaid}
	case c == '?':
		p.rest = p.rest[1:]
		if !p.take('0') && !p.take('1') {
			p.fail()
		}
	case c == '@':
		p.rest = p.rest[1:]
		p.take('-')
		if digits := p.span(isDigit); digits == "" || len(digits) > 15 {
			p.fail()
		}
	case c == ':':
		p.rest = p.rest[1:]
		p.span(isBase64)
		if !p.take(':') {
			p.fail()
		}
	case strings.HasPrefix(p.rest, `%"`):
		p.rest = p.rest[2:]
		p.display()
	default:
		p.fail()
	}
	return neither
}

// number reads an Integer or a Decimal, and returns an Integer of 0 or more.
func (p *parser) number() int64 {
	negative := p.take('-')
	digits := p.span(isDigit)
	if digits == "" || len(digits) > 15 {
		p.fail()
		return Unsaid
	}
	if p.take('.') {
		if decimals := p.span(isDigit); decimals == "" || len(decimals) > 3 || len(digits) > 12 {
			p.fail()
		}
		return Unsaid
	}
	n, _ := strconv.ParseInt(digits, 10, 64)
	if negative && n != 0 {
		return Unsaid
	}
	return n
}

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// quoted reads a String, whose first byte is a quotation mark. One with escapes is copied.
func (p *parser) quoted() string {
	p.take('"')
	escaped := false
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			s := p.rest[:i]
			p.rest = p.rest[i+1:]
			if escaped {
				s = unescape.Replace(s)
			}
			return s
		case c == '\\':
			if i++; i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				p.fail()
				return ""
			}
			escaped = true
		case c < ' ' || c > '~':
			p.fail()
			return ""
		}
	}
	p.fail()
	return ""
}

// display reads a Display String behind its quotation mark: bytes of UTF-8, of which those that
// are not printable ASCII are % and two digits, in lower case.
func (p *parser) display() {
	var text []byte
	for p.rest != "" {
		c := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case c == '"':
			if !utf8.Valid(text) {
				p.fail()
			}
			return
		case c == '%':
			n, err := strconv.ParseUint(p.rest[:min(2, len(p.rest))], 16, 8)
			if err != nil || len(p.rest) < 2 || strings.ContainsAny(p.rest[:2], "ABCDEF+") {
				p.fail()
				return
			}
			text, p.rest = append(text, byte(n)), p.rest[2:]
		case c < ' ' || c > '~':
			p.fail()
			return
		default:
			text = append(text, c)
		}
	}
	p.fail()
}

func (p *parser) params() params {
	all := noParams
	for !p.failed && p.take(';') {
		p.rest = strings.TrimLeft(p.rest, " ")
		key, v := p.key(), neither
		if p.take('=') {
			v = p.item()
		}
		switch key {
		case "r":
			all.r = v.integer
		case "t":
			all.t = v.integer
		case "q":
			all.q = v.integer
		case "w":
			all.w = v.integer
		case "qu":
			all.unit = v.text
		}
	}
	return all
}

func (p *parser) key() string {
	if p.rest == "" || p.rest[0] != '*' && (p.rest[0] < 'a' || p.rest[0] > 'z') {
		p.fail()
		return ""
	}
	return p.span(isKey)
}

// span takes the bytes at the beginning for which is holds.
func (p *parser) span(is func(byte) bool) string {
	i := 0
	for i < len(p.rest) && is(p.rest[i]) {
		i++
	}
	s := p.rest[:i]
	p.rest = p.rest[i:]
	return s
}

func isAlpha(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isToken(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

func isKey(c byte) bool {
	return 'a' <= c && c <= 'z' || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
}

func isBase64(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("+/=", c) >= 0
}
