package tokens

// A stream splits an event stream, which comes in pieces, into lines, and gives the data of each event to a meter.
type stream struct {
	meter  *meter
	bom    int // bytes of a byte order mark, which may come first
	line   lineState
	name   int  // bytes of "data" that the line begins with
	cr     bool // the last byte was a carriage return: a line feed belongs to it
	fields bool // the event has a line that is not a comment, or the beginning of one

	passed bool // a byte of the event has been forwarded
	remove bool // what was read last ends an event that has only the usage, and no byte of the event was forwarded
}

type lineState byte

const (
	inName  lineState = iota
	atSpace           // one space may follow the colon
	inData
	inOther // a comment, or another field
)

const (
	mark = "\ufeff"
	data = "data"
)

// next reads from the beginning of p, to the end of a line at most, and returns how many bytes it has read.
func (s *stream) next(p []byte) int {
	c, isTail := p[0], s.cr && p[0] == '\n'
	if s.cr = c == '\r'; isTail {
		return 1
	}
	s.remove = false
	if s.bom < len(mark) && c == mark[s.bom] {
		s.bom++
		return 1
	}
	switch s.bom = len(mark); {
	case c == '\n' || c == '\r':
		if s.line == inName && s.name == 0 { // an event ends
			s.remove = !s.passed && s.meter.event.isUsageOnly()
			s.fields, s.passed = false, false
			s.meter.nextEvent()
		}
		s.line, s.name = inName, 0
		return 1
	case s.line == inName:
		s.readName(c)
		return 1
	case s.line == atSpace:
		if s.line = inData; c == ' ' {
			return 1
		}
	}
	n := until(p, lineStops)
	if s.line == inData {
		s.meter.write(p[:n])
	}
	return n
}

// readName reads a byte of a field's name, or the colon behind it.
func (s *stream) readName(c byte) {
	isComment := s.name == 0 && c == ':'
	s.fields = s.fields || !isComment
	switch {
	case s.name < len(data) && c == data[s.name]:
		s.name++
	case s.name == len(data) && c == ':':
		s.line = atSpace
		s.meter.write([]byte{'\n'}) // which joins lines of data
	default:
		s.line = inOther
	}
}

// isHeld reports whether what was read of the event must not be forwarded yet.
func (s *stream) isHeld() bool {
	return s.fields && !s.passed && !s.meter.broken && s.meter.event.mayBeUsageOnly()
}
