// Package response finds out the status of an answer, and when its handler waits for its client. It wraps the
// ResponseWriter, and keeps its Flusher and Hijacker. It keeps no Pusher, as browsers no longer accept pushes.
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

// A Response watches an answer.
type Response struct {
	http.ResponseWriter
	Watcher  Watcher // nil: none
	Unsaid   int     // the status if the handler sets none; 0: as in net/http
	status   int     // 0: nothing was sent yet
	hijacked bool
}

// A Watcher is called while the handler of a request runs.
type Watcher interface {
	// Streams is called when the answer is flushed or, if detached, when the connection is hijacked.
	Streams(detached bool)

	// Waits is called when the handler begins and ends to wait for its client, for more of the body or
	// until the client takes more of the answer. Several goroutines may call it at once.
	Waits(begins bool)

	// Body returns the buffer for the request's body.
	Body() *Body
}

// SlotKey is the key of a true value in the context of a request that holds a slot.
type SlotKey struct{}

// HoldsSlot reports whether the request with that context holds a slot of a rule or of Config.Overload.
func HoldsSlot(ctx context.Context) bool {
	holds, _ := ctx.Value(SlotKey{}).(bool)
	return holds
}

// Watch returns a ResponseWriter for the handler that replaces w, and is watched by a. http.ResponseController
// finds all other methods of w.
func (a *Response) Watch(w http.ResponseWriter) http.ResponseWriter {
	*a = Response{ResponseWriter: w}
	_, flushes := Behind[http.Flusher](w)
	_, hijacks := Behind[http.Hijacker](w)
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

// Behind returns the first T among w and the writers that it wraps.
func Behind[T any](w http.ResponseWriter) (found T, ok bool) {
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

func (a *Response) self() *Response { return a }

// Covers reports whether a watches what is written to w.
func (a *Response) Covers(w http.ResponseWriter) bool {
	for {
		watched, ok := Behind[interface{ self() *Response }](w)
		if !ok || watched.self() == a {
			return ok
		}
		w = watched.self().ResponseWriter
	}
}

// Status returns the status of the answer when the handler has returned or panicked. If nothing was sent, it is
// 101 for a hijacked connection, and otherwise what the caller says.
func (a *Response) Status(otherwise int) int {
	switch {
	case a.status != 0:
		return a.status
	case a.hijacked:
		return http.StatusSwitchingProtocols
	}
	return otherwise
}

// IsFinal reports whether a status is an answer's, unlike 103 (Early Hints), which an answer follows.
func IsFinal(status int) bool { return status >= 200 || status == http.StatusSwitchingProtocols }

// sends notes the status of the answer. Only the first is sent.
func (a *Response) sends(status int) {
	if a.status == 0 && IsFinal(status) && !a.hijacked { // net/http sends none on a hijacked connection
		a.status = status
	}
}

// Begin sends the status Unsaid if none was sent.
func (a *Response) Begin() {
	if a.Unsaid != 0 && a.status == 0 && !a.hijacked {
		a.WriteHeader(a.Unsaid)
	}
}

// Unwrap is for http.ResponseController.
func (a *Response) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter. A router's ResponseWriter that has sent a status, even 103, drops
// another one.
func (a *Response) WriteHeader(status int) {
	if w, ok := a.ResponseWriter.(interface{ Written() bool }); !ok || !w.Written() {
		a.sends(status)
	}
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

// ReadFrom implements io.ReaderFrom, so that files are sent as without a wrapper.
func (a *Response) ReadFrom(r io.Reader) (int64, error) {
	a.Begin()
	if a.Watcher != nil {
		if !isFile(r) { // waiting for r is work of the handler
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

// isFile reports whether r is a regular file, or a part of one, which is read without waiting.
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

// FlushError is called by http.ResponseController.
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

// CloseNotify is for gin, which needs it of every ResponseWriter.
func (a *Response) CloseNotify() <-chan bool {
	if w, ok := Behind[interface{ CloseNotify() <-chan bool }](a.ResponseWriter); ok {
		return w.CloseNotify()
	}
	return make(chan bool) // unknown
}

type flusher struct{ a *Response }

func (f flusher) Flush() { _ = f.a.FlushError() }

type hijacker struct{ a *Response }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.a.hijack() }

// hijack is Hijack, for ResponseWriters that have to have it.
func (a *Response) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	a.hijacked = a.hijacked || err == nil
	if err == nil && a.Watcher != nil {
		a.Watcher.Streams(true)
	}
	return conn, buffered, err
}
