package accesslog

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Options say how a log is read. The zero Options are for one that says itself what it is.
type Options struct {
	// Format is one of [Formats], or a log_format as nginx has it. Empty: the one that fits the first lines.
	Format string

	// Map says where in a line a value is: "user" at "$.user.id" in JSON, at "$remote_user" in
	// a format of nginx.
	Map map[string]string

	// Headers are those that are wanted, where the format has them, in their canonical form;
	// and cookie:NAME for a cookie, and key:NAME for whatever Map says that it is. Of a user
	// agent, [Entry.UserAgent] is empty if User-Agent is not one of them.
	Headers []string
}

// A Reader reads a log.
type Reader struct {
	in     *bufio.Reader
	parser *parser
	lines  int64

	logged, begun window
	stats         Stats
}

// Stats are what was found in a log so far.
type Stats struct {
	Format  string `json:"format"`
	Entries int64  `json:"entries"` // that were read

	// Broken is how many lines could not be read, and First are the first ten of them.
	Broken int64    `json:"broken"`
	First  []Broken `json:"broken_first,omitempty"`

	// Whole says that times are whole seconds: requests of one second are spread evenly over
	// it. Took says that times were those of answers, and how long they took is subtracted.
	Whole, Took bool `json:"-"`

	// Long is how many requests took so long that others, which came later, were already
	// told of: they are taken to have come then.
	Long int64 `json:"-"`
}

// A Broken is a line that could not be read.
type Broken struct {
	Line int64  `json:"line"` // from 1
	Byte int    `json:"byte"` // of the line, from 1, at which it is wrong
	Why  string `json:"why"`
}

func (b Broken) String() string { return fmt.Sprintf("line %d, byte %d: %s", b.Line, b.Byte, b.Why) }

// NewReader reads the beginning of a log, which may be compressed with gzip, and finds out its format.
func NewReader(from io.Reader, o Options) (*Reader, error) {
	found, err := candidates(o)
	if err != nil {
		return nil, err
	}
	in, err := decompressed(from)
	if err != nil {
		return nil, err
	}
	r := &Reader{in: in, logged: window{size: loggedWindow}, begun: window{size: begunWindow}}
	begin, err := r.in.Peek(longestLine)
	if len(begin) == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = errEmpty
		}
		return nil, err
	}
	if end := bytes.LastIndexByte(begin, '\n'); err == nil && end >= 0 {
		begin = begin[:end] // whole lines
	}
	var first [][]byte
	for line := range bytes.Lines(begin) {
		first = append(first, trimmed(line))
	}
	if r.parser, err = fitting(found, first[:min(len(first), sample)]); err != nil {
		return nil, cmp.Or(misplaced(o, first[:min(len(first), sample)]), err)
	}
	r.parser.begin(first)
	r.stats.Format = r.parser.name
	return r, nil
}

var errEmpty = errors.New("the log is empty")

const (
	longestLine = 1 << 20
	sample      = 100 // lines that say what the format is
)

// usual is the name of the format of which others are variants.
const usual = "combined"

// fitting is the parser that reads the most of these lines.
func fitting(found []*parser, lines [][]byte) (*parser, error) {
	var best *parser
	most := 0
	first := slices.IndexFunc(lines, func(line []byte) bool { return len(bytes.TrimSpace(line)) > 0 && line[0] != '#' })
	if first < 0 {
		return nil, errEmpty
	}
	closest, furthest, why := found[0], -1, ""
	for _, p := range found {
		fit := 0
		for i, line := range lines {
			var e Entry
			at, wrong := p.parse(&e, line)
			if wrong == "" {
				fit++
			} else if i == first && (at > furthest || at == furthest && p.name == usual) {
				closest, furthest, why = p, at, wrong
			}
		}
		if fit > most && (best == nil || p.name != anything) {
			best, most = p, fit
		}
	}
	if best != nil {
		return best, nil
	}
	begins := "the first is"
	if first > 0 {
		begins = fmt.Sprintf("line %d is", first+1)
	}
	switch {
	case len(found) == 1:
		return nil, fmt.Errorf("no line fits the format; the first fails at byte %d: %s: %.100q", furthest+1, said(why), lines[first])
	case furthest == 0:
		return nil, fmt.Errorf("no line fits a format that is known (%s), nor is it said with --format; %s %.100q", strings.Join(Formats(), ", "), begins, lines[first])
	}
	return nil, fmt.Errorf("no line fits a format that is known; %s comes closest to the first, and fails at byte %d: %s: %.100q", closest.name, furthest+1, said(why), lines[first])
}

