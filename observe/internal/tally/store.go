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

	next atomic.Int64 // when to look again, in nanoseconds since 1970

	mu       sync.Mutex
	degraded time.Duration // in all, up to
	counted  time.Time
}

// NewStore asks a store, and those that it wraps. They are not known by their types, for
// which each program with metrics would compile every store that there is.
func NewStore(s limiter.Store) *Store {
	t := &Store{}
	if memory, ok := limiter.As[interface{ Stats() limiter.MemoryStats }](s); ok {
		t.Memory = memory.Stats
	}
	if health, ok := limiter.As[failover.Reporter](s); ok {
		t.Failover = health.Health
	}
	switch kind, ok := limiter.As[interface{ Kind() string }](s); {
	case ok:
		t.Kind = kind.Kind()
	case s == nil, t.Memory != nil: // nil is a RateLimit's own
		t.Kind = "memory"
	default:
		t.Kind = "other"
	}
	return t
}

// lookEvery is how exact Degraded is for an outage that ended before it was called.
const lookEvery = 100 * time.Millisecond

// notice is called for a request that met an error or an outage policy: so the time of an
// outage is counted even if no metrics are collected meanwhile.
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

// Degraded is how long the store has been degraded in all, with its present stats counted in.
// An outage ends with a request's probe, so no more than lookEvery and the probe's time is
// missing.
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
