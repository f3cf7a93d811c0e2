package response

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// The bounds of reading a body that no handler reads.
const (
	heldPatience  = time.Second      // before the answer
	drainPatience = 2 * time.Second  // for each drainStep after the answer
	drainStep     = 32 << 10         // bytes
	drainBuffer   = 1 << 10          // of each body, while its client sends nothing
	mostPatience  = 30 * time.Second // for a whole body
	mostDrained   = 64 << 20         // bytes of it
	mostDrains    = 1024             // bodies at a time, in the process
)

// draining is the number of bodies that Drain reads now.
var draining atomic.Int64

// HasBody reports whether r came with a body over HTTP/1. In HTTP/2 a body that nobody reads harms nobody.
func HasBody(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody
}

// LeaveUnread must be called before an HTTP/1 request is answered without its body. A kept connection needs the body
// out of the way, so net/http reads up to 256 KiB of it before it sends the answer. LeaveUnread bounds the time which
// that takes. If the time is over, net/http closes the connection after the answer.
func LeaveUnread(w http.ResponseWriter, r *http.Request) {
	if !HasBody(r) || http.NewResponseController(w).SetReadDeadline(time.Now().Add(heldPatience)) != nil {
		return
	}
	if r.ContentLength < 0 { // a chunked body cannot be read any more once its deadline was over
		CloseAfter(w)
	}
}

// Drain reads the rest of a body after the answer. If a server closes a connection with unread data,
// the kernel resets it, and the client may never see the answer: nginx then answers 502, and takes the server for
// dead. If the answer is not written yet, Drain takes no longer than heldPatience.
func Drain(w http.ResponseWriter, r *http.Request, answered bool) {
	rc := http.NewResponseController(w)
	switch {
	case !HasBody(r) || rc.SetReadDeadline(time.Now().Add(drainPatience)) != nil:
	case r.ProtoAtLeast(1, 1) && r.Header.Get("Expect") != "":
		// The client waits for a 100, which reading would send, or has begun to send without it.
		CloseAfter(w)
	default:
		DrainBody(w, r.Body, answered)
	}
}

// DrainBody is Drain for a body whose client knows that it may send it. If it does not reach the end of the body,
// net/http closes the connection after the answer.
func DrainBody(w http.ResponseWriter, body io.Reader, answered bool) {
	rc, patience := http.NewResponseController(w), heldPatience
	if answered {
		patience = mostPatience
		flush(rc)
	}
	defer draining.Add(-1)
	if draining.Add(1) <= mostDrains && reachesEnd(rc, body, time.Now().Add(patience)) {
		_ = rc.SetReadDeadline(time.Time{})
		return
	}
	_ = rc.SetReadDeadline(time.Unix(1, 0)) // net/http too would wait for the body
	CloseAfter(w)
}

func flush(rc *http.ResponseController) {
	defer func() { _ = recover() }() // the writers of gin and echo panic if the writer behind them cannot flush
	_ = rc.Flush()
}

// reachesEnd reads a body to its end, but not longer than until, and reports whether it has reached the end.
func reachesEnd(rc *http.ResponseController, body io.Reader, until time.Time) bool {
	buffer := make([]byte, drainBuffer)
	for range mostDrained / drainStep {
		step := time.Now().Add(drainPatience)
		if step.After(until) {
			step = until
		}
		if rc.SetReadDeadline(step) != nil {
			return false
		}
		for read := 0; read < drainStep; {
			n, err := body.Read(buffer)
			if read += n; err != nil {
				return errors.Is(err, io.EOF) || errors.Is(err, http.ErrBodyReadAfterClose)
			}
		}
	}
	return false
}

// CloseAfter makes net/http close the connection of w after the answer, half of it first: what it does when a
// body is too large for an http.MaxBytesReader. So a client that sends on still reads the answer.
func CloseAfter(w http.ResponseWriter) {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = wrapper.Unwrap()
	}
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("too much")), 0).Read(make([]byte, 1))
}
