package leasestore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

// A decision that asks nobody.
func BenchmarkDecide(b *testing.B) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingWindow} {
		b.Run(a.String(), func(b *testing.B) { benchmark(b, limiter.PerDay(1_000_000_000_000/2).With(a)) })
	}
}

func benchmark(b *testing.B, l limiter.Limit) {
	f := newFake()
	s := f.instance(b, 1, Options{})
	charges := []limiter.Charge{{Quota: quotaOf(b, "rule", l), Key: "key", Cost: 1}}
	for range 20 {
		require.NoError(b, s.Decide(b.Context(), charges))
		time.Sleep(tick)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		_ = s.Decide(b.Context(), charges)
	}
	b.StopTimer()
	b.ReportMetric(float64(f.decided.Load()+f.trips.Load())/float64(b.N), "trips/op")
}
