package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// An outage begins with the first failed call and ends when no call has failed for a minute.
type outage struct {
	began    time.Time // zero: there is none
	failed   time.Time // when a call last failed
	answered time.Time // when a server first answered after that; zero: none has
	err      error     // of the last failed call

	isUnusable, isDegraded bool // reported
}

const (
	quiet      = time.Minute // the time without a failed call after which an outage ends
	eventsKept = 16          // in Stats
)

// A record is a kind of report in the log.
type record struct {
	level         slog.Level
	code, message string
}

var (
	callFailed = record{slog.LevelWarn, "weir-call-failed", "weir: a call to the store's server failed: the rules' OnOutage policies decide"}
	unusable   = record{slog.LevelError, "weir-store-unusable", "weir: the store's server cannot do what Weir needs: a wrong configuration; until it is fixed the rules' OnOutage policies decide"}
	degraded   = record{slog.LevelWarn, "weir-degraded", "weir: the store's server fails, so the rules' OnOutage policies decide"}
	recovered  = record{slog.LevelInfo, "weir-recovered", "weir: the store's server is back"}
)

// announce has a goroutine make a report after the reports before it: a diagnosis may take a second. It
// needs the lock.
func (s *Store) announce(r record, e Event, failed *server) {
	before, made := s.reported, make(chan struct{})
	s.reported = made
	isEvent := s.outage.isDegraded && (r == degraded || r == recovered) // else only the log has the beginning
	go func() {
		defer close(made)
		if before != nil {
			<-before
		}
		if failed != nil {
			e.Server, e.Err = s.diagnose(failed, e.Err)
			if r == degraded || s.blamed == "" {
				s.blamed = e.Server
			}
		} else {
			e.Server, s.blamed = s.blamed, ""
		}
		if e.Unusable = isUnusable(e.Err); isEvent {
			s.mu.Lock()
			s.events = append(s.events[max(0, len(s.events)-eventsKept+1):], e)
			s.mu.Unlock()
		}
		log := cmp.Or(s.options.Logger, slog.Default())
		if hook := s.options.OnDegraded; isEvent && hook != nil {
			if panicked := survive(func() { hook(e) }); panicked != nil {
				log.Error("weir: OnDegraded panicked", "code", "weir-hook-panic", "panic", fmt.Sprint(panicked))
			}
			return
		}
		attrs := []any{"code", r.code}
		if e.Server != "" {
			attrs = append(attrs, "server", e.Server)
		}
		if e.Degraded {
			attrs = append(attrs, "error", e.Err)
		} else {
			attrs = append(attrs, "after_seconds", e.For.Seconds())
		}
		log.Log(context.Background(), r.level, r.message, attrs...)
	}()
}

// diagnose returns the name of a server and err with what the store finds out about it. A server that is
// down then has that error.
func (s *Store) diagnose(server *server, err error) (name string, _ error) {
	var found error
	survive(func() { name, found = s.inventory.Diagnose(server.number, err) })
	err = cmp.Or(found, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if server.down.Load() != nil {
		server.down.Store(&err)
	}
	s.outage.err = err
	return name, err
}

// isUnusable reports whether err says that the server cannot do what the store needs.
func isUnusable(err error) bool {
	var wrong interface{ Unusable() bool }
	return errors.As(err, &wrong) && wrong.Unusable()
}
