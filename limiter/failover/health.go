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
	// Degraded reports that an outage began: the policies decide from now on. If it is false, all
	// servers that were asked answer again.
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

	// Flaky says that some calls fail and others are answered, or that the server is up and down by
	// turns: four times in a minute or more often. The policies decide on the calls that fail. Such an
	// outage ends when no call has failed for a minute.
	Flaky bool

	// For is how long the outage lasted, until the server answered again. It is zero in an Event that
	// begins an outage.
	For time.Duration
}

// log logs a first failure, or an event if there is no hook.
func (s *Store) log(e Event, isFirst bool) {
	level, code, last := slog.LevelWarn, "weir-degraded", slog.Any("error", e.Err)
	message := "weir: the store's server fails, so the rules' OnOutage policies decide"
	switch {
	case !isFirst && e.Degraded && e.Flaky:
		message = "weir: the store's server fails now and then, so the rules' OnOutage policies decide on calls that fail"
	case isFirst && e.Unusable:
		level, code = slog.LevelError, "weir-store-unusable"
		message = "weir: the store's server cannot do what Weir needs: a wrong configuration; until it is fixed the rules' OnOutage policies decide"
	case isFirst:
		code, message = "weir-call-failed", "weir: a call to the store's server failed: the rules' OnOutage policies decide"
	case !e.Degraded:
		level, code, last = slog.LevelInfo, "weir-recovered", slog.Float64("after_seconds", e.For.Seconds())
		message = "weir: the store's server is back"
	}
	attrs := []slog.Attr{slog.String("code", code)}
	if e.Server != "" {
		attrs = append(attrs, slog.String("server", e.Server))
	}
	s.logger().LogAttrs(context.Background(), level, message, append(attrs, last)...)
}

func (s *Store) logger() *slog.Logger { return cmp.Or(s.options.Logger, slog.Default()) }

const eventsKept = 16 // in Stats

// announce has a goroutine make a report, as a diagnosis may take a second. The goroutine makes one
// report after the other, and ends when all are made. It needs the lock.
func (s *Store) announce(report func()) {
	s.reports = append(s.reports, report)
	if len(s.reports) > 1 {
		return
	}
	go func() {
		for isLast := false; !isLast; {
			s.mu.Lock()
			next := s.reports[0]
			s.mu.Unlock()
			if panicked := survive(next); panicked != nil {
				s.logger().Error("weir: OnDegraded panicked", "code", "weir-hook-panic", "panic", fmt.Sprint(panicked))
			}
			s.mu.Lock()
			s.reports = s.reports[1:]
			isLast = len(s.reports) == 0
			s.mu.Unlock()
		}
	}()
}

// reportOutage reports the beginning or the end of an outage.
func (s *Store) reportOutage(number int, e Event) {
	if e.Degraded {
		e = s.diagnose(number, e)
		s.began = e
	} else {
		e.Server, e.Unusable, e.For = s.began.Server, isUnusable(e.Err), e.At.Sub(s.began.At)
	}
	s.mu.Lock()
	s.events = append(s.events[max(0, len(s.events)-eventsKept+1):], e)
	s.mu.Unlock()
	if s.options.OnDegraded == nil {
		s.log(e, false)
		return
	}
	s.options.OnDegraded(e)
}

// diagnose adds to e what the store finds out about the failure of a part, which remembers the error.
func (s *Store) diagnose(number int, e Event) Event {
	var found error
	survive(func() { e.Server, found = s.servers.Diagnose(number, e.Err) })
	e.Err = cmp.Or(found, e.Err)
	e.Unusable = isUnusable(e.Err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[number].err = e.Err
	return e
}

// isUnusable reports whether err says that the server cannot do what the store needs.
func isUnusable(err error) bool {
	var wrong interface{ Unusable() bool }
	return errors.As(err, &wrong) && wrong.Unusable()
}
