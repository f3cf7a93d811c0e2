package middleware

import (
	"net/http"
	"time"
)

// An Overload bounds the requests in flight by the capacity of the service, and refuses the rest.
// Package shed has one.
type Overload interface {
	// Admit returns a slot for the request, and may wait for one. If it returns nil, the request is
	// refused with that Retry-After, unless its client is gone.
	Admit(r *http.Request) (s Slot, retryAfter time.Duration)
}

// A Slot is held by a request in flight, from when it is admitted until its handler returns. Streams
// and Waits are called under a lock of the request: they must not block, nor call methods of the
// request or its RateLimit.
type Slot interface {
	// Streams is called when the handler sends its answer in parts: it flushed or, if detached,
	// hijacked the connection.
	Streams(detached bool)

	// Waits is called with true when the handler starts to wait for its client, and with false when
	// that wait ends. A handler waits when it reads the body, or writes to a client that is slow to
	// read. Several goroutines of a handler may wait at once.
	Waits(begins bool)

	// Leave is called once, after all other methods: when the handler has returned or panicked, or when
	// it is clear that it will not be called.
	Leave()
}

// OverloadOptions are the settings of an [Overload] in a rules file. Package rules passes them to the
// constructor in its Options. A zero field means the constructor's default.
type OverloadOptions struct {
	Priority []string      // tiers, the most important first
	MaxWait  time.Duration // how long a request may wait for a slot
	PerRoute bool          // each route has a bound of its own
	Exempt   Match         // requests that need no slot; nil: none
}
