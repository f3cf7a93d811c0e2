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

// What is counted in an outage is charged after it, and must not count longer than it would have.
func TestAClientBelowItsLimitIsNeverRefused(t *testing.T) {
	for _, l := range []limiter.Limit{
		limiter.PerMinute(100).With(limiter.SlidingLog), limiter.PerMinute(100).With(limiter.SlidingCounter), limiter.PerMinute(100).With(limiter.FixedWindow),
		limiter.PerMinute(100).With(limiter.TokenBucket), limiter.PerMinute(100).With(limiter.LeakyBucket), limiter.PerHour(6000).With(limiter.SlidingLog),
		limiter.PerSecond(40).With(limiter.SlidingLog), limiter.PerSecond(40).With(limiter.TokenBucket), limiter.Daily(144_000),
	} {
		for _, percent := range []int{10, 60, 90} {
			for _, seconds := range []int{1, 5, 20, 50, 300} {
				for _, processes := range []int{1, 4} {
					t.Run(fmt.Sprintf("%d%% of %v, %d s, %d", percent, l, seconds, processes), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							inner := newServer(t, fine)
							var fleet []*failover.Store
							for range processes {
								fleet = append(fleet, wrap(inner, failover.Options{Replicas: processes, OnDegraded: ignore}))
							}
							q, err := limiter.NewQuota("api", "", l)
							require.NoError(t, err)
							pause := l.Per * 100 / time.Duration(l.Events*int64(percent))
							n := 0
							run := func(d time.Duration) {
								for start := time.Now(); time.Since(start) < d; time.Sleep(pause) {
									n++
									d := decide(t, fleet[n%processes], charge(q, "key"))[0]
									require.True(t, d.Allowed, "event %d, degraded %v", n, d.Degraded)
								}
							}
							run(70 * time.Second)
							inner.is(dead)
							run(time.Duration(seconds) * time.Second)
							inner.is(fine)
							run(130 * time.Second)
						})
					})
				}
			}
		}
	}
}
