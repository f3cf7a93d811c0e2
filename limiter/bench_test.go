package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirgo/weir/limiter"
)

// The benchmarks follow one caller's path through Limiter and Memory, the real clock
// included. Serial and parallel stand beside each other; -cpu varies the latter.

// api is a limiter under a name that no test looks at. A nil store is a new Memory.
func api(l limiter.Allowance, store limiter.Store) *limiter.Limiter {
	return limiter.Must(limiter.New(limiter.Config{Name: "api", Limit: l, Store: store}))
}

// allow is what each benchmark repeats.
func allow(b *testing.B, l *limiter.Limiter, key string) {
	if _, err := l.Allow(context.Background(), key); err != nil {
		b.Fatal(err)
	}
}

// serialAndParallel asks for one key of a new limiter.
func serialAndParallel(b *testing.B, newLimiter func() *limiter.Limiter) {
	b.Run("serial", func(b *testing.B) {
		l := newLimiter()
		b.ReportAllocs()
		for b.Loop() {
			allow(b, l, "key")
		}
	})
	b.Run("parallel", func(b *testing.B) {
		l := newLimiter()
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				allow(b, l, "key")
			}
		})
	})
}

// Hot keys: no cache is missed. The log's events are gone again soon.
func BenchmarkHotKey(b *testing.B) {
	limits := map[string]limiter.Limit{
		"calendar":             limiter.Monthly(1e12).In("Europe/Berlin"),
		"sliding-window-large": limiter.PerDay(800_000_000_000),
	}
	for _, a := range everyAlgorithm {
		limits[a.String()] = limiter.Limit{Events: 1<<27 - 1, Per: 30 * 24 * time.Hour, Algorithm: a}
	}
	limits["sliding-log"] = limiter.Limit{Events: 100, Per: 10 * time.Microsecond, Algorithm: limiter.SlidingLog}
	for name, l := range limits {
		b.Run("algorithm="+name, func(b *testing.B) {
			serialAndParallel(b, func() *limiter.Limiter { return api(l, nil) })
		})
	}
}

// An exact window beside a counter, as full as events come evenly: about its time where it admits
// and where it refuses.
func BenchmarkExactWindow(b *testing.B) {
	for _, events := range []int64{1, 5, 10, 11} {
		l := limiter.PerSecond(events)
		b.Run(fmt.Sprintf("events=%d/admitted", events), func(b *testing.B) {
			m := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
			api := api(l, m)
			b.ReportAllocs()
			for b.Loop() {
				m.Advance(time.Second/time.Duration(events) + time.Microsecond)
				allow(b, api, "key")
			}
		})
		b.Run(fmt.Sprintf("events=%d/refused", events), func(b *testing.B) {
			serialAndParallel(b, func() *limiter.Limiter {
				api := api(limiter.Limit{Events: events, Per: 300 * 24 * time.Hour}, nil)
				for range events {
					allow(b, api, "key")
				}
				return api
			})
		})
	}
}

// A charge of 2 units, beside one that is settled for less or more: that is to take at most as
// much again.
func BenchmarkSettle(b *testing.B) {
	for _, l := range []limiter.Limit{limiter.PerDay(1_000_000), limiter.PerDay(1_000_000).With(limiter.TokenBucket), limiter.PerDay(10), limiter.PerDay(5000).With(limiter.SlidingLog)} {
		m := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
		q := named(b, "tokens", "", l)
		q.Settles = true
		charges := []limiter.Charge{{Quota: q, Key: "key", Cost: 2}}
		for _, actual := range []int64{2, 1, 3} {
			b.Run(fmt.Sprintf("limit=%v/actual=%d", l, actual), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					m.Advance(24 * time.Hour)
					if err := m.Decide(context.Background(), charges); err != nil {
						b.Fatal(err)
					}
					settlements := [1]limiter.Settlement{{charges[0], actual}}
					err := m.Settle(context.Background(), settlements[:])
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	for _, n := range []int{1, 3, 8, 64} {
		for _, tt := range []struct {
			name string
			l    limiter.Limit
		}{{"admitted", limiter.PerDay(1_000_000_000)}, {"refused", limiter.PerDay(1)}} {
			b.Run(fmt.Sprintf("charges=%d/%s", n, tt.name), func(b *testing.B) {
				m := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
				var charges []limiter.Charge
				for i := range n {
					charges = append(charges, charge(named(b, fmt.Sprint("rule ", i), "", tt.l.With(limiter.TokenBucket)), "key", 1))
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := m.Decide(context.Background(), charges); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
