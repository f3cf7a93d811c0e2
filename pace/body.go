package pace

import (
	"context"
	"errors"
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
// response's body stays whole. If the body is too slow, peek returns what has come.
func peek(r *http.Response, most int) (text []byte, ended bool) {
	p := &peeked{body: r.Body, read: make(chan chunk, 1)}
	r.Body = p
	late := time.NewTimer(mostPatience)
	defer late.Stop()
	for p.err == nil && len(p.text) <= most {
		p.start(most + 1 - len(p.text))
		select {
		case c := <-p.read:
			p.add(c)
		case <-late.C:
			return p.text, false
		}
	}
	return p.text[:min(len(p.text), most)], errors.Is(p.err, io.EOF) && len(p.text) <= most
}

// A peeked body is a body whose beginning was read.
type peeked struct {
	body io.ReadCloser
	text []byte // read, and not returned yet
	err  error  // after text

	reading bool       // a read is in progress, whose result read will have
	read    chan chunk // has room, so that no read waits for a reader
}

// A chunk is the result of a read.
type chunk struct {
	text []byte
	err  error
}

// start begins a read of up to most bytes.
func (p *peeked) start(most int) {
	p.reading = true
	go func() {
		b := make([]byte, min(most, 4096))
		n, err := p.body.Read(b)
		p.read <- chunk{b[:n], err}
	}()
}

func (p *peeked) add(c chunk) {
	p.text, p.err, p.reading = append(p.text, c.text...), c.err, false
}

func (p *peeked) Read(b []byte) (int, error) {
	if len(p.text) == 0 && p.reading {
		p.add(<-p.read)
	}
	switch {
	case len(p.text) > 0:
		n := copy(b, p.text)
		p.text = p.text[n:]
		return n, nil
	case p.err != nil:
		return 0, p.err
	}
	return p.body.Read(b)
}

func (p *peeked) Close() error { return p.body.Close() }
