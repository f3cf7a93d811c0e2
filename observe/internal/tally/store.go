package tally

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// What a store may tell of itself. Stores are not known by their types, for which each
// program with metrics would compile every store that there is.
type (
	// memory is what limiter.Memory tells, and failing what failover.Store does.
	memory  interface{ Stats() limiter.MemoryStats }
	failing interface{ Stats() failover.Stats }

	// health is for stores around a server whose Stats are of a type of their own.
	health interface{ Health() failover.Stats }

	// kind names the server, as metrics do: "redis".
	kind interface{ Kind() string }

	// batching is how many batches went to the server, and how many decisions were
	// refusals remembered.
	batching interface {
		Batches() (sent, remembered uint64)
	}

	// wrapper is a store around another one, which tells what the wrapper does not.
	wrapper interface{ Unwrap() limiter.Store }
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

func newStore(s limiter.Store) *Store {
	t := &Store{}
	if s == nil {
		t.Kind = "memory" // of a RateLimit's own
	}
	for depth := 0; s != nil && depth < mostWrappers; depth++ {
		t.learn(s)
		w, ok := s.(wrapper)
		if !ok {
			break
		}
		s = w.Unwrap()
	}
	if t.Kind == "" {
		t.Kind = "other"
	}
	return t
}

// mostWrappers ends the search where a store unwraps to itself.
const mostWrappers = 16

// learn notes what a store tells that none around it does.
func (t *Store) learn(s limiter.Store) {
	if k, ok := s.(kind); ok && t.Kind == "" {
		t.Kind = k.Kind()
	}
	if b, ok := s.(batching); ok && t.Batches == nil {
		t.Batches = b.Batches
	}
	if m, ok := s.(memory); ok && t.Memory == nil {
		t.Memory = m.Stats
		if t.Kind == "" {
			t.Kind = "memory"
		}
	}
	if h, ok := s.(health); ok && t.Failover == nil {
		t.Failover = h.Health
	}
	if f, ok := s.(failing); ok && t.Failover == nil {
		t.Failover = f.Stats
	}
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
