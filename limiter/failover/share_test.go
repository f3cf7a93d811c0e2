package failover_test

import (
	"fmt"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

const day = 24 * time.Hour

func TestSlotsAreDivided(t *testing.T) {
	for _, tt := range []struct{ slots, replicas, want int64 }{{10, 0, 10}, {10, 1, 10}, {10, 4, 2}, {3, 4, 1}} {
		assert.Equal(t, tt.want, failover.Stats{Replicas: int(tt.replicas)}.ShareSlots(tt.slots))
	}
}

func TestALimitIsDividedWithoutExceedingIt(t *testing.T) {
	for _, tt := range []struct {
		limit    string
		replicas int64
		want     string
	}{
		{"100/1m", 0, "100/1m"}, // a store that does not say
		{"100/1m", 1, "100/1m"},
		{"100/1m", 4, "25/1m"},
		{"100/1m", 3, "33/1m"},
		{"3/1m", 3, "1/1m"},
		{"2/1m", 3, "1/1m30s"},
		{"3/1s", 7, "1/2333334us"},
		{"100/1h sliding-log", 8, "12/1h sliding-log"},
		{"1/1d fixed-window", 30, "1/30d fixed-window"},
		{"1/30d fixed-window", 30, "1/366d fixed-window"}, // the floor
		{"10/1s burst 20", 4, "10/4s token-bucket burst 5"},
		{"10/1s token-bucket", 4, "10/4s token-bucket burst 2"},
		{"10/1s burst 3", 4, "10/4s token-bucket burst 1"},
		{"10/1s leaky-bucket", 20, "10/20s leaky-bucket burst 1"},
		{"11/366d token-bucket", 2, "5/28747636363637us token-bucket burst 5"},
		{"2/366d token-bucket", 3, "1/366d token-bucket burst 1"}, // the floor
		{"1000 monthly Europe/Berlin", 4, "250 monthly Europe/Berlin"},
		{"4 daily", 4, "1 daily"},
		{"3 daily", 4, "1/32h fixed-window"},
		{"1000000000000/30d token-bucket", 100_000, "122000000/366d token-bucket burst 10000000"},
	} {
		t.Run(fmt.Sprint(tt.limit, " by ", tt.replicas), func(t *testing.T) {
			l, err := limiter.Parse(tt.limit)
			require.NoError(t, err)
			want, err := limiter.Parse(tt.want)
			require.NoError(t, err)
			assert.Equal(t, want, failover.Stats{Replicas: int(tt.replicas)}.Share(l))
		})
	}
}

// anyLimit is a valid limit of any algorithm.
func anyLimit() *rapid.Generator[limiter.Limit] {
	return rapid.Custom(func(t *rapid.T) limiter.Limit {
		l := limiter.Limit{
			Algorithm: rapid.SampledFrom([]limiter.Algorithm{
				limiter.SlidingWindow, limiter.TokenBucket, limiter.LeakyBucket, limiter.FixedWindow, limiter.SlidingLog,
			}).Draw(t, "algorithm"),
			Events: rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, 1_000_000_000_000)).Draw(t, "events"),
			Per: time.Microsecond * time.Duration(rapid.OneOf(
				rapid.Int64Range(1, (366*day).Microseconds()),
				rapid.SampledFrom([]int64{1, 1e6, 60e6, 3600e6, day.Microseconds(), (366 * day).Microseconds()}),
			).Draw(t, "microseconds")),
		}
		if l.Algorithm == limiter.SlidingLog {
			l.Events = min(l.Events, 10_000)
		}
		if l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket {
			l.Burst = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 100), rapid.Int64Range(1, 1_000_000_000_000)).Draw(t, "burst")
		}
		if l.Validate() != nil {
			t.Skip("not a limit")
		}
		return l
	})
}

