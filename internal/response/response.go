// Package response learns the status that a handler answers with, and when it waits for its
// client. The ResponseWriter that it puts between is what the one behind it is: a Flusher, a
// Hijacker. It is no Pusher, as no browser takes what is pushed any more.
package response

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
)

// A Response is what was answered so far, once it is watched.
type Response struct {
	http.ResponseWriter
	Watcher  Watcher // nil: none
	Unsaid   int     // the status where the handler says none; 0: net/http's
	status   int     // 0: nothing was sent yet
	hijacked bool
}

// A Watcher hears how a request goes on while its handler runs.
type Watcher interface {
	// Streams says that the answer was flushed or, if detached, that the connection was taken over.
	Streams(detached bool)

	// Waits says that the handler begins to wait for its client, to send more of the body or to
	// take more of the answer, or has ceased to. It is called by several goroutines at once.
	Waits(begins bool)

	// Body is the place for the request's body.
	Body() *Body
}

// WatcherKey is what a request's Watcher is found under in its context.
type WatcherKey struct{}

// WatcherOf is the Watcher of the request with that context, or nil.
func WatcherOf(ctx context.Context) Watcher {
	w, _ := ctx.Value(WatcherKey{}).(Watcher)
	return w
}

// Watch returns a ResponseWriter for a handler to answer with in place of w, of which a is what
// it answers. Whatever else w can do, http.ResponseController finds it.
func (a *Response) Watch(w http.ResponseWriter) http.ResponseWriter {
	*a = Response{ResponseWriter: w}
	_, flushes := behind[http.Flusher](w)
	_, hijacks := behind[http.Hijacker](w)
	switch {
	case flushes && hijacks: // HTTP/1
		return struct {
			*Response
			flusher
			hijacker
		}{a, flusher{a}, hijacker{a}}
	case flushes: // HTTP/2
		return struct {
			*Response
			flusher
		}{a, flusher{a}}
	case hijacks:
		return struct {
			*Response
			hijacker
		}{a, hijacker{a}}
	}
	return a
}

// WatchBoth is Watch for adapters of routers that have changed the server's request in place: the
// request that it returns beside is r, or a copy of which the Watcher in its context watches the body.
func (a *Response) WatchBoth(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	w = a.Watch(w)
	a.Watcher = WatcherOf(r.Context())
	return w, Watched(r, a.Watcher)
}

// behind is the first T among w and what it wraps.
func behind[T any](w http.ResponseWriter) (found T, ok bool) {
	for {
		if found, ok = w.(T); ok {
			return found, true
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return found, false
		}
		w = wrapper.Unwrap()
	}
}

// Status is the status of the answer once its handler has returned, or panicked: what was
// sent, or what net/http makes of nothing. Of a connection that was taken over it is 101,
// and 500 where the handler panicked before it sent anything.
func (a *Response) Status(panicked bool) int {
	switch {
	case a.status != 0:
		return a.status
	case a.hijacked:
		return http.StatusSwitchingProtocols
	case panicked:
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

// Finish has a handler answer, and tells finish the status when it has returned, or panics.
func (a *Response) Finish(finish func(status int), answer func()) {
	panicked := true
	defer func() { finish(a.Status(panicked)) }()
	answer()
	panicked = false
}

// sends notes the status of the answer, of which the first is sent.
func (a *Response) sends(status int) {
	informs := status < 200 && status != http.StatusSwitchingProtocols
	if a.status == 0 && !informs && !a.hijacked { // of a hijacked connection net/http sends none
		a.status = status
	}
}

// Begin sends the status Unsaid where none was sent.
func (a *Response) Begin() {
	if a.Unsaid != 0 && a.status == 0 && !a.hijacked {
		a.WriteHeader(a.Unsaid)
	}
}

// Unwrap is for http.ResponseController.
func (a *Response) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *Response) WriteHeader(status int) {
	a.sends(status)
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *Response) Write(b []byte) (int, error) {
	a.Begin()
	a.sends(http.StatusOK)
	if a.Watcher != nil {
		a.Watcher.Waits(true)
		defer a.Watcher.Waits(false)
	}
	return a.ResponseWriter.Write(b)
}

// WriteString implements io.StringWriter.
func (a *Response) WriteString(s string) (int, error) {
	a.Begin()
	a.sends(http.StatusOK)
	if a.Watcher != nil {
		a.Watcher.Waits(true)
		defer a.Watcher.Waits(false)
	}
	return io.WriteString(a.ResponseWriter, s)
}

// ReadFrom implements io.ReaderFrom, so that files are sent as they are without a writer
// between.
func (a *Response) ReadFrom(r io.Reader) (int64, error) {
	a.Begin()
	if a.Watcher != nil {
		if !isFile(r) { // to wait for r is to work
			return io.Copy(struct{ io.Writer }{a}, r)
		}
		a.Watcher.Waits(true)
		defer a.Watcher.Waits(false)
	}
	sends := true // if reading panics
	defer func() {
		if sends {
			a.sends(http.StatusOK)
		}
	}()
	n, err := io.Copy(a.ResponseWriter, r)
	sends = n > 0
	return n, err
}

// isFile reports whether r is a file, or a part of one, that is read without waiting.
func isFile(r io.Reader) bool {
	if part, ok := r.(*io.LimitedReader); ok {
		r = part.R
	}
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// FlushError is what http.ResponseController calls.
func (a *Response) FlushError() error {
	a.Begin()
	if a.Watcher != nil {
		a.Watcher.Waits(true)
		defer a.Watcher.Waits(false)
	}
	err := http.NewResponseController(a.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		a.sends(http.StatusOK)
		if a.Watcher != nil {
			a.Watcher.Streams(false)
		}
	}
	return err
}

// CloseNotify is for gin, which wants it of every ResponseWriter.
func (a *Response) CloseNotify() <-chan bool {
	if w, ok := behind[interface{ CloseNotify() <-chan bool }](a.ResponseWriter); ok {
		return w.CloseNotify()
	}
	return make(chan bool) // it cannot be known
}

type flusher struct{ a *Response }

func (f flusher) Flush() { _ = f.a.FlushError() }

type hijacker struct{ a *Response }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.a.TakeOver() }

// TakeOver is Hijack, for ResponseWriters that have to have it.
func (a *Response) TakeOver() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	a.hijacked = a.hijacked || err == nil
	if err == nil && a.Watcher != nil {
		a.Watcher.Streams(true)
	}
	return conn, buffered, err
}
