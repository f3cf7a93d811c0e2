package response

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// A Body watches the body of a request: how much was read, and when its reader waits.
type Body struct {
	io.ReadCloser
	watcher Watcher
	length  int64 // as declared; below 1: unknown
	read    int64
	state   atomic.Int32
}

const (
	untouched int32 = iota
	begun           // read, and more may come
	whole
	failed
	closed // by the handler, after it began to read
	unread // closed by the handler, before it began to read
)

// WatchBody makes w watch the body of r, which must not be the server's own request: net/http looks at that body
// to decide whether to reuse its connection.
func WatchBody(r *http.Request, w Watcher) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	b := w.Body()
	b.ReadCloser, b.watcher, b.length = r.Body, w, r.ContentLength
	if _, ok := r.Body.(io.WriterTo); ok {
		r.Body = writerTo{b}
		return
	}
	r.Body = b
}

// WasHeldBack reports whether the client may have caused an answer with that status: its body could not be read
// to the end, or was incomplete when the server answered 5xx. It is false for a body that no handler read.
func (b *Body) WasHeldBack(status int) bool {
	state := b.state.Load()
	return state == failed || (state == begun || state == closed) && status >= 500
}

// Unwrap returns the body that b watches.
func (b *Body) Unwrap() io.ReadCloser { return b.ReadCloser }

// Close implements io.Closer. Later failures of the body are not the client's doing.
func (b *Body) Close() error {
	if !b.state.CompareAndSwap(begun, closed) {
		b.state.CompareAndSwap(untouched, unread)
	}
	return b.ReadCloser.Close()
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (n int, err error) {
	b.state.CompareAndSwap(untouched, begun)
	b.watcher.Waits(true)
	defer b.watcher.Waits(false)
	n, err = b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case errors.Is(err, io.EOF), err == nil && b.read >= b.length && b.length > 0:
		b.state.Store(whole) // HTTP/2 returns io.EOF only at the next read
	case err != nil && !errors.Is(err, http.ErrBodyReadAfterClose):
		b.state.CompareAndSwap(begun, failed)
	}
	return n, err
}

// A writerTo is a Body whose wrapped body is an io.WriterTo too.
type writerTo struct{ *Body }

func (b writerTo) WriteTo(w io.Writer) (int64, error) {
	b.state.CompareAndSwap(untouched, begun)
	b.watcher.Waits(true)
	defer b.watcher.Waits(false)
	to := &taker{Writer: w, watcher: b.watcher}
	n, err := b.ReadCloser.(io.WriterTo).WriteTo(to)
	switch {
	case err == nil:
		b.state.Store(whole)
	case to.err == nil:
		b.state.CompareAndSwap(begun, failed)
	}
	return n, err
}

// A taker wraps the writer that a body is written to. Waiting for it is not waiting for the client.
type taker struct {
	io.Writer
	watcher Watcher
	err     error
}

func (t *taker) Write(p []byte) (n int, err error) {
	t.watcher.Waits(false)
	defer t.watcher.Waits(true)
	n, t.err = t.Writer.Write(p)
	return n, t.err
}
