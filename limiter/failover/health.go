package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// Stats is what [Store.Stats] returns. Each decided batch counts in one of the first four fields.
// Invalid batches count in none, and nor do batches whose client went away. If servers decided one part
// of a batch and policies the other, it counts as decided by policy.
type Stats struct {
	Decided uint64 // batches that the inner store decided
	Local   uint64 // batches decided by policy, with a FailLocal rule and no FailClosed rule
	Open    uint64 // batches decided by policy, with FailOpen rules only
	Closed  uint64 // batches that failed because a rule is FailClosed

	// Failures is how many calls to the inner store failed: decisions, settlements, resets and probes.
	Failures uint64

	// Degraded says that outage policies decide for at least one server, and DegradedFor says for how
	// long that has been so. Only a probe ends it, and only requests start probes, so it lasts while
	// there are no requests.
	Degraded    bool
	DegradedFor time.Duration

	// DegradedInAll is the total time of all outages since New, an outage in progress included.
	DegradedInAll time.Duration

	// LastError is the last error of a server or the network, while Degraded.
	LastError error

	// Events are the last sixteen events that OnDegraded was called with, oldest first.
	Events []Event

	// Replicas is Options.Replicas: during an outage, Local divides limits by it.
	Replicas int
}

// Share returns this process's share of l, which FailLocal rules count against in an outage.
func (s Stats) Share(l limiter.Limit) limiter.Limit { return divide(l, int64(max(1, s.Replicas))) }

// ShareSlots returns how many of n slots this process has in an outage.
func (s Stats) ShareSlots(n int64) int64 { return max(1, n/int64(max(1, s.Replicas))) }

// A Reporter is a store that knows the health of its server. [limiter.As] finds it.
type Reporter interface {
	// Health returns the store's figures.
	Health() Stats
}

// Health implements [Reporter].
func (s *Store) Health() Stats { return s.Stats() }

// Stats returns how many decisions were made so far, by whom, and whether outage policies decide now.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{
		Decided:       s.counters.decided.Load(),
		Local:         s.counters.local.Load(),
		Open:          s.counters.open.Load(),
		Closed:        s.counters.closed.Load(),
		Failures:      s.counters.failures.Load(),
		DegradedInAll: s.total,
		Events:        slices.Clone(s.events),
		Replicas:      s.options.Replicas,
	}
	if open := s.open.Load(); open != 0 {
		stats.Degraded, stats.DegradedFor, stats.LastError = true, time.Since(s.since), s.parts[bits.Len64(open)-1].err
		stats.DegradedInAll += stats.DegradedFor
	}
	return stats
}

// An Event is the beginning or the end of an outage.
type Event struct {
	// Degraded reports that an outage began: the policies decide from now on. If it is false, the
	// server answers again.
	Degraded bool

	// At is when the Store noticed it.
	At time.Time

	// Part is the number by which the store knows the server ([Servers]), or 0 for a store with one
	// server. If one server has several numbers, Part is the number that failed first.
	Part int

	// Server is the address of the server, if the store knows it, or several addresses.
	Server string

	// Err is the last error of the server or the network.
	Err error

	// Unusable says that the server cannot do what the store needs, such as run a script. This
	// is a wrong configuration, and it does not pass by itself as outages do.
	Unusable bool

	// For is how long the outage lasted, until the server answered again. It is zero in an Event that
	// begins an outage.
	For time.Duration
}

