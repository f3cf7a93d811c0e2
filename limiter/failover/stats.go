package failover

import (
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

	// Replicas is Options.Replicas: during an outage, FailLocal divides limits by it.
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
