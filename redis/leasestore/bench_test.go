package leasestore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

// A decision that asks nobody, on one key and on many, admitted and refused.
func BenchmarkDecide(b *testing.B) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingWindow} {
		b.Run(fmt.Sprint(a, "/admitted"), func(b *testing.B) {
			benchmark(b, limiter.PerDay(1_000_000_000_000/2).With(a), 1, 0)
		})
		b.Run(fmt.Sprint(a, "/refused"), func(b *testing.B) {
			benchmark(b, limiter.PerDay(100).With(a), 1, 200)
		})
	}
}

func benchmark(b *testing.B, l limiter.Limit, keys, before int) {
	f := newFake()
	s := f.instance(b, 1, Options{})
	q := quotaOf(b, "rule", l)
	charges, decisions := make([][]limiter.Charge, keys), make([]limiter.Decision, 1)
	for i := range charges {
		charges[i] = []limiter.Charge{{Quota: q, Key: fmt.Sprint("key ", i), Cost: 1}}
		for range before {
			require.NoError(b, s.Decide(b.Context(), charges[i], decisions))
		}
	}
	for range 20 {
		for i := range charges {
			require.NoError(b, s.Decide(b.Context(), charges[i], decisions))
		}
		time.Sleep(tick)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		_ = s.Decide(b.Context(), charges[i%keys], decisions)
	}
	b.StopTimer()
	b.ReportMetric(float64(f.decided.Load()+f.trips.Load())/float64(b.N), "trips/op")
}