// log logs a first failure, or an event if there is no hook. The number of a part tells an operator
// nothing if the server has a name, or if there is one server.
func (e Event) log(isFirst bool) {
	level, code, last := slog.LevelWarn, "weir-degraded", slog.Any("error", e.Err)
	message := "weir: the store's server fails, so the rules' OnOutage policies decide"
	switch {
	case isFirst && e.Unusable:
		level, code = slog.LevelError, "weir-store-unusable"
		message = "weir: the store's server cannot do what Weir needs: a wrong configuration; until it is fixed the rules' OnOutage policies decide"
	case isFirst:
		code, message = "weir-call-failed", "weir: a call to the store's server failed: the rules' OnOutage policies decide"
	case !e.Degraded:
		level, code, last = slog.LevelInfo, "weir-recovered", slog.Duration("after", e.For)
		message = "weir: the store's server is back"
	}
	attrs := []slog.Attr{slog.String("code", code)}
	switch {
	case e.Server != "":
		attrs = append(attrs, slog.String("server", e.Server))
	case e.Part > 0:
		attrs = append(attrs, slog.Int("part", e.Part))
	}
	slog.LogAttrs(context.Background(), level, message, append(attrs, last)...)
}

const (
	quiet      = time.Minute // the time without a failure after which one counts as the first
	eventsKept = 16          // in Stats
)

// tell has a goroutine report an event, or a first failure. Each waits for the one before, so the
// order needs no lock around the hook, and no request waits for it. It needs the lock.
func (s *Store) tell(e Event, isFirst bool) {
	e.At = time.Now()
	before, done := s.told, make(chan struct{})
	s.told = done
	go func() {
		defer close(done)
		<-before
		if panicked := survive(func() { s.report(e, isFirst) }); panicked != nil {
			slog.Error("weir: OnDegraded panicked", "code", "weir-hook-panic", "panic", fmt.Sprint(panicked))
		}
	}()
}

// report logs a first failure, or calls the hook. A diagnosis may take a second, so it is made
// once for a server and not for each of its parts.
func (s *Store) report(e Event, isFirst bool) {
	e.Server, _ = s.examine(e.Part, nil)
	e.Unusable = isUnusable(e.Err)
	if !s.isNews(&e, isFirst) {
		return
	}
	if isFirst || e.Degraded {
		_, e.Err = s.examine(e.Part, e.Err)
		s.mu.Lock()
		s.parts[e.Part].err = e.Err
		s.mu.Unlock()
	}
	if isFirst {
		e.log(true)
		return
	}
	s.mu.Lock()
	s.events = append(s.events[max(0, len(s.events)-eventsKept+1):], e)
	s.mu.Unlock()
	s.options.OnDegraded(e)
}

// A report is what was reported about a server. Its parts share it.
type report struct {
	server string
	heard  map[bool]time.Time // when a first failure was last heard of, and one as unusable
	outage Event              // its beginning; zero: the server is up
}

// isNews reports whether e says something new about its server: a failure of its kind that is the
// first in a while, or the beginning or the end of an outage. A server that hangs may have a third
// of all parts. The first part that answers ends the outage, because other parts may get no
// request for long. The server that answers may be another one, which took over.
func (s *Store) isNews(e *Event, isFirst bool) bool {
	r := s.reports[e.Part]
	isDown := r != nil && r.outage.Degraded
	if e.Degraded || isFirst && !isDown {
		name := cmp.Or(e.Server, fmt.Sprint(e.Part))
		r = &report{server: name, heard: make(map[bool]time.Time)}
		for _, known := range s.reports {
			if known != nil && known.server == name {
				r = known
			}
		}
		s.reports[e.Part], isDown = r, r.outage.Degraded
	}
	switch {
	case isFirst:
		last := r.heard[e.Unusable]
		r.heard[e.Unusable] = e.At
		return e.At.Sub(last) >= quiet
	case e.Degraded == isDown:
		return false // another part of the server failed or answered before
	case e.Degraded:
		r.outage = *e
	default:
		e.Part, e.For = r.outage.Part, e.At.Sub(r.outage.At)
		*r = report{} // what fails next is another outage
	}
	return true
}

// examine asks the store for the address of a server, and for more about its failure.
func (s *Store) examine(part int, err error) (server string, found error) {
	survive(func() { server, found = s.servers.Diagnose(part, err) })
	return server, cmp.Or(found, err)
}

// isUnusable reports whether err says that the server cannot do what the store needs.
func isUnusable(err error) bool {
	var wrong interface{ Unusable() bool }
	return errors.As(err, &wrong) && wrong.Unusable()
}
