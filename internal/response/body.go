package response

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// A Body is the body of a request that is watched: how far it has come, and when its reader waits
// for it.
type Body struct {
	io.ReadCloser
	watcher Watcher
	length  int64 // as declared; below 1: not known
	read    int64
	state   atomic.Int32
}

const (
	untouched int32 = iota
	begun           // and more may come
	whole
	failed
	closed // by the handler, when it had begun
	unread // and when it had not
)

// WatchBody has w watch the body of r, which must not be the server's own request: by the body
// of that one net/http decides whether its connection can be used again.
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

// Watched is r, or a copy of which w watches the body.
func Watched(r *http.Request, w Watcher) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	copied := *r
	WatchBody(&copied, w)
	return &copied
}

// WasHeldBack reports whether it is the client's doing that the request was answered with that
// status: its body could not be read to the end, or had not come whole when the server failed. Of a
// body that no handler has asked for that is not known, and did not matter.
func (b *Body) WasHeldBack(status int) bool {
	state := b.state.Load()
	return state == failed || (state == begun || state == closed) && status >= 500
}

// Close implements io.Closer. That a body fails from then on is not the client's doing.
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
		b.state.Store(whole) // HTTP/2 says so only to a reader that asks once more
	case err != nil && !errors.Is(err, http.ErrBodyReadAfterClose):
		b.state.CompareAndSwap(begun, failed)
	}
	return n, err
}

// A writerTo is a Body of which the one behind is an io.WriterTo too.
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

// A taker is who a body is written to. To wait for it is not to wait for the client.
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
