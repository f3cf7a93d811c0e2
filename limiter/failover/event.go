package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

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

	// Err is what the server or the network said last.
	Err error

	// Unusable says that the server cannot do what the store needs, such as run a script. This
	// is a wrong configuration, and it does not pass by itself as outages do.
	Unusable bool

	// For is how long the outage lasted, until the server answered again. It is zero while
	// Degraded.
	For time.Duration
}

// log is the default for OnDegraded.
func (e Event) log() {
	if e.Degraded {
		e.write(slog.LevelWarn, "weir-degraded", "weir: the store's server fails, so the rules' OnOutage policies decide", slog.Any("error", e.Err))
	} else {
		e.write(slog.LevelInfo, "weir-recovered", "weir: the store's server is back", slog.Duration("after", e.For))
	}
}

// logFirst logs the first failure in a while.
func (e Event) logFirst() {
	cause := slog.Any("error", e.Err)
	if e.Unusable {
		e.write(slog.LevelError, "weir-store-unusable", "weir: the store's server cannot do what Weir needs: a wrong configuration; until it is fixed the rules' OnOutage policies decide", cause)
	} else {
		e.write(slog.LevelWarn, "weir-call-failed", "weir: a call to the store's server failed: the rules' OnOutage policies decide", cause)
	}
}

// write logs e. The number of a part tells an operator nothing if the server has a name, or if
// there is one server.
func (e Event) write(level slog.Level, code, message string, last slog.Attr) {
	attrs := []slog.Attr{slog.String("code", code)}
	switch {
	case e.Server != "":
		attrs = append(attrs, slog.String("server", e.Server))
	case e.Part > 0:
		attrs = append(attrs, slog.Int("part", e.Part))
	}
	slog.LogAttrs(context.Background(), level, message, append(attrs, last)...)
}

// quiet is the time without a failure after which a failure counts as the first.
const quiet = time.Minute

// eventsKept is how many events Stats has.
const eventsKept = 16

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
		e.logFirst()
		return
	}
	s.mu.Lock()
	s.events = append(s.events[max(0, len(s.events)-eventsKept+1):], e)
	s.mu.Unlock()
	s.options.OnDegraded(e)
}

// A report is what was reported about a server. Its parts share it.
type report struct {
	server           string
	failed, unusable time.Time // when a first failure was last heard of, and one as unusable
	outage           Event     // its beginning; zero: the server is up
}

func (r *report) isDown() bool { return r != nil && r.outage.Degraded }

// isNews reports whether e says something new about its server: a failure of its kind that is the
// first in a while, or the beginning or the end of an outage. A server that hangs may have a third
// of all parts. The first part that answers ends the outage, because other parts may get no
// request for long.
func (s *Store) isNews(e *Event, isFirst bool) bool {
	r := s.reports[e.Part]
	if !isFirst && !e.Degraded { // the server that answers may be another one, which took over
		if !r.isDown() {
			return false // another part answered before
		}
		e.Part, e.For = r.outage.Part, e.At.Sub(r.outage.At)
		*r = report{} // what fails next is another outage
		return true
	}
	if e.Degraded || !r.isDown() {
		r = s.reportOn(cmp.Or(e.Server, fmt.Sprint(e.Part)))
		s.reports[e.Part] = r
	}
	if e.Degraded {
		isBeginning := !r.isDown()
		if isBeginning {
			r.outage = *e
		}
		return isBeginning
	}
	last := &r.failed
	if e.Unusable {
		last = &r.unusable
	}
	isNews := e.At.Sub(*last) >= quiet
	*last = e.At
	return isNews
}

// reportOn returns what was reported about a server.
func (s *Store) reportOn(server string) *report {
	for _, r := range s.reports {
		if r != nil && r.server == server {
			return r
		}
	}
	return &report{server: server}
}

// examine asks the store for the address of a server, and for more about its failure.
func (s *Store) examine(part int, err error) (server string, found error) {
	survive(func() { server, found = s.servers.Diagnose(part, err) })
	if found == nil {
		found = err
	}
	return server, found
}

// isUnusable reports whether err says that the server cannot do what the store needs.
func isUnusable(err error) bool {
	var wrong interface{ Unusable() bool }
	return errors.As(err, &wrong) && wrong.Unusable()
}
