package tally

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// A Store is what can be told of a limiter's store.
type Store struct {
	// Kind is memory, redis or other.
	Kind string

	// Those that the store can tell. The others are nil.
	Memory   func() limiter.MemoryStats
	Failover func() failover.Stats
	Batches  func() (sent, remembered uint64)

	next atomic.Int64 // when to look again, in nanoseconds since 1970

	mu       sync.Mutex
	degraded time.Duration // in all, up to
	counted  time.Time
}

// newStore asks a store, and those that it wraps. They are not known by their types, for
// which each program with metrics would compile every store that there is.
func newStore(s limiter.Store) *Store {
	t := &Store{}
	if batches, ok := limiter.As[limiter.Batcher](s); ok {
		t.Batches = batches.Batches
	}
	if memory, ok := limiter.As[limiter.MemoryReporter](s); ok {
		t.Memory = memory.Stats
	}
	if health, ok := limiter.As[failover.Reporter](s); ok {
		t.Failover = health.Health
	}
	switch kind, ok := limiter.As[limiter.Kind](s); {
	case ok:
		t.Kind = kind.Kind()
	case s == nil, t.Memory != nil: // nil is a RateLimit's own
		t.Kind = "memory"
	default:
		t.Kind = "other"
	}
	return t
}

// lookEvery is how exact Degraded is for an outage that ended before anybody asked.
const lookEvery = 100 * time.Millisecond

// notice is for a request that something was wrong with: for as long as there are any, an
// outage is looked at, be nobody asking.
func (s *Store) notice() {
	if s.Failover == nil {
		return
	}
	now, next := time.Now(), s.next.Load()
	if now.UnixNano() < next || !s.next.CompareAndSwap(next, now.Add(lookEvery).UnixNano()) {
		return
	}
	s.Degraded(s.Failover())
}

// Degraded is for how long the store has been degraded in all, where that is what it says
// of itself now. An outage ends with a request's probe, so what comes between the last
// request that was noticed and the end is no longer than lookEvery and the probe.
func (s *Store) Degraded(stats failover.Stats) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); stats.Degraded {
		since := now.Add(-stats.DegradedFor)
		if s.counted.After(since) {
			since = s.counted
		}
		s.degraded += max(0, now.Sub(since))
		s.counted = now
	}
	return s.degraded
}
