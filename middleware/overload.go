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

// Overload returns Config.Overload of the rules in force, or nil.
func (l *RateLimit) Overload() Overload { return l.rules.Load().Overload }

// Config.Overload is asked last, as it may let the request wait.

var overload = feature{
	config: func(c *compiler) (needed bool) {
		o := c.set.Overload
		c.reject(o != nil && !reflect.TypeOf(o).Comparable(),
			inConfig.Of("Overload"), "is a %T: its type must be comparable, such as a pointer", o)
		c.set.needsRoute = c.set.needsRoute || o != nil
		return o != nil
	},
	begin: func(v *visit) (needed bool) {
		for outer := visitOf(v.request.Context()); outer != nil; outer = visitOf(outer.Context) {
			if outer.slot.Slot != nil && outer.set.Overload == v.set.Overload {
				return false // the request has a slot of it
			}
		}
		return true
	},
	after: func(v *visit) (again bool, no *refusal) {
		if v.outcome != OutcomeAllowed || v.set.Overload == nil {
			return false, nil
		}
		var retry time.Duration
		switch v.slot.Slot, retry = v.set.Overload.Admit(v.request); {
		case v.slot.Slot != nil:
		case isGone(v.request.Context()):
			no = v.refuse(refusal{outcome: OutcomeAllowed, status: statusClientClosedRequest}) // the rules admitted it
		default:
			no = v.refuse(refusal{outcome: OutcomeShed, status: http.StatusServiceUnavailable, retry: retry})
		}
		return false, no
	},
	undo: func(v *visit) { v.slot.leave() },
	pass: func(v *visit, _ http.Header) (awaits, watches bool) {
		if v.slot.Slot == nil {
			return false, false
		}
		v.holds, v.waiter = true, &v.slot
		return true, true
	},
	end: func(v *visit, status int) int {
		v.slot.leave()
		return status
	},
}

// An overloadSlot is a request's slot of Config.Overload. A handler that goes on after the request has ended, as within
// an http.TimeoutHandler, has no slot any more.
type overloadSlot struct {
	Slot  // nil: the request has none
	mu    sync.Mutex
	ended bool
}

func (s *overloadSlot) leave() {
	s.mu.Lock()
	left := s.ended
	s.ended = true
	s.mu.Unlock()
	if s.Slot != nil && !left {
		s.Slot.Leave()
	}
}

// Streams passes on that the handler sends its answer in parts.
func (s *overloadSlot) Streams(detached bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.Slot.Streams(detached)
	}
}

// Waits passes on that the handler waits for its client.
func (s *overloadSlot) Waits(begins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.Slot.Waits(begins)
	}
}
