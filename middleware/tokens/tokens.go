// Package tokens reads from the answers of AI providers how many tokens they used, while the answers are forwarded. It
// imports nothing but the standard library.
//
// [Watch] is called by httputil.ReverseProxy.ModifyResponse. It finds the provider's count in JSON, in event streams and
// in NDJSON, holds nothing back, and needs at most 16 KiB a response. A rule with middleware.Reserve is settled with
// [Report.Units]:
//
//	ModifyResponse: func(res *http.Response) error {
//		ctx := res.Request.Context()
//		tokens.Watch(res, tokens.Options{}, func(r tokens.Report) {
//			weir.Settle(ctx, "tokens", r.Units(tokens.Weights{}, reserved))
//		})
//		return nil
//	}
//
// It reads chat completions and responses of OpenAI, and what other providers offer under these names, messages of
// Anthropic, generateContent of Gemini, and chat and generate of Ollama. The members say which dialect it is, so
// nothing is configured.
//
// A compressed body is not read: send upstream requests with "Accept-Encoding: identity".
package tokens

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
)

// A Usage is the tokens that a request and its answer used. Each token is in one field only.
type Usage struct {
	Input   int64 // of the request, neither read from the provider's cache nor written to it
	Cached  int64 // of the request, read from the provider's cache
	Written int64 // of the request, written to the provider's cache
	Output  int64 // of the answer, reasoning included
}

// Weights says how many units a token costs: in units of tokens, or of money. The zero value counts each token as 1.
type Weights struct{ Input, Cached, Written, Output float64 }

// Validate returns an error if a weight is negative, not a number or infinite.
func (w Weights) Validate() error {
	for _, field := range []struct {
		name  string
		value float64
	}{{"Input", w.Input}, {"Cached", w.Cached}, {"Written", w.Written}, {"Output", w.Output}} {
		if !(field.value >= 0 && field.value <= math.MaxFloat64) {
			return fmt.Errorf("tokens: Weights.%s is %v: it must be a finite number of at least 0", field.name, field.value)
		}
	}
	return nil
}

// Units returns the cost of u, rounded up, at most [math.MaxInt64]. The weights must be valid.
func (w Weights) Units(u Usage) int64 {
	if w == (Weights{}) {
		w = Weights{1, 1, 1, 1}
	}
	sum := w.Input*float64(u.Input) + w.Cached*float64(u.Cached) + w.Written*float64(u.Written) + w.Output*float64(u.Output)
	units := math.Ceil(sum - sum*0x1p-48) // 0.1*3 is a little more than 0.3
	if units < math.MaxInt64 {
		return int64(units)
	}
	return math.MaxInt64
}

// A Report says what an answer used.
type Report struct {
	Usage Usage

	// Final says that Usage is the provider's own count of the whole answer, or that the answer has status 400 or
	// above and no count, and so used nothing. Otherwise Usage is a lower bound: the client left, the answer broke
	// off, or it has no count that can be read. Its output is then at least a quarter of the text's bytes.
	Final bool
}

// Units returns what the request costs, if so many units were reserved for it: the units of the usage. If the
// report is not final, they are at least the reservation.
func (r Report) Units(w Weights, reserved int64) int64 {
	if units := w.Units(r.Usage); r.Final || units > reserved {
		return units
	}
	return reserved
}

// Options say how [Watch] treats an answer. The zero value forwards each byte as it came.
type Options struct {
	// Asked says that [Ask] changed the request. Then the event without choices that has the usage is removed from an
	// event stream, as the client did not ask for it. An event's first bytes, at most 8 KiB, are held back until they
	// show that it has choices.
	Asked bool
}

// Watch replaces the body of res by one that reads how much the answer used, and passes it to done, once: at the
// end of the body, when reading it fails, or when it is closed. What is read from the body stays the same, unless
// o.Asked is true. Watch does not touch the body of an answer with status 101, and reports at once that nothing is known.
//
// done is called by the goroutine that reads or closes the body, and must not do either.
func Watch(res *http.Response, o Options, done func(Report)) {
	if done == nil {
		panic("tokens: Watch: done is nil")
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		done(Report{})
		return
	}
	contentType, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	contentType = strings.TrimSpace(contentType)
	b := &body{source: res.Body, status: res.StatusCode, done: done}
	b.meter.visitor, b.stream.meter = &b.meter, &b.meter
	b.meter.nextEvent()
	switch encoding := res.Header.Get("Content-Encoding"); {
	case res.Body == nil:
		b.source = http.NoBody
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		b.kind = unreadable
	case contentType == "text/event-stream":
		if b.kind = events; o.Asked {
			b.held = make([]byte, 0, mostHeld)
			res.ContentLength = -1
			res.Header.Del("Content-Length")
		}
	default:
		b.meter.single = !strings.Contains(contentType, "ndjson") && !strings.Contains(contentType, "jsonl")
	}
	res.Body = b
}

// mostHeld bounds the bytes of an event that are held back, and so the size of an event that can be removed.
const mostHeld = 8 << 10

// What a body consists of.
const (
	values = iota // JSON: a value, or several in NDJSON
	events
	unreadable
)

// A body reports what is read from another one.
type body struct {
	source io.ReadCloser
	kind   int
	status int
	done   func(Report)

	held  []byte // what was read and not returned; nil: nothing is held back
	ready int    // so many bytes of held may be returned
	err   error  // ends the body, after held

	mu       sync.Mutex // guards what follows: a body may be closed while it is read
	reported bool
	meter    meter
	stream   stream
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (n int, err error) {
	if b.held == nil {
		n, err = b.source.Read(p)
		b.watch(p[:n])
		if err != nil {
			b.report()
		}
		return n, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	for b.ready == 0 && b.err == nil {
		b.fill()
	}
	n = copy(p, b.held[:b.ready])
	b.held, b.ready = b.held[:copy(b.held, b.held[n:])], b.ready-n
	if b.ready == 0 && b.err != nil {
		b.report()
		return n, b.err
	}
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	err := b.source.Close()
	b.report()
	return err
}

// watch reads what is forwarded.
func (b *body) watch(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.kind {
	case values:
		b.meter.write(p)
	case events:
		for len(p) > 0 {
			p = p[b.stream.next(p):]
		}
	}
}

// fill reads more bytes into held, and decides which may be returned. What may not belongs to one event.
func (b *body) fill() {
	at := len(b.held)
	n, err := b.source.Read(b.held[at:cap(b.held)])
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held, b.err = b.held[:at+n], err
	for at < len(b.held) {
		at += b.stream.next(b.held[at:])
		switch {
		case b.stream.remove:
			b.held = append(b.held[:b.ready], b.held[at:]...)
			at = b.ready
		case !b.stream.isHeld():
			b.ready, b.stream.passed = at, b.stream.fields
		}
	}
	if b.err != nil || b.ready == 0 && len(b.held) == cap(b.held) {
		b.ready, b.stream.passed = len(b.held), true
	}
}

// report calls done, the first time.
func (b *body) report() {
	b.mu.Lock()
	first, r := !b.reported, b.meter.report(b.status)
	b.reported = true
	b.mu.Unlock()
	if first {
		b.done(r)
	}
}
