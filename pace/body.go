package pace

import (
	"bytes"
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A place is that of a request under way. A nil place is none.
type place struct {
	once     sync.Once
	release  func()
	inFlight *atomic.Int64
}

// leave gives up the place. Further calls do nothing.
func (p *place) leave() {
	if p != nil {
		p.once.Do(func() {
			p.release()
			p.inFlight.Add(-1)
		})
	}
}

// until is a body that leaves the place at its end, or when the request's context ends, as the
// connection is free then too.
func (p *place) until(ctx context.Context, body io.ReadCloser) io.ReadCloser {
	held := heldBody{body, p, context.AfterFunc(ctx, p.leave)}
	if w, ok := body.(io.Writer); ok { // of 101 Switching Protocols
		return struct {
			heldBody
			io.Writer
		}{held, w}
	}
	return held
}

type heldBody struct {
	body    io.ReadCloser
	place   *place
	unwatch func() bool // the context
}

func (b heldBody) end() {
	b.unwatch()
	b.place.leave()
}

func (b heldBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b heldBody) Close() error {
	defer b.end()
	return b.body.Close()
}

// mostPatience is how long a body is read that a caller has not asked for. It is closed then.
const mostPatience = time.Second

// begin reads a body to its end, or up to so many bytes, and not for long. An error says that
// there is no more to be read.
func begin(body io.ReadCloser, most int64) ([]byte, error) {
	late := time.AfterFunc(mostPatience, func() { _ = body.Close() })
	defer late.Stop()
	return io.ReadAll(io.LimitReader(body, most))
}

// resume is a body of which the beginning was read, up to an error if there is one.
func resume(read []byte, err error, body io.ReadCloser) io.ReadCloser {
	rest := io.Reader(body)
	if err != nil {
		rest = failing{err}
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), rest), body}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
