// Package memory measures limiters that count in the process. Keys are those of clients, in
// another order than they came in, and live: neither back at their start nor refused, or else all
// are refused.
package memory

import (
	"context"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirgo/weir/benchmarks/peers"
	"github.com/weirgo/weir/limiter"
)

type quota = peers.Quota

var (
	enough  = quota{Burst: 5_000, Every: time.Hour}                 // for one of many keys
	nothing = quota{Burst: 1, Every: peers.Window}                  // once it is used up
	plenty  = quota{Burst: 1<<28 - 1, Every: 10 * time.Millisecond} // for one key
)

// A call makes one decision. It is called by one goroutine.
type call func(ctx context.Context, key string) (allowed bool, err error)

// A contestant opens an empty limiter for so many keys, and returns what makes a call for each
// goroutine.
type contestant struct {
	name string
	open func(b *testing.B, q quota, keys int) func() call
}

// contestants are all of them. To add one, add it here.
var contestants = []contestant{
	{"weir", openWeir(limiter.TokenBucket)},
	{"weir-window", openWeir(limiter.SlidingWindow)},
	{"weir-leaky", openWeir(limiter.LeakyBucket)},
	{"weir-fixed", openWeir(limiter.FixedWindow)},
	{"weir-exact", openExact},
	{"weir-log", openWeir(limiter.SlidingLog)},
	{"go-limiter", openGoLimiter},
	{"httprate", openHTTPRate},
	{"ulule", openUlule},
	{"throttled", openThrottled},
	{"tollbooth", openTollbooth},
	{"mennanov", openMennanov},
	{"echo", openEcho},
	{"rate+RWMutex", openRateRWMutex},
	{"rate+sync.Map", openRateSyncMap},
	{"floor", openFloor},
}

func each(b *testing.B, of []contestant, run func(b *testing.B, c contestant)) {
	for _, c := range of {
		b.Run(c.name, func(b *testing.B) {
			if os.Getenv("RACE_LIST") == "" {
				run(b, c)
			}
		})
	}
}

func sizes(b *testing.B, run func(b *testing.B, keys int), of ...int) {
	for _, keys := range of {
		name := map[int]string{1: "keys=1", 100_000: "keys=100k", 1_000_000: "keys=1M", 10_000_000: "keys=10M"}[keys]
		b.Run(name, func(b *testing.B) {
			if testing.Short() {
				keys = min(keys, 10_000)
			}
			run(b, keys)
		})
	}
}

func BenchmarkAllowed(b *testing.B) {
	sizes(b, func(b *testing.B, keys int) {
		q := enough
		if keys == 1 {
			q = plenty
		}
		each(b, contestants, func(b *testing.B, c contestant) {
			slow := c.name == "weir-exact" || c.name == "weir-log" // ten million a second: cores may ask for more of one key
			decisions(b, c, q, keys, keys > 1 || !slow)
		})
	}, 1, 100_000, 1_000_000)
}

func BenchmarkRefused(b *testing.B) {
	sizes(b, func(b *testing.B, keys int) {
		each(b, contestants, func(b *testing.B, c contestant) { decisions(b, c, nothing, keys, false) })
	}, 1, 100_000, 1_000_000)
}

// prepared are the limiters of this process, as a benchmark is called for each count of cores.
var prepared = map[string]func() call{}

func decisions(b *testing.B, c contestant, q quota, keys int, all bool) {
	name, _, _ := strings.Cut(b.Name(), "-")
	name += c.name
	caller := prepared[name]
	if caller == nil {
		caller = c.open(b, q, keys)
		first := caller()
		for _, key := range packed(sequence(keys)) {
			for range 100 { // until it is refused: windows and buckets differ in how soon
				if yes, err := first(b.Context(), key); err != nil {
					b.Fatal(err)
				} else if !yes || q != nothing {
					break
				}
			}
		}
		prepared[name] = caller
	}
	asked := packed(rand.New(rand.NewPCG(1, 2)).Perm(keys))
	var refused, failed atomic.Int64
	runtime.GC()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		ctx, call := context.Background(), caller()
		k, no, errs := rand.IntN(keys), int64(0), int64(0)
		for pb.Next() {
			yes, err := call(ctx, asked[k])
			if err != nil {
				errs++
			} else if !yes {
				no++
			}
			if k++; k == keys {
				k = 0
			}
		}
		refused.Add(no)
		failed.Add(errs)
	})
	b.StopTimer()
	switch n := refused.Load(); {
	case all && n > int64(b.N/1000), q == nothing && n+failed.Load() < int64(b.N)*999/1000:
		b.Fatalf("%d of %d were refused", n, b.N)
	case failed.Load() > 0:
		b.ReportMetric(float64(failed.Load())/float64(b.N), "errors/op") // throttled gives up after ten lost races
	}
}