// said is what is wrong with a line, as a part of a sentence.
func said(wrong string) string {
	switch verb, _, _ := strings.Cut(wrong, " "); verb {
	case "has", "is", "goes", "ends", "nests", "comes", "does":
		return "it " + wrong
	}
	return wrong
}

// misplaced is what is wrong with Options.Map, if a format fits these lines without it.
func misplaced(o Options, lines [][]byte) error {
	told := o
	o.Map = nil
	found, err := candidates(o)
	if err != nil || len(told.Map) == 0 {
		return nil
	}
	fits, err := fitting(found, lines)
	if err != nil {
		return nil
	}
	if _, err = newParser(fits.format, told); err == nil {
		return nil
	}
	return fmt.Errorf("the log is %s, and %w", fits.name, err)
}

// Has reports whether the log has user, tier, host, client, method, target or status.
func (r *Reader) Has(name string) bool { return r.parser.has[fieldNames[name]] }

// HasHeader reports whether it has a header.
func (r *Reader) HasHeader(name string) bool {
	p := r.parser
	switch {
	case name == "User-Agent" && p.has[fieldUserAgent]:
		return true
	case name == "X-Forwarded-For" && p.has[fieldForwardedFor]:
		return true
	}
	return p.hasHeader[slices.Index(p.headers, name)]
}

// Headers are the names of [Entry.Headers].
func (r *Reader) Headers() []string { return r.parser.headers }

// Stats are what was found so far.
func (r *Reader) Stats() Stats { return r.stats }

// Next is the next request, in the order of time, or io.EOF.
func (r *Reader) Next() (*Entry, error) {
	next := r.spread
	if r.ordersBegun() {
		next = func() (*Entry, error) { return r.begun.next(r.spread, false) }
	}
	e, err := next()
	switch {
	case err == nil:
		r.stats.Entries++
	case errors.Is(err, io.EOF):
		return nil, r.ended()
	}
	return e, err
}

// ended is io.EOF, or what is wrong with a log that was read to its end.
func (r *Reader) ended() error {
	switch place := r.parser.unmet(); {
	case r.stats.Entries > 0 && place != "":
		return fmt.Errorf("no line has anything at %s", place)
	case r.stats.Entries > 0:
		return io.EOF
	case len(r.stats.First) == 0:
		return errEmpty
	}
	return fmt.Errorf("no line could be read; the first: %v", r.stats.First[0])
}

// ordersBegun reports whether entries come in the order in which requests began, and not in the
// log's.
func (r *Reader) ordersBegun() bool { return r.parser.has[fieldTook] && !r.parser.begins }

// spread is the next in the order of the log's times, with the time at which it began.
func (r *Reader) spread() (*Entry, error) {
	e, err := r.logged.next(r.parse, true)
	if err != nil {
		return nil, err
	}
	if e.Took > 0 && !r.parser.begins {
		e.At -= e.Took.Microseconds()
		r.stats.Took = true
		if e.At < r.begun.floor {
			r.stats.Long++
		}
	}
	e.At = max(e.At, r.begun.floor, 1)
	return e, nil
}

// parse is the next line that can be read.
func (r *Reader) parse() (*Entry, error) {
	for {
		line, tooLong, err := r.line()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		e := &Entry{line: r.lines}
		at, wrong := 0, "is longer than 1 MiB"
		if !tooLong {
			at, wrong = r.parser.parse(e, line)
		}
		if wrong != "" {
			if r.stats.Broken++; len(r.stats.First) < 10 {
				r.stats.First = append(r.stats.First, Broken{r.lines, at + 1, wrong})
			}
			continue
		}
		if r.parser.whole {
			e.whole, r.stats.Whole = true, true
		}
		if e.At < r.logged.floor {
			return nil, fmt.Errorf("line %d is %v older than lines more than %d before it: sort the log by time", r.lines, micros(r.logged.floor-e.At), loggedWindow)
		}
		return e, nil
	}
}

// line is the next line, until the one after it is read. One that is too long is passed over.
func (r *Reader) line() (line []byte, tooLong bool, err error) {
	line, err = r.in.ReadSlice('\n')
	if len(line) == 0 && err != nil {
		return nil, false, err
	}
	r.lines++
	line = trimmed(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		_, err = r.in.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	return line, tooLong, nil
}

// trimmed is a line without its end.
func trimmed(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
