package pace

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/weirgo/weir/pace/serverlimit"
)

// next is the request to send after an answer, and how long to wait first. It is nil if nothing is
// sent again; then the response is unchanged. Otherwise the response's body has been read and kept.
func (c *call) next(request *http.Request, got *answer, attempt int) (*http.Request, time.Duration) {
	if attempt >= c.t.options.Retry.Attempts || c.ctx.Err() != nil || !got.isFailure() || !isRepeatable(request, got.said.Retry) {
		return nil, 0
	}
	pause := c.a.cooldown.left()
	if got.response != nil {
		pause = max(pause, got.said.Wait)
	}
	if pause = add(pause, jitter(attempt)); pause > c.longest() || !c.rule.budget.spend() {
		return nil, 0
	}
	if got.response != nil && !keep(got.response) {
		c.rule.budget.restore()
		return nil, 0
	}
	again := request.WithContext(c.ctx) // a copy
	if request.Body != nil && request.Body != http.NoBody {
		body, err := request.GetBody()
		if err != nil {
			c.rule.budget.restore()
			return nil, 0
		}
		again.Body = body
	}
	return again, pause
}

// isFailure reports whether another attempt may succeed.
func (got *answer) isFailure() bool {
	if got.err != nil {
		var untrusted *tls.CertificateVerificationError
		return !errors.As(got.err, &untrusted)
	}
	status := got.response.StatusCode
	if status < 400 || got.said.Retry == serverlimit.RetryNo {
		return false
	}
	switch status {
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, statusOverloaded:
		return true
	}
	return got.said.Limited || got.said.Retry == serverlimit.RetryYes
}

// statusOverloaded is a status of Anthropic's.
const statusOverloaded = 529

// isRepeatable reports whether a request can be sent again, and may be.
func isRepeatable(r *http.Request, server serverlimit.Retry) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete, "QUERY": // RFC 10008
		return true
	}
	_, idempotent := r.Header["Idempotency-Key"]
	_, alike := r.Header["X-Idempotency-Key"] // which net/http accepts too
	return idempotent || alike || server == serverlimit.RetryYes
}

// The random pause before a retry, on top of the server's wait: up to firstPause, and up to twice as
// long with each attempt.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 10 * time.Second
)

func jitter(attempt int) time.Duration {
	return rand.N(min(firstPause<<(attempt-1), mostPause) + 1)
}

// mostKept bounds the body that is kept while the request waits to be sent again, in case it cannot
// be. A response with a longer body is the last.
const mostKept = 64 << 10

// keep reads a body to its end and closes it, so that the connection is free. The response then has
// a copy of the body. If the body is too long or does not end, keep returns false and leaves it whole.
func keep(r *http.Response) bool {
	if r.Body == nil || r.Body == http.NoBody {
		return true
	}
	read, ended := peek(r, mostKept)
	if !ended {
		return false
	}
	_ = r.Body.Close()
	r.Body = io.NopCloser(bytes.NewReader(read))
	return true
}

// A budget counts the retries that may be sent. Each request earns a part of one.
type budget struct {
	mu    sync.Mutex
	part  int64 // what a request earns, in percent of a retry
	most  int64 // what can be saved, in percent of a retry
	saved int64
}

// savedRequests is how many unused retries can be saved.
const savedRequests = 10

func newBudget(r Retry) budget {
	advance := 100 * int64(r.Attempts-1)
	return budget{part: int64(r.Budget), most: max(100*savedRequests, advance), saved: advance}
}

// earn counts a request, spend a retry, if there is one, and restore returns a retry that was not sent.
func (b *budget) earn()       { b.add(b.part) }
func (b *budget) spend() bool { return b.add(-100) }
func (b *budget) restore()    { b.add(100) }

// add adds n to saved. It returns false, and changes nothing, if saved would be negative.
func (b *budget) add(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saved+n < 0 {
		return false
	}
	b.saved = min(b.saved+n, b.most)
	return true
}
