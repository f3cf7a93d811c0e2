package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

const (
	bytesPerKey race.Metric = "bytes/key"
	collection  race.Metric = "GC ms"
	excess      race.Metric = "GC ms over an empty heap's"
)

// What a process may use to fill its limiter.
const (
	patience = 90 * time.Second
	ceiling  = 10 << 30
)

// measureMemory is about the heap with so many keys live. Each came as a string of its own,
// as it does with a request, so that a limiter which keeps it is seen to.
func measureMemory(e contestant, keys int) (measurement, error) {
	return func(int, time.Duration) (race.Figures, error) {
		before, empty := heap()
		s := &environment{quota: enough, keys: keys}
		defer s.close()
		caller, err := e.open(s)
		if err != nil {
			return nil, err
		}
		call, start := caller(), time.Now()
		for i := range keys {
			if yes, err := call(context.Background(), race.Key(i)); err != nil || !yes {
				return nil, fmt.Errorf("new key %d: %t, %w", i, yes, err)
			}
			if i%(1<<18) != 0 {
				continue
			}
			var stats runtime.MemStats
			if runtime.ReadMemStats(&stats); stats.HeapSys > ceiling {
				return nil, fmt.Errorf("%d keys took more than %d GiB of heap", i, ceiling>>30)
			}
			if time.Since(start) > patience {
				return nil, fmt.Errorf("in %v no more than %d keys were in", patience, i)
			}
		}
		after, full := heap()
		runtime.KeepAlive(call)
		return race.Figures{
			bytesPerKey: (float64(after) - float64(before)) / float64(keys),
			collection:  float64(full) / float64(time.Millisecond),
			excess:      float64(full-empty) / float64(time.Millisecond),
		}, nil
	}, nil
}

// heap is what is live on it, and how long a garbage collection takes when nothing else runs:
// the shortest, as another process on the same cores adds whole turns of the scheduler.
func heap() (uint64, time.Duration) {
	runtime.GC()
	var took []time.Duration
	for began := time.Now(); len(took) < 3 || time.Since(began) < 200*time.Millisecond; {
		start := time.Now()
		runtime.GC()
		took = append(took, time.Since(start))
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc, slices.Min(took)
}
