package serving

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/reading"
	"github.com/weirgo/weir/internal/response"
)

// A Patience bounds how long each of a client's reads or writes may block. The next begins when the last has ended.
type Patience struct {
	Most  time.Duration // 0: no bound
	Over  func()        // called in a goroutine of its own, must end the call
	timer *time.Timer
}

// Begin is called before a read or write.
func (p *Patience) Begin() {
	switch {
	case p.Most == 0:
	case p.timer == nil:
		p.timer = time.AfterFunc(p.Most, p.Over)
	default:
		p.timer.Reset(p.Most)
	}
}

// End is called after it.
func (p *Patience) End() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// Past is a deadline that is over.
var Past = time.Unix(1, 0)

// A body is the body of a client's request.
type body struct {
	io.ReadCloser
	control      *http.ResponseController
	patience     Patience
	begun, whole atomic.Bool
	late         atomic.Bool // a read took longer than patience

	memory *Memory // for what is read ahead
	mu     sync.Mutex
	held   int64 // bytes of memory
}

// Memory bounds how many bytes of bodies a process holds that were read ahead for rules.
type Memory struct{ free atomic.Int64 }

// NewMemory returns a Memory of so many bytes.
func NewMemory(bytes int64) *Memory {
	m := &Memory{}
	m.free.Store(bytes)
	return m
}

// aheadPatience is how long a body that is read ahead may take to arrive, so that nobody can hold memory by a trickle.
const aheadPatience = time.Minute

var (
	errFull error = &reading.Error{Status: http.StatusServiceUnavailable, Text: "the bodies of other requests take all memory for bodies"}
	errLate error = &reading.Error{Status: http.StatusRequestTimeout, Text: "the body took too long"}
)

// Hold implements reading.Budget.
func (b *body) Hold(n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory == nil {
		return nil
	}
	if b.memory.free.Add(-int64(n)) < 0 {
		b.memory.free.Add(int64(n))
		return errFull
	}
	if b.held == 0 {
		_ = b.control.SetReadDeadline(time.Now().Add(aheadPatience))
	}
	b.held += int64(n)
	return nil
}

// Release implements reading.Budget.
func (b *body) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held > 0 {
		b.memory.free.Add(b.held)
		b.held = 0
	}
}

type bodyKey struct{}

func bodyOf(ctx context.Context) *body {
	b, _ := ctx.Value(bodyKey{}).(*body)
	return b
}

// BoundBody bounds how long each read of the body may block, for the request with that context. Nobody must have
// begun to read.
func BoundBody(ctx context.Context, most time.Duration) {
	if b := bodyOf(ctx); b != nil {
		b.patience = Patience{Most: most, Over: func() {
			b.late.Store(true)
			_ = b.control.SetReadDeadline(Past)
		}}
	}
}

// IsBodyLate reports whether a read of the body has blocked for too long, for the request with that context.
func IsBodyLate(ctx context.Context) bool {
	b := bodyOf(ctx)
	return b != nil && b.late.Load()
}

func (b *body) Read(p []byte) (int, error) {
	b.begun.Store(true)
	b.patience.Begin()
	n, err := b.ReadCloser.Read(p)
	b.patience.End()
	if errors.Is(err, io.EOF) {
		b.whole.Store(true)
	}
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case b.held == 0:
		case b.whole.Load():
			_ = b.control.SetReadDeadline(time.Time{})
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = errLate
		}
	}
	return n, err
}

// An answer answers a request of HTTP/1 that has a body or asks for another protocol. It says Connection: close if
// it is final before the body is read, or if the protocol stays: the next bytes may be no request.
type answer struct {
	http.ResponseWriter
	body  *body // nil: the request asks for another protocol, and the client may have begun to speak it
	begun bool
}

// Unwrap implements the method that http.ResponseController looks for.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// begin is called before the status of the answer is sent.
func (a *answer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	if a.body == nil || !a.body.whole.Load() {
		response.CloseAfter(a.ResponseWriter)
	}
}

func (a *answer) WriteHeader(status int) {
	if status >= http.StatusOK { // a connection with another protocol is not kept
		a.begin()
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	a.begin()
	return a.ResponseWriter.Write(p)
}

// FlushError is called by http.ResponseController.
func (a *answer) FlushError() error {
	a.begin()
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// serve calls handler, and drains the body that it leaves unread. A connection of HTTP/1 is kept only if nobody can
// take what follows the request for a part of it, or a part of it for the next request.
func serve(handler http.Handler, w http.ResponseWriter, r *http.Request, memory *Memory) {
	isHTTP1 := r.ProtoMajor == 1
	asks := isHTTP1 && (r.Method == http.MethodConnect || len(r.Header["Upgrade"]) > 0)
	if isHTTP1 && (len(r.TransferEncoding) > 0 || r.ProtoMinor == 0) {
		// A proxy in front may have used a Content-Length beside the chunks, or chunks in HTTP/1.0: net/http ignores and
		// hides both.
		w.Header().Set("Connection", "close")
	}
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		if asks {
			w = &answer{ResponseWriter: w}
		}
		handler.ServeHTTP(w, r)
		return
	}
	b := &body{ReadCloser: r.Body, control: http.NewResponseController(w), memory: memory}
	defer b.Release()
	_ = b.control.EnableFullDuplex() // or an early answer would wait for a body that is held back
	returned := false
	defer func() {
		if !returned {
			_ = b.control.SetReadDeadline(Past) // or net/http would wait for the rest of the body
		}
	}()
	own := r.WithContext(context.WithValue(r.Context(), bodyKey{}, b)) // net/http looks at the body of r
	own.Body = b
	if !isHTTP1 {
		handler.ServeHTTP(w, own)
		returned = true
		return
	}
	a := &answer{ResponseWriter: w}
	if !asks {
		a.body = b
	}
	handler.ServeHTTP(a, own)
	returned = true
	if b.whole.Load() {
		return
	}
	switch _, err := a.Write(nil); {
	case errors.Is(err, http.ErrHijacked):
	case b.begun.Load():
		response.DrainBody(w, r.Body, true) // if the client waited for a 100, it got one
	default:
		response.Drain(w, r, true)
	}
}