func TestEveryShareIsALimitAndAllTogetherAreNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit().Draw(t, "limit")
		replicas := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, 100_000)).Draw(t, "replicas")
		require.Equal(t, l, failover.Stats{Replicas: int(1)}.Share(l))
		share := failover.Stats{Replicas: int(replicas)}.Share(l)
		require.NoError(t, share.Validate(), "%v", share)
		require.Equal(t, l.Algorithm, share.Algorithm)

		whole := big.NewRat(l.Events, l.Per.Microseconds())
		all := big.NewRat(share.Events, share.Per.Microseconds())
		all.Mul(all, big.NewRat(replicas, 1))
		if floor := share.Events == 1 && share.Per == 366*day; all.Cmp(whole) > 0 && !floor {
			t.Fatalf("%d times %v is %v a microsecond, more than %v of %v", replicas, share, all, whole, l)
		}

		burst := func(l limiter.Limit) int64 {
			if l.Burst == 0 {
				return l.Events
			}
			return l.Burst
		}
		if burst(share) > 1 && share.Burst != 0 && burst(share)*replicas > burst(l) {
			t.Fatalf("%d bursts of %d are more than %d", replicas, burst(share), burst(l))
		}

		// And it gives nothing away: half of a fair share at the least.
		if all.Mul(all, big.NewRat(2, 1)); all.Cmp(whole) < 0 {
			t.Fatalf("%d times %v is less than half of %v", replicas, share, l)
		}
	})
}

// If clients have limits of their own, a program goes on making quotas during an outage.
func TestSharesAreBoundedDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wrap(newServer(t, dead), failover.Options{Replicas: 2})
		for range 10_100 {
			s.ShareOf(quota(t, "api", limiter.PerMinute(10), limiter.FailLocal))
		}
		assert.LessOrEqual(t, s.Shares(), 10_000)
	})
}

// What the documentation says of an outage that all processes see: a burst of the local counters.
func TestAnOutageAdmitsOneBurstMoreThanTheLimitAtMost(t *testing.T) {
	const processes, burst, rate = 3, 240, 90.0
	for seconds := range 6 {
		synctest.Test(t, func(t *testing.T) {
			inner := newServer(t, fine)
			q := quota(t, "api", limiter.PerSecond(rate).WithBurst(burst), limiter.FailLocal)
			var fleet []*failover.Store
			for range processes {
				fleet = append(fleet, wrap(inner, failover.Options{Replicas: processes, OnDegraded: ignore}))
			}
			level, peak, last := 0.0, 0.0, time.Now()
			run := func(d time.Duration) {
				for range d / time.Millisecond {
					for _, s := range fleet {
						if decide(t, s, charge(q, "key"))[0].Allowed {
							level++
						}
					}
					level = max(0, level-rate*time.Since(last).Seconds())
					last, peak = time.Now(), max(peak, level)
					time.Sleep(time.Millisecond)
				}
			}
			run(3 * time.Second)
			assert.LessOrEqual(t, peak, burst+1.0, "the limit holds before")
			inner.is(dead)
			run(time.Duration(seconds) * time.Second)
			inner.is(fine)
			run(3 * time.Second)
			heard := rate * fleet[0].Options().ProbeEvery.Seconds() // until each process has found its return
			assert.LessOrEqual(t, peak, 2*burst+heard)
			if seconds > 3 {
				assert.Greater(t, peak, 1.9*burst, "the bound is come near to")
			}
		})
	}
}

// What the documentation says of one process that alone cannot reach the server.
func TestAPartialOutageAdmitsTheShareOfAProcessInAddition(t *testing.T) {
	const processes, burst, rate = 3, 100, 100.0
	for _, seconds := range []int{1, 10, 60, 300} {
		synctest.Test(t, func(t *testing.T) {
			inner := newServer(t, fine)
			cut := newServer(t, fine)
			cut.Memory = inner.Memory
			q := quota(t, "api", limiter.PerSecond(rate).WithBurst(burst), limiter.FailLocal)
			var fleet []*failover.Store
			for i := range processes {
				reached := inner
				if i == 0 {
					reached = cut
				}
				fleet = append(fleet, wrap(reached, failover.Options{Replicas: processes, OnDegraded: ignore}))
			}
			admitted := 0
			run := func(d time.Duration) {
				for range d / (5 * time.Millisecond) {
					for _, s := range fleet {
						if decide(t, s, charge(q, "key"))[0].Allowed {
							admitted++
						}
					}
					time.Sleep(5 * time.Millisecond)
				}
			}
			cut.is(dead)
			run(time.Duration(seconds) * time.Second)
			outage := float64(seconds) * rate
			assert.LessOrEqual(t, float64(admitted), burst+outage+(burst+outage)/processes+1)
			assert.Greater(t, float64(admitted), 0.95*(burst+outage+(burst+outage)/processes), "the bound is come near to")
			cut.is(fine)
			run(5 * time.Second)
			outage += rate // until a probe finds that the server is back
			assert.LessOrEqual(t, float64(admitted), burst+outage+4*rate+(burst+outage)/processes+1, "the return adds nothing")
		})
	}
}
