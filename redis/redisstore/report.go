package redisstore

import "github.com/weirgo/weir/limiter/failover"

// What metrics ask a store by these methods, so that they import none.

// Kind is "redis": the store's name in metrics.
func (s *Store) Kind() string { return "redis" }

// Health is the part of [Store.Stats] that every store around a server has.
func (s *Store) Health() failover.Stats { return s.Stats().Stats }

// Batches is the rest of [Store.Stats]: batches that went to Redis, and decisions that were
// refusals remembered.
func (s *Store) Batches() (sent, remembered uint64) {
	stats := s.Stats()
	return stats.Batches, stats.Remembered
}
