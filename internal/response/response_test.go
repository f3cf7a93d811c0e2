package response_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/response"
)

// A bare is a ResponseWriter that can do nothing else.
type bare struct{ http.ResponseWriter }

type (
	flushes  struct{ bare }
	hijacks  struct{ bare }
	wrapped  struct{ bare } // what it wraps is found by http.ResponseController alone
	fails    struct{ bare }
	connects struct {
		flushes
		hijacks
	}
)

func (flushes) Flush()                                       {}
func (hijacks) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }
func (fails) Hijack() (net.Conn, *bufio.ReadWriter, error)   { return nil, nil, errors.New("no") }
func (w wrapped) Unwrap() http.ResponseWriter                { return w.ResponseWriter }
func (w connects) Header() http.Header                       { return w.flushes.Header() }
func (w connects) Write(b []byte) (int, error)               { return w.flushes.Write(b) }
func (w connects) WriteHeader(status int)                    { w.flushes.WriteHeader(status) }

func TestWatchedItCanDoWhatItCould(t *testing.T) {
	b := bare{httptest.NewRecorder()}
	for name, w := range map[string]http.ResponseWriter{
		"bare": b, "flushes, as of HTTP/2": flushes{b}, "hijacks": hijacks{b}, "HTTP/1": connects{flushes{b}, hijacks{b}},
	} {
		watched := new(response.Response).Watch(w)
		can := func(w http.ResponseWriter) (can [2]bool) {
			_, can[0] = w.(http.Flusher)
			_, can[1] = w.(http.Hijacker)
			return can
		}
		assert.Equal(t, can(w), can(watched), name)
		assert.Equal(t, http.NewResponseController(w).Flush(), http.NewResponseController(watched).Flush(), name)
		if n, ok := watched.(interface{ CloseNotify() <-chan bool }); assert.True(t, ok) {
			assert.NotNil(t, n.CloseNotify())
		}
	}
	deep := new(response.Response).Watch(wrapped{bare{connects{flushes{b}, hijacks{b}}}})
	_, ok := deep.(http.Hijacker)
	assert.True(t, ok, "what is found behind a wrapper is noticed")
}

func TestTheStatusIsTheFirstThatWasSent(t *testing.T) {
	const unsent = 999
	b := func() http.ResponseWriter { return httptest.NewRecorder() }
	for name, test := range map[string]struct {
		w    http.ResponseWriter
		do   func(w http.ResponseWriter)
		want int // unsent: nothing was sent, so the caller knows better
	}{
		"nothing":     {b(), func(http.ResponseWriter) {}, unsent},
		"a status":    {b(), func(w http.ResponseWriter) { w.WriteHeader(404) }, 404},
		"two":         {b(), func(w http.ResponseWriter) { w.WriteHeader(404); w.WriteHeader(200) }, 404},
		"early hints": {b(), func(w http.ResponseWriter) { w.WriteHeader(103) }, unsent},
		"an upgrade":  {b(), func(w http.ResponseWriter) { w.WriteHeader(101) }, 101},
		"a body": {b(), func(w http.ResponseWriter) {
			_, _ = w.Write(nil)
			w.WriteHeader(500)
		}, 200},
		"a text": {b(), func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "x")
			w.WriteHeader(500)
		}, 200},
		"a file": {b(), func(w http.ResponseWriter) {
			_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("x"))
			w.WriteHeader(500)
		}, 200},
		"an empty file": {b(), func(w http.ResponseWriter) {
			_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader(""))
			w.WriteHeader(401)
		}, 401},
		"a flush": {b(), func(w http.ResponseWriter) {
			w.(http.Flusher).Flush()
			w.WriteHeader(500)
		}, 200},
		"a flush that there is not": {bare{b()}, func(w http.ResponseWriter) {
			_ = http.NewResponseController(w).Flush()
			w.WriteHeader(500)
		}, 500},
		"taken over": {hijacks{bare{b()}}, func(w http.ResponseWriter) {
			_, _, _ = http.NewResponseController(w).Hijack()
		}, 101},
		"taken over, and a status that is not sent": {hijacks{bare{b()}}, func(w http.ResponseWriter) {
			_, _, _ = w.(http.Hijacker).Hijack()
			w.WriteHeader(500)
		}, 101},
		"not taken over": {fails{bare{b()}}, func(w http.ResponseWriter) {
			_, _, _ = w.(http.Hijacker).Hijack()
		}, unsent},
	} {
		var answered response.Response
		w := answered.Watch(test.w)
		test.do(w)
		assert.Equal(t, test.want, answered.Status(unsent), name)
	}
}

type panics struct{}

func (panics) Read([]byte) (int, error) { panic("no") }

func TestAFileThatPanicsMayHaveBeenSent(t *testing.T) {
	var answered response.Response
	w := answered.Watch(httptest.NewRecorder())
	assert.Panics(t, func() { _, _ = w.(io.ReaderFrom).ReadFrom(io.MultiReader(strings.NewReader("x"), panics{})) })
	assert.Equal(t, 200, answered.Status(500))
}
