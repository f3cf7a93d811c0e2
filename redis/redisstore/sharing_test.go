package redisstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

// A canary of a tenth has other limits: a client below both is refused by neither.
func TestAClientBelowTheLimitsOfTwoReleasesIsNotRefused(t *testing.T) {
	_, client := startRedis(t)
	before := limiter.PerMinute(100)
	for _, after := range []limiter.Limit{
		limiter.PerMinute(120), limiter.PerMinute(90), limiter.PerHour(5000), limiter.PerSecond(3), limiter.PerMinute(100).With(limiter.SlidingLog),
		limiter.PerMinute(100).With(limiter.FixedWindow), limiter.PerMinute(100).With(limiter.TokenBucket), limiter.PerMinute(90).With(limiter.LeakyBucket),
	} {
		t.Run(after.String(), func(t *testing.T) {
			clock := newServerClock(t)
			s := onClock(t, clock, client, Options{})
			old, canary := quotaOf(t, "rule", before), quotaOf(t, "rule", after)
			for i := range 400 { // 60 a minute
				q := old
				if i > 100 && i%10 == 0 {
					q = canary
				}
				require.True(t, decideOne(t, s, q, after.String(), 1).Allowed, "event %d, under %v", i, q.Limit())
				clock.sleep(time.Second)
			}
		})
	}
}

func TestUsagesShowTheLimitThatWasUsedLast(t *testing.T) {
	_, client := startRedis(t)
	s := forgetful(client)
	log, window := quotaOf(t, "rule", limiter.PerHour(40).With(limiter.SlidingLog)), quotaOf(t, "rule", limiter.PerHour(50).With(limiter.FixedWindow))
	for _, last := range []*limiter.Quota{log, window, log} {
		decideOne(t, s, last, "key", 3)
		usages, err := Usages(t.Context(), client, "", []string{nameOf(s, log, "key")})
		require.NoError(t, err)
		require.Len(t, usages, 1)
		require.Equal(t, last.Capacity(), usages[0].Limit)
		require.Positive(t, usages[0].Used)
	}
}
