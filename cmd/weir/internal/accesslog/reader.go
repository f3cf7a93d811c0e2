package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Options say how to read a log. With the zero Options the log's first lines decide.
type Options struct {
	// Format is one of [Formats], or a log_format of nginx. Empty: the format that fits the first lines.
	Format string

	// Map maps names to places in a line: "user" to "$.user.id" in JSON, or to "$remote_user" in a
	// format of nginx.
	Map map[string]string

	// Zone is the zone of times that have none. Nil: such a time is an error, but in formats whose times are in UTC.
	Zone *time.Location

	// Headers lists the headers to read, in canonical form, cookie:NAME for a cookie, and key:NAME
	// for a value that Map names.
	Headers []string
}

// A Reader reads a log.
type Reader struct {
	in     *bufio.Reader
	parser *parser
	lines  int64
	window window
	stats  Stats
	unread int64 // Broken lines that may be about requests
}

// Stats describe the log as far as it was read.
type Stats struct {
	Format  string `json:"format"`
	Entries int64  `json:"entries"` // requests that were read

	// Broken is the number of lines that could not be read, and First the first ten.
	Broken int64    `json:"broken"`
	First  []Broken `json:"broken_first,omitempty"`

	// Whole says that times are whole seconds, and that the requests of a second were spread evenly
	// over it. Took says that durations were subtracted from the times of answers.
	Whole, Took bool `json:"-"`

	// Long is the number of requests that began before requests that Next had already returned.
	// They count as if they had begun after these.
	Long int64 `json:"-"`
}

// A Broken is a line that could not be read.
type Broken struct {
	Line int64  `json:"line"` // from 1
	Byte int    `json:"byte"` // where the line is wrong, from 1
	Why  string `json:"why"`
}

func (b Broken) String() string { return fmt.Sprintf("line %d, byte %d: %s", b.Line, b.Byte, b.Why) }

// NewReader reads the beginning of a log and determines its format. The log may be compressed with gzip.
func NewReader(from io.Reader, o Options) (*Reader, error) {
	found, err := candidates(o)
	if err != nil {
		return nil, err
	}
	in, err := decompressed(from)
	if err != nil {
		return nil, err
	}
	r := &Reader{in: in, window: window{lines: map[int64]uint32{}}}
	begin, err := r.in.Peek(longestLine)
	if len(begin) == 0 && (err == nil || errors.Is(err, io.EOF)) {
		return nil, errEmpty
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, unreadable(err)
	}
	if end := bytes.LastIndexByte(begin, '\n'); err == nil && end >= 0 {
		begin = begin[:end] // drop the incomplete line
	}
	var first [][]byte
	for line := range bytes.Lines(begin) {
		first = append(first, trimmed(line))
	}
	if r.parser, err = fitting(found, first, err == nil); err != nil {
		return nil, err
	}
	r.stats.Format = r.parser.name
	return r, nil
}

// decompressed returns a reader of the plain text. A gzip file may have several parts.
func decompressed(from io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(from, longestLine)
	begin, err := in.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, unreadable(err)
	}
	if !bytes.Equal(begin, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	plain, err := gzip.NewReader(in)
	if err != nil {
		return nil, unreadable(err)
	}
	return bufio.NewReaderSize(plain, longestLine), nil
}

// unreadable is the error of a file that fails, or of gzip that is cut off or damaged.
func unreadable(err error) error { return fmt.Errorf("the log cannot be read: %w", err) }

var errEmpty = errors.New("the log is empty")

const (
	longestLine = 1 << 20
	sample      = 100 // lines by which the format is chosen, if one fits a format
)

// fitting looks for the first sample in which some parser reads a line, and returns the first parser that reads
// more than half as many lines of it as any other. further says that the log has more lines: the first good line of a
// named format may then come later.
func fitting(found []*parser, lines [][]byte, further bool) (*parser, error) {
	first := slices.IndexFunc(lines, func(line []byte) bool { return len(bytes.TrimSpace(line)) > 0 && line[0] != '#' })
	if first < 0 {
		return nil, errEmpty
	}
	for some := range slices.Chunk(lines, sample) {
		fits, most := make([]int, len(found)), 0
		for i, p := range found {
			if fits[i] = p.fit(some); p.name != anything || most == 0 {
				most = max(most, fits[i])
			}
		}
		for i, p := range found {
			if fits[i] > 0 && 2*fits[i] > most {
				p.begin(lines)
				return p, nil
			}
		}
	}
	at, wrong := 0, "" // of the format that reads the most of the first line, which may be no request
	for i, line := range lines {
		for _, p := range found {
			to, why := p.parse(&Entry{}, line)
			if strings.HasSuffix(why, noZone) {
				return nil, fmt.Errorf("line %d fails at byte %d: %s", i+1, to+1, why)
			}
			if i == first && (wrong == "" || to > at || why == noTime) {
				at, wrong = to, why
			}
		}
	}
	if p := found[0]; further && len(found) == 1 && p.name != anything {
		return p, nil // it requires all fields that the format has
	}
	if found[0].name == found[len(found)-1].name {
		return nil, fmt.Errorf("no line fits the format; line %d fails at byte %d: %s: %.100q", first+1, at+1, wrong, lines[first])
	}
	text := fmt.Sprintf("no line fits a known format: name one with --format (%s, or a log_format), to see where it fails; line %d is %.100q",
		strings.Join(Formats(), ", "), first+1, lines[first])
	if at > 0 || wrong == noTime {
		text += fmt.Sprintf(", which fails at byte %d: %s", at+1, wrong)
	}
	return nil, errors.New(text)
}

