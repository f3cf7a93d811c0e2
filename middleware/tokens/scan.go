package tokens

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A node is a member that a visitor wants to know about, or leads to one.
type node struct {
	use     use
	early   bool // what it counts may grow before the answer ends
	members map[string]*node
}

// tree returns the root of these members. The names of a path are joined by dots.
func tree(dialects ...map[use][]string) *node {
	root := &node{members: make(map[string]*node)}
	for _, members := range dialects {
		for u, paths := range members {
			for _, path := range paths {
				n := root
				for name := range strings.SplitSeq(path, ".") {
					if n.members[name] == nil {
						n.members[name] = &node{members: make(map[string]*node)}
					}
					n = n.members[name]
				}
				n.use, n.early = u, strings.HasPrefix(path, "message.")
			}
		}
	}
	return root
}

// A visitor is called for each value that has a node. The elements of an array have the array's node, in
// the outermost array too.
type visitor interface {
	// begin says that a value begins with byte c.
	begin(n *node, c byte)
	// end says that a value has ended which began with byte c. text is what a string or a literal holds, without
	// what is beyond the scanner's buffer. length is its whole length.
	end(n *node, c byte, text []byte, length int64)
}

// A scanner reads JSON that comes in pieces, in constant memory. It accepts more than JSON.
type scanner struct {
	visitor visitor
	at      int // offset of a value that begins, and of the byte behind a literal that ends
	state   state
	broken  bool // this is not JSON; all else is ignored

	depth  int      // so many containers are open
	levels [9]level // the first is outside of them all; the last is each that is too deep to have a node

	first  byte // of the string or literal
	text   [40]byte
	length int64
	hex    rune // the digits of a \u escape read so far, with a 1 in front that counts them
}

// A level is an array or object that is not closed.
type level struct {
	node   *node // of the container; nil: none
	member *node // of the member whose value is read
	object bool
	key    bool // the next string is a key
}

type state byte

const (
	between state = iota
	inString
	inEscape
	inHex
	inLiteral
)

// start makes s begin with a new value.
func (s *scanner) start(root *node) {
	s.levels[0].node, s.state, s.broken, s.depth = root, between, false, 0
}

func (s *scanner) level() *level { return &s.levels[min(s.depth, len(s.levels)-1)] }

// node returns the node of the value that is read or comes next, or nil.
func (s *scanner) node() *node {
	if l := s.level(); l.object {
		return l.member
	} else {
		return l.node
	}
}

func (s *scanner) write(p []byte) {
	for len(p) > 0 && !s.broken {
		n := s.step(p)
		p = p[n:]
		s.at += n
	}
}

// A set is a set of bytes.
type set [256]bool

func setOf(members string) *set {
	var s set
	for i := range len(members) {
		s[members[i]] = true
	}
	return &s
}

var (
	stringStops  = setOf(`"\`)
	literalStops = setOf(" \t\r\n,:]}[{\"")
	lineStops    = setOf("\r\n")
)

// until returns how many bytes of p are before the first of stops.
func until(p []byte, stops *set) int {
	for i, c := range p {
		if stops[c] {
			return i
		}
	}
	return len(p)
}

// step reads from the beginning of p, and returns how many bytes it has read.
func (s *scanner) step(p []byte) int {
	c := p[0]
	switch s.state {
	case between:
		s.structure(c)
	case inString:
		if n := until(p, stringStops); n > 0 {
			s.append(p[:n])
			return n
		}
		if s.state = inEscape; c == '"' {
			s.state = between
			s.scalar()
		}
	case inEscape:
		switch s.state = inString; c {
		case 'u':
			s.state, s.hex = inHex, 1
		case '"', '\\', '/':
			s.append(p[:1])
		default: // a control character
			s.append([]byte{' '})
		}
	case inHex:
		digit := strings.IndexByte("0123456789abcdef", c|0x20)
		s.broken = digit < 0
		if s.hex = s.hex<<4 | rune(digit); s.hex > 0xffff {
			s.state = inString
			var utf [utf8.UTFMax]byte
			n := utf8.EncodeRune(utf[:], s.hex&0xffff)
			if utf16.IsSurrogate(s.hex & 0xffff) {
				n = 2 // half of a character
			}
			s.append(utf[:n])
		}
	case inLiteral:
		if n := until(p, literalStops); n > 0 {
			s.append(p[:n])
			return n
		}
		s.state = between
		s.scalar()
		return 0
	}
	return 1
}

// structure reads a byte outside of strings and literals.
func (s *scanner) structure(c byte) {
	l := s.level()
	switch c {
	case ' ', '\t', '\r', '\n':
	case ':':
		l.key = false
	case ',':
		l.key, l.member = l.object, nil
	case '{', '[':
		n := s.node()
		if n != nil {
			s.visitor.begin(n, c)
		}
		if s.depth++; s.depth >= len(s.levels)-1 {
			n = nil
		}
		*s.level() = level{node: n, object: c == '{', key: c == '{'}
	case '}', ']':
		s.broken = s.depth == 0 || s.depth < len(s.levels)-1 && l.object != (c == '}')
		if s.broken {
			return
		}
		if s.depth--; l.node != nil {
			s.visitor.end(l.node, c-2, nil, 0) // '[' and '{' are two before them
		}
	default:
		s.first, s.length = c, 0
		if n := s.node(); n != nil && (c != '"' || !l.key) {
			s.visitor.begin(n, c)
		}
		if s.state = inString; c != '"' {
			s.state = inLiteral
			s.append([]byte{c})
		}
	}
}

// append adds to the text of the string or literal.
func (s *scanner) append(p []byte) {
	if s.length < int64(len(s.text)) {
		copy(s.text[s.length:], p)
	}
	s.length += int64(len(p))
}

// scalar ends a string, which may be a key, or a literal.
func (s *scanner) scalar() {
	l, text := s.level(), s.text[:min(s.length, int64(len(s.text)))]
	if s.first == '"' && l.key {
		if l.member = nil; l.node != nil && s.length == int64(len(text)) {
			l.member = l.node.members[string(text)]
		}
	} else if n := s.node(); n != nil {
		s.visitor.end(n, s.first, text, s.length)
	}
}
