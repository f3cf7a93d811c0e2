package main

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

// openFloor does what a limiter that keeps time by key cannot do without, and nothing else. It
// answers what is asked of others, and does not try again when another goroutine was faster.
func openFloor(s *environment) (func() race.Call, error) {
	table := make([]atomic.Uint64, 1<<bits.Len(uint(2*s.keys)))
	seed, base, mask := maphash.MakeSeed(), time.Now(), uint64(len(table)-1)
	answer := s.quota != nothing
	return shared(func(_ context.Context, key string) (bool, error) {
		now := time.Since(base)
		cell := &table[maphash.String(seed, key)&mask]
		cell.CompareAndSwap(cell.Load(), uint64(now))
		return answer, nil
	}), nil
}
