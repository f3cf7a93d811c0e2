package tally

import (
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// A Store is what is known about a limiter's store.
type Store struct {
	// Kind is memory, redis or other.
	Kind string

	// The figures that the store reports. The others are nil.
	Memory   func() limiter.MemoryStats
	Failover func() failover.Stats
}

// NewStore asks a store, and the stores that it wraps, through interfaces: with their types each
// program with metrics would compile every store.
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
