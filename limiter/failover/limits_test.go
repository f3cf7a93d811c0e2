package failover_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// Two limits share a counter before, in and after an outage. A client below both is refused by neither.
func TestAClientBelowTwoLimitsIsNotRefusedInAnOutage(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		for _, other := range []limiter.Limit{
			limiter.PerMinute(100).With(limiter.SlidingLog), limiter.PerMinute(120), limiter.PerMinute(90), limiter.PerHour(5400), limiter.PerSecond(3), limiter.Daily(200_000),
			limiter.PerMinute(100).With(limiter.SlidingCounter), limiter.PerMinute(100).With(limiter.FixedWindow),
			limiter.PerMinute(100).With(limiter.TokenBucket), limiter.PerMinute(90).With(limiter.LeakyBucket),
		} {
			t.Run(fmt.Sprint(other, " by ", replicas), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					inner := newServer(t, fine)
					s := wrap(inner, failover.Options{Replicas: replicas, OnDegraded: ignore})
					quotas := []*limiter.Quota{quota(t, "api", limiter.PerMinute(100), limiter.FailLocal), quota(t, "api", other, limiter.FailLocal)}
					pause, degraded := 1500*time.Millisecond*time.Duration(replicas), 0 // what an outage counted is owed at its end, at once
					for i := range 1500 {
						switch i {
						case 500:
							inner.is(dead)
						case 1000:
							inner.is(fine)
						}
						q := quotas[i%10/9]
						d := decide(t, s, charge(q, "key"))[0]
						require.True(t, d.Allowed, "event %d, under %v, degraded %v", i, q.Limit(), d.Degraded)
						if d.Degraded {
							degraded++
						}
						time.Sleep(pause)
					}
					require.InDelta(t, 500, degraded, 5)
					require.False(t, s.Health().Degraded)
				})
			})
		}
	}
}
