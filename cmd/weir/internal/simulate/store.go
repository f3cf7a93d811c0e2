package simulate

import (
	"time"

	stores "github.com/weirgo/weir/limiter/store"
)

// A Clock is a simulation's time, in microseconds since 1970.
type Clock struct{ now int64 }

// A store is for one goroutine, and has a simulation's time.
type store struct {
	stores.Map
	clock *Clock
}

func newStore(clock *Clock) *store {
	return &store{stores.Map{Clock: func() int64 { return clock.now }}, clock}
}

// Now returns the Clock's time for package middleware, which then never waits.
func (s *store) Now() time.Time { return time.UnixMicro(s.clock.now) }
