package tally

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/redisstore"
)

// A Store is what can be told of a limiter's store.
type Store struct {
	// Kind is memory, redis or other.
	Kind string

	// Those that the store can tell. The others are nil.
	Memory   func() limiter.MemoryStats
	Failover func() failover.Stats
	Redis    func() redisstore.Stats

	next atomic.Int64 // when to look again, in nanoseconds since 1970

	mu       sync.Mutex
	degraded time.Duration // in all, up to
	counted  time.Time
}

func newStore(s limiter.Store) *Store {
	t := &Store{Kind: "other"}
	switch s := s.(type) {
	case nil:
		t.Kind = "memory" // of a RateLimit's own
	case *limiter.Memory:
		t.Kind, t.Memory = "memory", s.Stats
	case *redisstore.Store:
		t.Kind, t.Redis = "redis", s.Stats
		t.Failover = func() failover.Stats { return s.Stats().Stats }
	case interface{ Stats() failover.Stats }:
		t.Failover = s.Stats
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
