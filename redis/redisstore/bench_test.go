package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
)

// BenchmarkDecide is a decision by so many callers at once, all of them admitted. The
// race with other libraries is in _benchmarks.
func BenchmarkDecide(b *testing.B) {
	server := redistest.Start(b)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 64})
	b.Cleanup(func() { _ = client.Close() })
	quota, err := limiter.NewQuota("rule", "", limiter.Limit{
		Events: 1_000_000, Per: time.Second, Burst: 1_000_000_000, Algorithm: limiter.TokenBucket,
	})
	require.NoError(b, err)
	for _, keys := range []int{10_000, 1} {
		names := make([]string, keys)
		for i := range names {
			names[i] = "client " + strconv.Itoa(i)
		}
		for _, callers := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("keys=%d/callers=%d", keys, callers), func(b *testing.B) {
				store := New(client, Options{})
				b.ReportAllocs()
				before := redisCPU(b, server)
				b.ResetTimer()
				var asked atomic.Int64
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						charges := []limiter.Charge{{Quota: quota, Cost: 1}}
						decisions := make([]limiter.Decision, 1)
						for i := asked.Add(1); i <= int64(b.N); i = asked.Add(1) {
							charges[0].Key = names[uint64(i)*0x9E3779B97F4A7C15>>32%uint64(keys)]
							if err := store.Decide(context.Background(), charges, decisions); err != nil {
								b.Error(err)
								return
							}
							if decisions[0].Degraded || !decisions[0].Allowed {
								b.Error("Redis did not admit it")
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64((redisCPU(b, server)-before).Nanoseconds())/float64(b.N), "redis-cpu-ns/op")
			})
		}
	}
}

// BenchmarkLongLog is a decision on a log of 10,000 events, at its worst.
func BenchmarkLongLog(b *testing.B) {
	server, client := startRedis(b)
	clock := clockAt(0)
	s := onClock(b, clock, client, Options{ForgetRefusals: true})
	const events = 10_000
	q := quotaOf(b, "rule", limiter.PerHour(events).With(limiter.SlidingLog))
	decide := func(cost int64) limiter.Decision { return decideOne(b, s, q, "key", cost) }
	fill := func() limiter.Decision {
		require.NoError(b, s.Reset(b.Context(), []limiter.Charge{charge(q, "key", 0)}))
		clock.sleep(time.Hour)
		first := decide(1)
		for range events / 1000 {
			charges := make([]limiter.Charge, min(1000, events))
			for i := range charges {
				charges[i] = charge(q, "key", 1)
			}
			groups := make([]*group, len(charges))
			for i := range groups {
				groups[i] = newGroup(take)
				groups[i].tag = s.names.Tag("key")
				groups[i].add(s.names.Name(groups[i].tag, q), &charges[i])
			}
			clock.sleep(time.Second)
			sendAlone(s, groups)
		}
		require.Zero(b, decide(0).Remaining)
		return first
	}
	for _, tt := range []struct {
		name string
		do   func(first limiter.Decision)
	}{
		{"a unit is refused", func(limiter.Decision) { decide(1) }},
		{"half of them are refused", func(limiter.Decision) { decide(events / 2) }},
		{"all are owed again", func(limiter.Decision) { _ = s.Owe(b.Context(), []limiter.Charge{charge(q, "key", events)}) }},
		{"all but one are too old", func(limiter.Decision) {
			clock.sleep(time.Hour - time.Second/2)
			decide(0)
			clock.sleep(time.Second/2 - time.Hour)
		}},
		{"the oldest is refunded", func(first limiter.Decision) {
			_ = s.Refund(b.Context(), []limiter.Charge{{Quota: q, Key: "key", Cost: 1, At: first.At}})
		}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			first := fill()
			before := redisCPU(b, server)
			for b.Loop() {
				tt.do(first)
			}
			b.ReportMetric(float64((redisCPU(b, server)-before).Nanoseconds())/float64(b.N), "redis-cpu-ns/op")
		})
	}
}

// redisCPU is the processor time that the server has taken.
func redisCPU(b *testing.B, server *redistest.Server) (sum time.Duration) {
	for line := range strings.Lines(server.MustDo("INFO", "cpu")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			require.NoError(b, err)
			sum += time.Duration(seconds * float64(time.Second))
		}
	}
	return sum
}
