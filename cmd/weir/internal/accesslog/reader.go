package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unsafe"
)

// Options say how a log is read. The zero Options are for one that says itself what it is.
type Options struct {
	// Format is one of [Formats], or a log_format as nginx has it, or an access log format of
	// Envoy's. Empty: the one that fits the first lines.
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
	in     io.Reader
	parser *parser
	lines  int64

	block   []byte
	rest    string // of the block: lines that were read and are not parsed yet
	partial []byte // and the beginning of the one after these
	tooLong bool   // the line of rest goes on, for longer than a block
	end     error  // of what there is to read

	texts keeper
	last  *Entry   // that Next returned
	free  []*Entry // to be used again

	logged, begun window
	stats         Stats
}

// Stats are what was found in a log so far.
type Stats struct {
	Format  string
	Entries int64 // that were read

	// Broken is how many lines could not be read, and First are the first ten of them.
	Broken int64
	First  []Broken

	// Whole says that times are whole seconds: requests of one second are spread evenly over
	// it. Took says that times were those of answers, and how long they took is subtracted.
	Whole, Took bool

	// Long is how many requests took so long that others, which came later, were already
	// told of: they are taken to have come then.
	Long int64
}

// A Broken is a line that could not be read.
type Broken struct {
	Line int64  `json:"line"` // from 1
	Byte int    `json:"byte"` // of the line, from 1, at which it is wrong
	Why  string `json:"why"`
}

func (b Broken) String() string { return fmt.Sprintf("line %d, byte %d: %s", b.Line, b.Byte, b.Why) }

// NewReader reads the beginning of a log, and finds out its format.
func NewReader(from io.Reader, o Options) (*Reader, error) {
	found, err := candidates(o)
	if err != nil {
		return nil, err
	}
	r := &Reader{in: from, logged: window{size: loggedWindow}, begun: window{size: begunWindow}}
	if err := r.fill(); err != nil {
		return nil, err
	}
	if r.rest == "" {
		return nil, errEmpty
	}
	var all []string // the lines of the first block
	for line := range strings.Lines(r.rest) {
		all = append(all, trimmed(line))
	}
	first := all[:min(len(all), sample)]
	if r.parser, err = fitting(found, first); err != nil {
		return nil, cmp.Or(misplaced(o, first), err)
	}
	r.parser.begin(all)
	if place := r.parser.missing; place != "" {
		return nil, fmt.Errorf("the log has no column %q", place)
	}
	r.stats.Format = r.parser.name
	return r, nil
}

var errEmpty = errors.New("the log is empty")

const (
	blockSize   = 1 << 20
	longestLine = 1 << 20
	sample      = 100 // lines that say what the format is
)

// usual is the name of the format of which others are variants.
const usual = "combined"

