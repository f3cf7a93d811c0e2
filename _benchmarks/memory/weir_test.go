package memory

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirgo/weir/benchmarks/peers"
	"github.com/weirgo/weir/limiter"
)

// limitOf is a quota as Weir's algorithms have it.
func limitOf(q quota, a limiter.Algorithm) limiter.Limit {
	switch {
	case a == limiter.TokenBucket, a == limiter.LeakyBucket:
		return limiter.Limit{Events: 1, Per: q.Every, Burst: q.Burst, Algorithm: a}
	case a == limiter.SlidingLog && q == plenty: // as logs are for small limits
		return limiter.Limit{Events: 100, Per: 10 * time.Microsecond, Algorithm: a}
	}
	return limiter.Limit{Events: q.Burst, Per: peers.Window, Algorithm: a}
}

// memory has room enough that no key takes another's place.
func memory(b *testing.B, keys int) *limiter.Memory {
	m, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: keys + keys/2 + 100, MaxBytes: 4 << 30})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func allow(b *testing.B, c limiter.Config) func() call {
	c.Name = "race"
	l, err := limiter.New(c)
	if err != nil {
		b.Fatal(err)
	}
	return shared(func(ctx context.Context, key string) (bool, error) {
		d, err := l.Allow(ctx, key)
		return d.Allowed, err
	})
}

func openWeir(a limiter.Algorithm) func(*testing.B, quota, int) func() call {
	return func(b *testing.B, q quota, keys int) func() call {
		return allow(b, limiter.Config{Limit: limitOf(q, a), Store: memory(b, keys)})
	}
}

// openExact has 10 events, the most of a window that keeps their times. One hot key may have them in
// a microsecond, so that most are admitted.
func openExact(b *testing.B, q quota, keys int) func() call {
	l := limiter.Limit{Events: 10, Per: peers.Window}
	if q == plenty {
		l.Per = time.Microsecond
	}
	if q == enough {
		l.Per = 10 * time.Millisecond // so that a key which is asked for again has room
	}
	return allow(b, limiter.Config{Limit: l, Store: memory(b, keys)})
}

// BenchmarkSeveral is one decision on several limits, of one rule and of several.
func BenchmarkSeveral(b *testing.B) {
	sizes(b, func(b *testing.B, keys int) {
		var all []contestant
		for n := 1; n <= 3; n++ {
			all = append(all, contestant{fmt.Sprint("weir-limits=", n), func(b *testing.B, _ quota, keys int) func() call {
				limits := make([]limiter.Limit, n)
				for i := range limits {
					limits[i] = limiter.Limit{Events: 1 << 28, Per: peers.Window + time.Duration(i)*time.Hour}
				}
				return allow(b, limiter.Config{Limit: limiter.Join(limits, limiter.Concurrency{}), Store: memory(b, n*keys)})
			}})
			all = append(all, contestant{fmt.Sprint("weir-rules=", n), func(b *testing.B, q quota, keys int) func() call { return rules(b, q, keys, n) }})
		}
		each(b, all, func(b *testing.B, c contestant) { decisions(b, c, plenty, keys, true) })
	}, 1, 100_000)
}

// rules decides about so many token buckets of one key at once.
func rules(b *testing.B, q quota, keys, n int) func() call {
	m := memory(b, n*keys)
	quotas := make([]*limiter.Quota, n)
	for i := range quotas {
		var err error
		if quotas[i], err = limiter.NewQuota(fmt.Sprint("rule ", i), "", limitOf(q, limiter.TokenBucket)); err != nil {
			b.Fatal(err)
		}
	}
	return func() call {
		batch := make([]limiter.Charge, n)
		return func(ctx context.Context, key string) (bool, error) {
			for i, q := range quotas {
				batch[i] = limiter.Charge{Quota: q, Key: key, Cost: 1}
			}
			err := m.Decide(ctx, batch)
			return batch[0].Decision.Allowed, err
		}
	}
}

const maxKeys = 100_000

// full is a store at its cap, full of the keys of strangers, who have made so many requests each.
func full(b *testing.B, limit limiter.Limit, requests int64) (*limiter.Memory, *limiter.Limiter) {
	m, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: maxKeys})
	if err != nil {
		b.Fatal(err)
	}
	l, err := limiter.New(limiter.Config{Name: "api", Store: m, Limit: limit})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 2 * maxKeys {
		for range requests {
			if _, err := l.Allow(b.Context(), "stranger "+peers.Key(i)); err != nil {
				b.Fatal(err)
			}
		}
	}
	return m, l
}

// BenchmarkAtCap is what a new key takes that another one has to make way for.
func BenchmarkAtCap(b *testing.B) {
	for name, limit := range map[string]limiter.Limit{"bucket": limitOf(enough, limiter.TokenBucket), "exact": limiter.PerDay(10)} {
		b.Run(name, func(b *testing.B) {
			each(b, []contestant{{name: "weir"}}, func(b *testing.B, _ contestant) {
				_, l := full(b, limit, 1)
				var n atomic.Int64
				for b.Loop() {
					if _, err := l.Allow(b.Context(), peers.Key(int(n.Add(1)))); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkFlooded is what a flood of new keys does to a customer of a store at its cap, and where
// it is besieged, which is where strangers' keys are being refused and cannot be forgotten.
func BenchmarkFlooded(b *testing.B) {
	for name, requests := range map[string]int64{"idle": 0, "flooded": 1, "besieged": 3} {
		b.Run(name, func(b *testing.B) {
			each(b, []contestant{{name: "weir"}}, func(b *testing.B, _ contestant) { attack(b, requests) })
		})
	}
}

func attack(b *testing.B, requests int64) {
	const flood, mine = 3_000_000, 4_000
	limit := limiter.Limit{Events: 1, Per: time.Hour, Burst: 2, Algorithm: limiter.TokenBucket}
	customer := limiter.Limit{Events: 1, Per: 4 * time.Minute, Burst: 1 << 17, Algorithm: limiter.TokenBucket}
	keys := packed(sequence(mine))
	var took []time.Duration
	var heapRatio, refused, forgotten float64
	for b.Loop() {
		m, l := full(b, limit, max(requests, 1))
		regular, err := limiter.New(limiter.Config{Name: "customers", Store: m, Limit: customer})
		if err != nil {
			b.Fatal(err)
		}
		round := int64(0)
		ask := func() {
			round++
			for _, key := range keys {
				began := time.Now()
				d, err := regular.Allow(context.Background(), key)
				took = append(took, time.Since(began))
				if err != nil || !d.Allowed {
					refused++
				}
			}
		}
		for range 100 { // so that the customer has used more than those that came once
			ask()
		}
		before, _ := heap()
		took = took[:0]
		var over atomic.Bool
		var customers sync.WaitGroup
		customers.Go(func() {
			for len(took) < 200*mine && !over.Load() || len(took) == 0 {
				ask()
			}
		})
		if requests > 0 {
			var next atomic.Int64
			inParallel(func() {
				for i := next.Add(1); i < flood; i = next.Add(1) {
					_, _ = l.Allow(context.Background(), peers.Key(int(i)))
				}
			})
			over.Store(true)
		}
		customers.Wait()
		for _, key := range keys {
			if d, err := regular.AllowN(context.Background(), key, 0); err != nil || d.Remaining > d.Limit-round+1 {
				forgotten++
			}
		}
		after, _ := heap()
		heapRatio = float64(after) / float64(before)
		runtime.KeepAlive(m)
	}
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
	b.ReportMetric(heapRatio, "heap-ratio")
	b.ReportMetric(refused, "refused")
	b.ReportMetric(forgotten, "forgotten")
}
