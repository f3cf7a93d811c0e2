package leasestore

import (
	"slices"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// Unwrap implements [limiter.Wrapper]: it is the store that decides what is exact.
func (s *Store) Unwrap() limiter.Store { return s.exact }

// Health is how both ways to Redis fare together, decisions and exchanges of counts. It is
// degraded while one of them is.
func (s *Store) Health() failover.Stats {
	h := s.synced.Stats()
	exact, ok := limiter.As[failover.Reporter](s.exact)
	if !ok {
		return h
	}
	e := exact.Health()
	last := e.LastError
	if last == nil {
		last = h.LastError
	}
	events := slices.Concat(h.Events, e.Events)
	slices.SortStableFunc(events, func(a, b failover.Told) int { return a.At.Compare(b.At) })
	return failover.Stats{
		Decided: h.Decided + e.Decided, Local: h.Local + e.Local, Open: h.Open + e.Open, Closed: h.Closed + e.Closed,
		Failures: h.Failures + e.Failures,
		Degraded: h.Degraded || e.Degraded, DegradedFor: max(h.DegradedFor, e.DegradedFor),
		Partly:   h.Partly || e.Partly,
		Events:   events,
		Replicas: e.Replicas, LastError: last,
	}
}
