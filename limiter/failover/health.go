package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// Stats is what [Store.Health] returns. Each decided batch counts in one of the first four fields.
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

	// DegradedInAll is the total time since New in which Degraded was so.
	DegradedInAll time.Duration

	// LastError is the last error of a server or the network, while Degraded.
	LastError error

	// Events are the last sixteen events that OnDegraded was called with, oldest first.
	Events []Event

	// Forgiven is how many keys were forgiven what they owed to the server, because more than 65,536 keys
	// owed something.
	Forgiven uint64

	// Replicas is Options.Replicas: during an outage, Local divides limits by it.
	Replicas int
}

// Share returns this process's share of l, which FailLocal rules count against in an outage.
func (s Stats) Share(l limiter.Limit) limiter.Limit { return divide(l, int64(max(1, s.Replicas))) }

// ShareSlots returns how many of n slots this process has in an outage.
func (s Stats) ShareSlots(n int64) int64 { return max(1, n/int64(max(1, s.Replicas))) }

// A Reporter is a store that knows the health of its server. The As of package store finds it.
type Reporter interface {
	// Health returns the store's figures.
	Health() Stats
}

// Health implements [Reporter]: it returns how many decisions were made so far, by whom, and whether
// outage policies decide now.
func (s *Store) Health() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{
		Decided:       s.counters.decided.Load(),
		Local:         s.counters.local.Load(),
		Open:          s.counters.open.Load(),
		Closed:        s.counters.closed.Load(),
		Failures:      s.counters.failures.Load(),
		Forgiven:      s.debts.forgiven.Load(),
		DegradedInAll: s.total,
		Events:        slices.Clone(s.events),
		Replicas:      s.options.Replicas,
	}
	for i := range s.servers {
		if err := s.servers[i].down.Load(); err != nil {
			stats.Degraded, stats.DegradedFor, stats.LastError = true, time.Since(s.since), *err
		}
	}
	stats.DegradedInAll += stats.DegradedFor
	return stats
}

// An Event is the beginning or the end of an outage.
type Event struct {
	// Degraded reports that policies decide from now on for a server. If it is false, no call has failed
	// for a minute.
	Degraded bool

	// At is when the Store noticed it.
	At time.Time

	// Server is the address of the server that failed first, if the store knows it, or several
	// addresses. The end of an outage has the Server of its beginning.
	Server string

	// Err is the last error of the server or the network.
	Err error

	// Unusable says that the server cannot do what the store needs, such as run a script. This
	// is a wrong configuration, and it does not pass by itself as outages do.
	Unusable bool

	// For is how long the outage lasted: from the first failed call until the server that was down longest
	// answered again. It is zero in an Event that begins an outage.
	For time.Duration
}

// An outage begins with the first failed call and ends when no call has failed for a minute.
type outage struct {
	began    time.Time // zero: there is none
	failed   time.Time // when a call last failed
	answered time.Time // when a server first answered after that; zero: none has
	err      error     // of the last failed call

	isUnusable, isDegraded bool // reported
}

const quiet = time.Minute // the time without a failed call after which an outage ends

// record notes that a call failed. It reports the beginning of an outage, once that a server is unusable,
// and once that a breaker is open. It needs the lock.
func (s *Store) record(server *server, err error) {
	o, now := &s.outage, time.Now()
	isFirst := o.began.IsZero()
	if isFirst {
		*o = outage{began: now}
		s.ailing.Store(true)
	}
	server.failed = now
	o.failed, o.answered, o.err = now, time.Time{}, err
	if unusable := isUnusable(err); isFirst || unusable && !o.isUnusable {
		o.isUnusable = unusable
		code, level, message := "weir-call-failed", slog.LevelWarn, "weir: a call to the store's server failed: the rules' OnOutage policies decide"
		if unusable {
			code, level = "weir-store-unusable", slog.LevelError
			message = "weir: the store's server cannot do what Weir needs: a wrong configuration; until it is fixed the rules' OnOutage policies decide"
		}
		s.announce(func() {
			name, err := s.diagnose(server, err)
			if isFirst {
				s.blamed = name
			}
			s.log(level, code, message, name, slog.Any("error", err))
		})
	}
	if server.down.Load() != nil && !o.isDegraded {
		o.isDegraded = true
		s.announce(func() {
			e := Event{Degraded: true, At: now}
			e.Server, e.Err = s.diagnose(server, err)
			e.Unusable = isUnusable(e.Err)
			s.blamed = e.Server
			s.report(e)
		})
	}
}

// answered notes that a server answered, which ends an outage in which no call has failed for a minute.
// Servers that are down and not asked about do not make it longer. It needs the lock.
func (s *Store) answered() {
	o, now := &s.outage, time.Now()
	if o.began.IsZero() {
		return
	}
	if o.answered.IsZero() {
		o.answered = now
	}
	if now.Sub(o.failed) < quiet {
		return
	}
	e := Event{At: now, Err: o.err, Unusable: isUnusable(o.err), For: o.answered.Sub(o.began)}
	isDegraded := o.isDegraded
	*o = outage{}
	s.ailing.Store(false)
	s.announce(func() {
		e.Server = s.blamed
		if isDegraded {
			s.report(e)
		} else { // only the log has its beginning
			s.logEvent(e)
		}
	})
}

const eventsKept = 16 // in Stats

// report calls the hook, or logs the event if there is none.
func (s *Store) report(e Event) {
	s.mu.Lock()
	s.events = append(s.events[max(0, len(s.events)-eventsKept+1):], e)
	s.mu.Unlock()
	if s.options.OnDegraded == nil {
		s.logEvent(e)
		return
	}
	s.options.OnDegraded(e)
}

func (s *Store) logEvent(e Event) {
	if e.Degraded {
		s.log(slog.LevelWarn, "weir-degraded", "weir: the store's server fails, so the rules' OnOutage policies decide", e.Server, slog.Any("error", e.Err))
		return
	}
	s.log(slog.LevelInfo, "weir-recovered", "weir: the store's server is back", e.Server, slog.Float64("after_seconds", e.For.Seconds()))
}

func (s *Store) log(level slog.Level, code, message, server string, last slog.Attr) {
	attrs := []slog.Attr{slog.String("code", code)}
	if server != "" {
		attrs = append(attrs, slog.String("server", server))
	}
	s.logger().LogAttrs(context.Background(), level, message, append(attrs, last)...)
}

func (s *Store) logger() *slog.Logger { return cmp.Or(s.options.Logger, slog.Default()) }

// announce has a goroutine make a report after the reports before it: a diagnosis may take a second. It
// needs the lock.
func (s *Store) announce(report func()) {
	before, made := s.reported, make(chan struct{})
	s.reported = made
	go func() {
		defer close(made)
		if before != nil {
			<-before
		}
		if panicked := survive(report); panicked != nil {
			s.logger().Error("weir: OnDegraded panicked", "code", "weir-hook-panic", "panic", fmt.Sprint(panicked))
		}
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
