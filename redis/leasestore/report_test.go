package leasestore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/leasestore"
	"github.com/weirgo/weir/redis/redisstore"
)

// A store that only decides Synchronized rules asks the exact one nothing, so it must say by
// itself that Redis is gone.
func TestAnOutageIsSeenInEveryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []leasestore.Mode{leasestore.Exact, leasestore.Leased, leasestore.Synchronized} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		store, err := leasestore.New(client, leasestore.Options{
			Redis: redisstore.Options{Failover: failover.Options{Failures: 1, OnDegraded: func(failover.Event) {}}},
			Rules: map[string]leasestore.Mode{"ip": mode},
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		q, err := limiter.NewQuota("ip", "", limiter.PerMinute(600).With(limiter.TokenBucket))
		require.NoError(t, err)

		assert.False(t, store.Health().Degraded, mode)
		require.Eventually(t, func() bool {
			_ = store.Decide(t.Context(), []limiter.Charge{{Quota: q, Key: "a", Cost: 1}}, make([]limiter.Decision, 1))
			return store.Health().Degraded
		}, 10*time.Second, 10*time.Millisecond, mode)
		assert.NotZero(t, store.Health().Failures, mode)
		assert.IsType(t, &redisstore.Store{}, store.Unwrap(), mode)
	}
}
