package tokens

// A stream splits an event stream, which comes in pieces, into lines, and gives a meter the data of each event.
type stream struct {
	bom       int // bytes of a byte order mark, which may come first
	line      lineState
	name      int  // bytes of "data" that the line begins with
	fields    bool // the event has lines that are no comments
	cr        bool // the last byte was a carriage return: a line feed belongs to it
	head      [8]byte
	headLen   int  // bytes of head that the last line of data begins with
	usageOnly bool // the event that ended last has only the usage
}

type lineState byte

const (
	atName  lineState = iota
	atSpace           // one space may follow the colon
	inData
	inField // with another name
	inComment
)

// What next has found.
type found int

const (
	within   found = iota // more of an event
	comment               // the end of a comment outside of events
	eventEnd              // an empty line
	endTail               // the line feed of a carriage return that ended a comment or event
)

const (
	mark = "\ufeff"
	data = "data"
	done = "[DONE]" // the last event of a chat completion
)

// next reads from the beginning of p, to the end of a line at most, and returns how many bytes it has read.
func (s *stream) next(p []byte, m *meter) (n int, f found) {
	c := p[0]
	isTail := s.cr && c == '\n'
	s.cr = c == '\r'
	switch {
	case isTail && !s.fields:
		return 1, endTail
	case isTail:
		return 1, within
	case s.bom < len(mark) && c == mark[s.bom]:
		s.bom++
		return 1, within
	}
	s.bom = len(mark)
	switch {
	case c == '\n' || c == '\r':
		return 1, s.endLine(m)
	case s.line == atName:
		s.inName(c, m)
		return 1, within
	case s.line == atSpace:
		if s.line = inData; c == ' ' {
			return 1, within
		}
	}
	n = until(p, "\r\n")
	if s.line == inData {
		s.headLen += copy(s.head[s.headLen:], p[:n])
		if string(s.head[:s.headLen]) == done {
			m.final = m.final || m.before
		}
		m.write(p[:n])
	}
	return n, within
}

// inName reads a byte of a field's name, or the colon behind it.
func (s *stream) inName(c byte, m *meter) {
	if c == ':' && s.name == 0 {
		s.line = inComment
		return
	}
	s.fields = true
	switch {
	case s.name < len(data) && c == data[s.name]:
		s.name++
	case s.name == len(data) && c == ':':
		s.line, s.headLen = atSpace, 0
		m.write([]byte{'\n'}) // lines of data are joined by it
	default:
		s.line = inField
	}
}

func (s *stream) endLine(m *meter) found {
	line, isEmpty := s.line, s.line == atName && s.name == 0
	s.line, s.name = atName, 0
	switch {
	case isEmpty:
		s.usageOnly, s.fields = m.event.isUsageOnly(), false
		m.nextEvent()
		return eventEnd
	case line == inComment && !s.fields:
		return comment
	}
	return within
}
