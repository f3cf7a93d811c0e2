package tokens

import (
	"bytes"
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

// add adds the member with this path, whose names are joined by dots.
func (n *node) add(path string, u use) {
	for name := range strings.SplitSeq(path, ".") {
		next := n.members[name]
		if next == nil {
			if next = new(node); n.members == nil {
				n.members = make(map[string]*node)
			}
			n.members[name] = next
		}
		n = next
	}
	n.use, n.early = u, strings.HasPrefix(path, "message.")
}

// A visitor is called for each value that has a node. The elements of an array have the array's node, also
// those of the outermost one.
type visitor interface {
	// begin says that a value begins with byte c.
	begin(n *node, c byte)
	// end says that a value has ended which began with byte c. text is what a string or a literal holds, without
	// what is beyond the scanner's buffer: length is its whole length.
	end(n *node, c byte, text []byte, length int64)
}

// A scanner reads JSON that comes in pieces, in constant memory. It accepts more than JSON.
type scanner struct {
	visitor visitor
	root    *node
	at      int64 // offset of what is read: in begin that of the value's first byte, in end behind its last
	state   state
	broken  bool // this is not JSON; all else is ignored

	depth  int
	levels [8]level // the outer containers

	first  byte // of the string or literal
	text   [40]byte
	length int64
	hex    rune // of \uXXXX
	digits int
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
	s.root, s.state, s.broken, s.depth = root, between, false, 0
}

// node returns the node of the value that is read or comes next, or nil.
func (s *scanner) node() *node {
	switch l := s.level(); {
	case s.depth == 0:
		return s.root
	case l == nil:
		return nil
	case l.object:
		return l.member
	default:
		return l.node
	}
}

// stringNode returns the node of the string that has begun and not ended, or nil.
func (s *scanner) stringNode() *node {
	if s.state == between || s.state == inLiteral || s.inKey() {
		return nil
	}
	return s.node()
}

// level returns the innermost container, or nil if it is too deep to have a node.
func (s *scanner) level() *level {
	if s.depth == 0 || s.depth > len(s.levels) {
		return nil
	}
	return &s.levels[s.depth-1]
}

// inKey reports whether a string is the name of a member. Too deep to have a node, it does not matter.
func (s *scanner) inKey() bool {
	l := s.level()
	return l != nil && l.key
}

func (s *scanner) write(p []byte) {
	for len(p) > 0 && !s.broken {
		n := s.step(p)
		p = p[n:]
		s.at += int64(n)
	}
	s.at += int64(len(p))
}

// step reads from the beginning of p, and returns how many bytes it has read.
func (s *scanner) step(p []byte) int {
	c := p[0]
	switch s.state {
	case between:
		s.structure(c)
	case inString:
		n := bytes.IndexAny(p, `"\`)
		if n != 0 {
			if n < 0 {
				n = len(p)
			}
			s.append(p[:n])
			return n
		}
		if s.state = between; c == '\\' {
			s.state = inEscape
		} else {
			s.at++
			s.scalar()
			s.at--
		}
	case inEscape:
		switch s.state = inString; c {
		case 'u':
			s.state, s.hex, s.digits = inHex, 0, 0
		case '"', '\\', '/':
			s.append(p[:1])
		default: // a control character
			s.append([]byte{' '})
		}
	case inHex:
		digit := strings.IndexByte("0123456789abcdef", c|0x20)
		if s.broken = digit < 0; s.broken {
			return 0
		}
		s.hex = s.hex<<4 | rune(digit)
		if s.digits++; s.digits == 4 {
			s.state = inString
			var utf [utf8.UTFMax]byte
			n := 2 // a half of four bytes
			if !utf16.IsSurrogate(s.hex) {
				n = utf8.EncodeRune(utf[:], s.hex)
			}
			s.append(utf[:n])
		}
	case inLiteral:
		n := bytes.IndexAny(p, " \t\r\n,:]}[{\"")
		if n != 0 {
			if n < 0 {
				n = len(p)
			}
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
	switch c {
	case ' ', '\t', '\r', '\n':
	case ':':
		if l := s.level(); l != nil {
			l.key = false
		}
	case ',':
		if l := s.level(); l != nil {
			l.key, l.member = l.object, nil
		}
	case '{', '[':
		n := s.node()
		if n != nil {
			s.visitor.begin(n, c)
		}
		s.depth++
		if l := s.level(); l != nil {
			*l = level{node: n, object: c == '{', key: c == '{'}
		}
	case '}', ']':
		l := s.level()
		if s.broken = s.depth == 0 || l != nil && l.object != (c == '}'); s.broken {
			return
		}
		if s.depth--; l != nil && l.node != nil {
			s.at++
			s.visitor.end(l.node, c-2, nil, 0) // '[' and '{' are two before them
			s.at--
		}
	default:
		s.first, s.length = c, 0
		if n := s.node(); n != nil && (c != '"' || !s.inKey()) {
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
	text := s.text[:min(s.length, int64(len(s.text)))]
	if s.first == '"' && s.inKey() {
		l := s.level()
		if l.member = nil; l.node != nil && s.length <= int64(len(s.text)) {
			l.member = l.node.members[string(text)]
		}
		return
	}
	if n := s.node(); n != nil {
		s.visitor.end(n, s.first, text, s.length)
	}
}