// fit returns how many of these lines p reads, or 0 if no line speaks for the format.
func (p *parser) fit(lines [][]byte) (fit int) {
	speaks := false
	for _, line := range lines {
		var e Entry
		if _, wrong := p.parse(&e, line); wrong != "" {
			continue
		}
		says := p.speaks(&e)
		if says >= 0 {
			fit++
		}
		speaks = speaks || says > 0
	}
	if !speaks {
		return 0
	}
	return fit
}

// Has reports whether the log has a header, or a field such as user, tier, host or took.
func (r *Reader) Has(name string) bool { return r.parser.has[name] }

// Headers returns the names of [Entry.Headers].
func (r *Reader) Headers() []string { return r.parser.headers }

// Stats returns the statistics so far.
func (r *Reader) Stats() Stats { return r.stats }

// Next returns the next request, in the order in which they came, or io.EOF.
func (r *Reader) Next() (*Entry, error) {
	e, err := r.window.next(r.parse)
	switch {
	case err == nil:
		r.stats.Entries++
	case errors.Is(err, io.EOF):
		return nil, r.ended()
	}
	return e, err
}

// ended returns io.EOF, or what is wrong with the whole log.
func (r *Reader) ended() error {
	switch place := r.parser.unmet(); {
	case r.stats.Entries > 0 && place != "":
		return fmt.Errorf("no line has anything at %s", place)
	case r.stats.Entries > 0 && r.unread > r.stats.Entries:
		return fmt.Errorf("only %d of %d lines could be read, so a result would say little: say how lines are written with --format, or leave out those that are about no request; %v",
			r.stats.Entries, r.stats.Entries+r.stats.Broken, r.stats.First[0])
	case r.stats.Entries > 0:
		return io.EOF
	case len(r.stats.First) == 0:
		return errEmpty
	}
	return fmt.Errorf("no line could be read; the first: %v", r.stats.First[0])
}

// parse returns the entry of the next line that can be read.
func (r *Reader) parse() (*Entry, error) {
	for {
		line, tooLong, err := r.line()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) == 0 || r.parser.utc && line[0] == '#' {
			continue
		}
		e := &Entry{line: r.lines}
		at, wrong := 0, "is longer than 1 MiB"
		if !tooLong {
			at, wrong = r.parser.parse(e, line)
		}
		if strings.HasSuffix(wrong, noRequest) {
			continue
		}
		if wrong != "" {
			if !strings.HasSuffix(wrong, noStatus) && !strings.HasSuffix(wrong, noAccess) {
				r.unread++
			}
			if r.stats.Broken++; len(r.stats.First) < 10 {
				r.stats.First = append(r.stats.First, Broken{r.lines, at + 1, wrong})
			}
			continue
		}
		if err := r.begin(e); err != nil {
			return nil, err
		}
		return e, nil
	}
}

// begin turns the line's time into the time at which the request began.
func (r *Reader) begin(e *Entry) error {
	until := e.At // the latest time that the line can mean
	if r.parser.digits == 0 {
		r.stats.Whole = true
		until += second
		e.At += r.window.spread(e.At)
	}
	if until < r.window.floor {
		return fmt.Errorf("line %d is %v older than lines more than %d before it: sort the log by time", r.lines, time.Duration(r.window.floor-e.At)*time.Microsecond, windowSize)
	}
	if e.Took > 0 && !r.parser.begins {
		r.stats.Took = true
		if e.At -= e.Took.Microseconds(); e.At < r.window.floor {
			r.stats.Long++
		}
	}
	e.At = max(e.At, r.window.floor, 1)
	return nil
}

// line returns the next line, which is valid until the next call. It skips the text of a line that is
// too long.
func (r *Reader) line() (line []byte, tooLong bool, err error) {
	line, err = r.in.ReadSlice('\n')
	if len(line) == 0 && errors.Is(err, io.EOF) {
		return nil, false, err
	}
	r.lines++
	line = trimmed(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		_, err = r.in.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, unreadable(err)
	}
	return line, tooLong, nil
}

// trimmed returns a line without its line end, and without the byte order mark that some editors begin a
// file with. The file may be a part of the log.
func trimmed(line []byte) []byte {
	line = bytes.TrimPrefix(line, []byte("\ufeff"))
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
