package pace

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// until is a body that calls release at its end, or when the request's context ends, as the
// connection is free then too.
func until(ctx context.Context, body io.ReadCloser, release func()) io.ReadCloser {
	held := heldBody{body, release, context.AfterFunc(ctx, release)}
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
	release func()
	unwatch func() bool // the context
}

func (b heldBody) end() {
	b.unwatch()
	b.release()
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

// mostPatience is how long to wait for a body that the caller has not read yet.
const mostPatience = time.Second

// peek reads the beginning of a body, up to most bytes, and reports whether that is all of it. The
// response's body stays whole. If the body is too slow, peek returns nothing, and reading goes on in
// the background until the body is closed.
func peek(r *http.Response, most int) (text []byte, ended bool) {
	p := &peeked{body: r.Body, read: make(chan struct{})}
	r.Body = p
	go func() {
		defer close(p.read)
		p.text, p.err = io.ReadAll(io.LimitReader(p.body, int64(most)+1))
		rest := io.Reader(p.body)
		if p.err != nil {
			rest = failing{p.err}
		}
		p.whole = io.MultiReader(bytes.NewReader(p.text), rest)
	}()
	late := time.NewTimer(mostPatience)
	defer late.Stop()
	select {
	case <-p.read:
		return p.text[:min(len(p.text), most)], p.err == nil && len(p.text) <= most
	case <-late.C:
		return nil, false
	}
}

// A peeked body is a body whose beginning was read.
type peeked struct {
	body  io.ReadCloser
	read  chan struct{} // closed once the rest is set
	text  []byte
	err   error
	whole io.Reader
}

func (p *peeked) Read(b []byte) (int, error) {
	<-p.read
	return p.whole.Read(b)
}

func (p *peeked) Close() error { return p.body.Close() }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
