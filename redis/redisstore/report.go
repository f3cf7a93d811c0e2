package redisstore

import "github.com/weirgo/weir/limiter/failover"

// What metrics ask a store by these methods, so that they import none.

// Kind is "redis": the store's name in metrics.
func (s *Store) Kind() string { return "redis" }

// Health is the part of [Store.Stats] that every store around a server has.
func (s *Store) Health() failover.Stats { return s.Stats().Stats }
