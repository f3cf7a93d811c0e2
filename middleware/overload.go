package middleware

import (
	"net/http"
	"reflect"
	"sync"
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

// Config.Overload is asked last, as it may let the request wait.

var overloadFeature = feature{
	config: func(c *compiler) (needed bool) {
		o := c.set.Overload
		c.reject(o != nil && !reflect.TypeOf(o).Comparable(),
			inConfig.Of("Overload"), "is a %T: its type must be comparable, such as a pointer", o)
		c.set.needsRoute = c.set.needsRoute || o != nil
		return o != nil
	},
	part: func(v *visit) part {
		for outer := visitOf(v.request.Context()); outer != nil; outer = visitOf(outer.Context) {
			if outer.overload.slot != nil && outer.set.Overload == v.set.Overload {
				return nil // the request has a slot of it
			}
		}
		return &v.overload
	},
}

// An overload is a request's way to its slot of Config.Overload.
type overload struct {
	noPart
	slot Slot // nil: the request has none

	mu    sync.Mutex
	ended bool
}

func (o *overload) after(v *visit) (again bool, no *refusal) {
	if v.outcome != OutcomeAllowed || v.set.Overload == nil {
		return false, nil
	}
	var retry time.Duration
	switch o.slot, retry = v.set.Overload.Admit(v.request); {
	case o.slot != nil:
	case isGone(v.request.Context()):
		no = v.refuse(refusal{outcome: OutcomeAllowed, status: statusClientClosedRequest}) // the rules admitted it
	default:
		no = v.refuse(refusal{outcome: OutcomeShed, status: http.StatusServiceUnavailable, retry: retry})
	}
	return false, no
}

func (o *overload) undo(*visit) {
	if o.slot != nil {
		o.slot.Leave()
	}
}

func (o *overload) pass(v *visit) need {
	if o.slot == nil {
		return needNothing
	}
	v.holds, v.waiter = true, o
	return needAnswer
}

func (o *overload) end(_ *visit, status int) int {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	if o.slot != nil {
		o.slot.Leave()
	}
	return status
}

// Streams passes on that the handler sends its answer in parts. A handler that goes on after the request has ended, as
// within an http.TimeoutHandler, has no slot any more.
func (o *overload) Streams(detached bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.slot.Streams(detached)
	}
}

// Waits passes on that the handler waits for its client.
func (o *overload) Waits(begins bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.slot.Waits(begins)
	}
}