// BenchmarkNew is about keys that an empty limiter has not seen, its growth included.
func BenchmarkNew(b *testing.B) {
	sizes(b, func(b *testing.B, keys int) {
		asked := packed(rand.New(rand.NewPCG(1, 2)).Perm(keys))
		each(b, contestants, func(b *testing.B, c contestant) {
			for b.Loop() {
				b.StopTimer()
				caller := c.open(b, enough, keys)
				runtime.GC()
				b.StartTimer()
				var next atomic.Int64
				inParallel(func() {
					call := caller()
					for i := next.Add(1) - 1; i < int64(keys); i = next.Add(1) - 1 {
						if _, err := call(context.Background(), asked[i]); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(keys), "ns/op")
		})
	}, 1_000_000)
}

// BenchmarkHeld is about the heap with so many keys live, and what a collection takes of it. Each
// key came as a string of its own, so that a limiter which keeps it is seen to.
func BenchmarkHeld(b *testing.B) {
	sizes(b, func(b *testing.B, keys int) {
		each(b, contestants[:len(contestants)-1], func(b *testing.B, c contestant) {
			var perKey, collection float64
			for b.Loop() {
				before, _ := heap()
				call := c.open(b, enough, keys)()
				for i, began := 0, time.Now(); i < keys; i++ {
					if _, err := call(context.Background(), peers.Key(i)); err != nil {
						b.Fatal(err)
					}
					if i%(1<<18) == 0 && time.Since(began) > 90*time.Second {
						b.Fatalf("in 90 s no more than %d keys were in", i)
					}
				}
				after, took := heap()
				runtime.KeepAlive(call)
				perKey, collection = (float64(after)-float64(before))/float64(keys), float64(took)/1e6
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(perKey, "B/key")
			b.ReportMetric(collection, "ms/GC")
		})
	}, 1_000_000, 10_000_000)
}

// heap is what is live on it, and how long a garbage collection takes when nothing else runs.
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

func inParallel(f func()) {
	done := make(chan struct{})
	n := runtime.GOMAXPROCS(0)
	for range n {
		go func() { f(); done <- struct{}{} }()
	}
	for range n {
		<-done
	}
}

// packed are the keys of these numbers, one behind the other in memory: what is read of a request
// is at hand, and for the garbage collector they are one object.
func packed(numbers []int) []string {
	var text strings.Builder
	ends := make([]int, len(numbers))
	for i, number := range numbers {
		text.WriteString(peers.Key(number))
		ends[i] = text.Len()
	}
	keys, from := make([]string, len(numbers)), 0
	for i, end := range ends {
		keys[i], from = text.String()[from:end], end
	}
	return keys
}

func sequence(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// openFloor does what a limiter that keeps time by key cannot do without, and nothing else: it
// reads the clock, hashes the key, and does one compare-and-swap in a table that is large enough.
func openFloor(_ *testing.B, q quota, keys int) func() call {
	table := make([]atomic.Uint64, 1<<bits.Len(uint(2*keys)))
	seed, base, mask := maphash.MakeSeed(), time.Now(), uint64(len(table)-1)
	return shared(func(_ context.Context, key string) (bool, error) {
		now := time.Since(base)
		cell := &table[maphash.String(seed, key)&mask]
		cell.CompareAndSwap(cell.Load(), uint64(now))
		return q != nothing, nil
	})
}
