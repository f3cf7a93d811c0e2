package failover

import (
	"math/bits"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// Stats is what [Store.Stats] returns. Each decided batch counts in one of the first four
// fields. Invalid batches count in none, and nor do batches whose client went away. If servers
// decided one part of a batch and policies the other, it counts as decided by policy.
type Stats struct {
	Decided uint64 // batches that the inner store decided
	Local   uint64 // batches decided by policy with a Local rule in them and no Closed one
	Open    uint64 // batches decided by policy with Open rules alone
	Closed  uint64 // batches that failed because a rule is Closed

	// Failures is how many calls to the inner store failed: decisions, settlements, resets and
	// probes.
	Failures uint64

	// Degraded says that policies decide, for at least one server, and DegradedFor says for how long.
	// Only a probe ends it, and only requests start probes, so it lasts while there are no requests.
	Degraded    bool
	DegradedFor time.Duration

	// DegradedInAll is how long policies have been in force since New, this outage included.
	DegradedInAll time.Duration

	// LastError is the last error of a server or the network, while Degraded.
	LastError error

	// Events are the last sixteen events that OnDegraded was called with, oldest first.
	Events []Event

	// Replicas is Options.Replicas: during an outage, Local divides limits by it.
	Replicas int
}

// Share returns the limit that Local counts against in this process instead of l.
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

// Stats returns what was decided so far, by whom, and whether policies decide now.
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
