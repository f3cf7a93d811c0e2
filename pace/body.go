package pace

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
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

// until is a body that leaves the place at its end.
func (p *place) until(body io.ReadCloser) io.ReadCloser {
	held := heldBody{body, p}
	if w, ok := body.(io.Writer); ok { // of 101 Switching Protocols
		return struct {
			heldBody
			io.Writer
		}{held, w}
	}
	return held
}

type heldBody struct {
	body  io.ReadCloser
	place *place
}

func (b heldBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil {
		b.place.leave()
	}
	return n, err
}

func (b heldBody) Close() error {
	defer b.place.leave()
	return b.body.Close()
}

// resume is a body of which the beginning was read, up to an error if there is one.
func resume(begin []byte, err error, body io.ReadCloser) io.ReadCloser {
	rest := io.Reader(body)
	if err != nil {
		rest = failing{err}
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), rest), body}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