// fitting is the parser that reads the most of these lines.
func fitting(found []*parser, lines []string) (*parser, error) {
	var best *parser
	most := 0
	first := slices.IndexFunc(lines, func(line string) bool { return strings.TrimSpace(line) != "" && line[0] != '#' })
	if first < 0 {
		return nil, errEmpty
	}
	closest, furthest, why := found[0], -1, ""
	for _, p := range found {
		fit := 0
		for i, line := range lines {
			if p.directive(line) {
				continue
			}
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
func misplaced(o Options, lines []string) error {
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
	has := r.parser.has
	switch {
	case name == "User-Agent" && has[fieldUserAgent]:
		return true
	case name == "X-Forwarded-For" && (has[fieldForwardedFor] || has[fieldLastForwarded]):
		return true
	}
	i := slices.Index(r.parser.headers, name)
	if i >= 0 && r.parser.hasHeader != nil {
		return r.parser.hasHeader[i]
	}
	return i >= 0 && slices.ContainsFunc(r.parser.slots, func(to slot) bool { return to.field == fieldHeader && to.header == i })
}

// Headers are the names of [Entry.Headers].
func (r *Reader) Headers() []string { return r.parser.headers }

// Stats are what was found so far.
func (r *Reader) Stats() Stats { return r.stats }

// Next is the next request, in the order of time, or io.EOF. It is good until the call after
// it, and so is its text; see [Entry.Keep].
func (r *Reader) Next() (*Entry, error) {
	if r.last != nil {
		r.texts.release(r.last)
		r.free = append(r.free, r.last)
	}
	next := r.spread
	if r.ordersBegun() {
		next = func() (*Entry, error) { return r.begun.next(r.spread, false) }
	}
	e, err := next()
	r.last = e
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

// Coming appends the entries that the next calls of Next return, as far as they are known and have
// room: for what is better done about several at once.
func (r *Reader) Coming(into []*Entry) []*Entry {
	w := &r.logged
	if r.ordersBegun() {
		w = &r.begun
	}
	for _, e := range w.held[w.taken:w.ready] {
		if len(into) == cap(into) {
			break
		}
		into = append(into, e.Entry)
	}
	return into
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
		for r.rest == "" {
			if r.end != nil {
				return nil, r.end
			}
			if err := r.fill(); err != nil {
				return nil, err
			}
		}
		end := strings.IndexByte(r.rest, '\n') + 1
		if end == 0 {
			end = len(r.rest)
		}
		line := trimmed(r.rest[:end])
		r.rest = r.rest[end:]
		r.lines++
		if line == "" || line[0] <= ' ' && strings.TrimSpace(line) == "" || line[0] == '#' && r.parser.directive(line) {
			continue
		}
		e := r.newEntry()
		at, wrong := 0, "is longer than 1 MiB"
		if len(line) < longestLine {
			at, wrong = r.parser.parse(e, line)
		}
		if wrong != "" {
			r.free = append(r.free, e)
			if r.stats.Broken++; len(r.stats.First) < 10 {
				r.stats.First = append(r.stats.First, Broken{r.lines, at + 1, wrong})
			}
			continue
		}
		r.texts.keep(e)
		e.line = r.lines
		if r.parser.whole {
			e.Loose, r.stats.Whole = 1, true
		}
		if e.At < r.logged.floor {
			return nil, fmt.Errorf("line %d is %v older than lines more than %d before it: sort the log by time", r.lines, micros(r.logged.floor-e.At), loggedWindow)
		}
		return e, nil
	}
}

// trimmed is a line without its end.
func trimmed(line string) string {
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
}

// newEntry is one that has been used, or a new one.
func (r *Reader) newEntry() *Entry {
	if len(r.free) == 0 {
		for range 64 {
			r.free = append(r.free, &Entry{})
		}
	}
	e := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	*e = Entry{Headers: e.Headers}
	clear(e.Headers)
	return e
}

// fill reads lines: as many as a block has, and at least one. They are good until the next.
func (r *Reader) fill() error {
	if r.block == nil {
		r.block = make([]byte, blockSize)
	}
	n := copy(r.block, r.partial)
	for {
		var err error
		if n, err = r.read(n); err != nil {
			return err
		}
		begin, end := 0, n
		if r.tooLong { // what is left of it is passed over
			begin = n
			if at := bytes.IndexByte(r.block[:n], '\n'); at >= 0 {
				r.tooLong, begin = false, at+1
			}
		}
		if r.end == nil {
			end = bytes.LastIndexByte(r.block[:n], '\n') + 1
		}
		if end <= begin && r.end == nil {
			if begin > 0 { // there is room for more
				n = copy(r.block, r.block[begin:n])
				continue
			}
			r.tooLong, end = true, n
		}
		lines := r.block[begin:end]
		r.partial = r.block[end:n]
		r.rest = unsafe.String(unsafe.SliceData(lines), len(lines)) // of which entries keep copies
		return nil
	}
}

// read reads into the block, behind n bytes, until it is full or the log ends.
func (r *Reader) read(n int) (int, error) {
	for n < len(r.block) {
		more, err := r.in.Read(r.block[n:])
		n += more
		switch {
		case errors.Is(err, io.EOF):
			r.end = io.EOF
			return n, nil
		case err != nil:
			return n, err
		}
	}
	return n, nil
}

// A chunk is text of entries. It is written again when all of them have been used.
type chunk struct {
	text    []byte
	entries int
}

// A keeper copies the text of entries, so that they hold on to no more of a line than is wanted.
type keeper struct {
	chunk *chunk // that is being written
	used  []*chunk
}

// chunkSize is how much text shares one allocation.
const chunkSize = 1 << 14

func (k *keeper) keep(e *Entry) {
	switch e.Method {
	case http.MethodGet: // the most by far
		e.Method = http.MethodGet
	case http.MethodPost:
		e.Method = http.MethodPost
	}
	size := len(e.Client) + len(e.Method) + len(e.Target) + len(e.Host) + len(e.User) + len(e.Tier) + len(e.UserAgent) + len(e.ForwardedFor)
	for _, value := range e.Headers {
		size += len(value)
	}
	c := k.chunk
	if c == nil || cap(c.text)-len(c.text) < size {
		c = k.next(size)
		k.chunk = c
	}
	e.chunk = c
	c.entries++
	e.Client, e.Method, e.Target, e.Host = c.copy(e.Client), c.copy(e.Method), c.copy(e.Target), c.copy(e.Host)
	e.User, e.Tier = c.copy(e.User), c.copy(e.Tier)
	e.UserAgent, e.ForwardedFor = c.copy(e.UserAgent), c.copy(e.ForwardedFor)
	for i, value := range e.Headers {
		e.Headers[i] = c.copy(value)
	}
}

// next is a chunk with room for that much.
func (k *keeper) next(size int) *chunk {
	if last := len(k.used) - 1; last >= 0 && size <= chunkSize {
		c := k.used[last]
		k.used = k.used[:last]
		return c
	}
	return &chunk{text: make([]byte, 0, max(chunkSize, size))}
}

func (c *chunk) copy(text string) string {
	if text == "" {
		return ""
	}
	from := len(c.text)
	c.text = append(c.text, text...)
	return unsafe.String(&c.text[from], len(text)) // which is written over when no entry has it
}

// release takes back the text of an entry.
func (k *keeper) release(e *Entry) {
	c := e.chunk
	if c == nil {
		return
	}
	if c.entries--; c.entries > 0 {
		return
	}
	c.text = c.text[:0]
	if c != k.chunk && cap(c.text) == chunkSize {
		k.used = append(k.used, c)
	}
}
