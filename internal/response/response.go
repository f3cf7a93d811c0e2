// Package response learns the status that a handler answers with. The ResponseWriter that it
// puts between is what the one behind it is: a Flusher, a Hijacker, a Pusher.
package response

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
)

// A Response is what was answered so far, once it is watched.
type Response struct {
	http.ResponseWriter
	Stream   Stream // nil: no caller asks
	status   int    // 0: nothing was sent yet
	hijacked bool
}

// A Stream wants to know of an answer that is being sent while its handler goes on, because it
// was flushed or, if detached, its connection was taken over.
type Stream interface{ Streams(detached bool) }

// StreamKey is what a request's Stream is found under in its context.
type StreamKey struct{}

// StreamOf is the Stream of the request with that context, or one that does nothing.
func StreamOf(ctx context.Context) Stream {
	if s, ok := ctx.Value(StreamKey{}).(Stream); ok {
		return s
	}
	return unheard{}
}

type unheard struct{}

func (unheard) Streams(bool) {}

// Watch returns a ResponseWriter for a handler to answer with in place of w, of which a is what
// it answers. Whatever else w can do, http.ResponseController finds it.
func (a *Response) Watch(w http.ResponseWriter) http.ResponseWriter {
	*a = Response{ResponseWriter: w}
	_, flushes := behind[http.Flusher](w)
	_, hijacks := behind[http.Hijacker](w)
	_, pushes := w.(http.Pusher) // which nothing looks for behind w
	switch {
	case flushes && hijacks && pushes:
		return struct {
			*Response
			flusher
			hijacker
			pusher
		}{a, flusher{a}, hijacker{a}, pusher{a}}
	case flushes && hijacks: // HTTP/1
		return struct {
			*Response
			flusher
			hijacker
		}{a, flusher{a}, hijacker{a}}
	case flushes && pushes: // HTTP/2
		return struct {
			*Response
			flusher
			pusher
		}{a, flusher{a}, pusher{a}}
	case hijacks && pushes:
		return struct {
			*Response
			hijacker
			pusher
		}{a, hijacker{a}, pusher{a}}
	case flushes:
		return struct {
			*Response
			flusher
		}{a, flusher{a}}
	case hijacks:
		return struct {
			*Response
			hijacker
		}{a, hijacker{a}}
	case pushes:
		return struct {
			*Response
			pusher
		}{a, pusher{a}}
	}
	return a
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

// sends notes the status of the answer, of which the first is sent.
func (a *Response) sends(status int) {
	informs := status < 200 && status != http.StatusSwitchingProtocols
	if a.status == 0 && !informs && !a.hijacked { // of a hijacked connection net/http sends none
		a.status = status
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
	a.sends(http.StatusOK)
	return a.ResponseWriter.Write(b)
}

// WriteString implements io.StringWriter.
func (a *Response) WriteString(s string) (int, error) {
	a.sends(http.StatusOK)
	return io.WriteString(a.ResponseWriter, s)
}

// ReadFrom implements io.ReaderFrom, so that files are sent as they are without a writer
// between.
func (a *Response) ReadFrom(r io.Reader) (int64, error) {
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

// FlushError is what http.ResponseController calls.
func (a *Response) FlushError() error {
	err := http.NewResponseController(a.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		a.sends(http.StatusOK)
		if a.Stream != nil {
			a.Stream.Streams(false)
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

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.a.ResponseWriter).Hijack()
	h.a.hijacked = h.a.hijacked || err == nil
	if err == nil && h.a.Stream != nil {
		h.a.Stream.Streams(true)
	}
	return conn, buffered, err
}

type pusher struct{ a *Response }

func (p pusher) Push(target string, o *http.PushOptions) error {
	return p.a.ResponseWriter.(http.Pusher).Push(target, o)
}
