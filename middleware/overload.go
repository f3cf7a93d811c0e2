package middleware

import (
	"net/http"
	"time"

	"github.com/weirgo/weir/internal/response"
)

// An Overload bounds how many requests are in flight, by what the service can do, and
// refuses those beyond it. Package shed has one.
type Overload interface {
	// Admit returns the place of a request in flight, for which it may have waited. Nil: the
	// request is to be refused, and the client to stay away for so long, or it is gone.
	Admit(r *http.Request) (s Slot, retryAfter time.Duration)
}

// A Slot is that of a request in flight, from when it is admitted until its handler returns.
// Streams and Waits are called while the request is locked: they must not block, nor ask anything of
// the request or its RateLimit.
type Slot interface {
	// Streams says that the answer is being sent while the handler goes on: it was flushed or,
	// if detached, its connection was taken over.
	Streams(detached bool)

	// Waits says that the handler begins to wait for its client, or has ceased to: for more of the
	// request's body, or to take more of the answer. A handler may do so in several goroutines.
	Waits(begins bool)

	// Leave says that the handler has returned, or has panicked, or was never asked. It is
	// called once, and nothing is after it.
	Leave()
}

// OverloadOptions are what a rules file can say of an [Overload], for the constructor that
// the application gives package rules. Zero fields are the defaults of what it makes.
type OverloadOptions struct {
	Priority []string      // tiers, those first whose requests are admitted first
	MaxWait  time.Duration // how long a request may wait for its place under overload
	PerRoute bool          // each route has a bound of its own
	Exempt   Match         // which requests take no place; nil: none
}

// overloadOf is what r needs a place of, or nil: it has one already.
func (set *ruleset) overloadOf(r *http.Request) Overload {
	if set.Overload == nil {
		return nil
	}
	for e := endingOf(r.Context()); e != nil; e = endingOf(e.Context) {
		if e.slot != nil && e.set.Overload == set.Overload {
			return nil
		}
	}
	return set.Overload
}

// Streams implements [response.Watcher]: a handler that goes on when it has returned, as within an
// http.TimeoutHandler, has no place any more.
func (e *ending) Streams(detached bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.slot != nil && !e.ended {
		e.slot.Streams(detached)
	}
}

// Waits implements [response.Watcher].
func (e *ending) Waits(begins bool) {
	if e.slot == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.slot.Waits(begins)
	}
}

// Body implements [response.Watcher].
func (e *ending) Body() *response.Body { return &e.body }
