package leasestore

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
)

// A slot is decided on with what Redis is asked about.
func TestSlotsGoToRedisInTheSameRoundTrip(t *testing.T) {
	server := redistest.Start(t)
	s, err := New(redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr})), Options{})
	require.NoError(t, err)
	other, err := New(redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr})), Options{})
	require.NoError(t, err)
	q, err := limiter.NewConcurrency("slots", "", 2)
	require.NoError(t, err)
	rate := quotaOf(t, "rate", limiter.Limit{Events: 3, Per: 24 * 3600 * 1e9, Algorithm: limiter.SlidingLog})
	charges := []limiter.Charge{{Quota: q, Key: "key", Cost: 1}, {Quota: rate, Key: "key", Cost: 1}}
	for _, s := range []*Store{s, other} {
		require.NoError(t, s.Decide(t.Context(), charges))
		assert.True(t, charges[0].Decision.Allowed && charges[1].Decision.Allowed)
	}
	require.NoError(t, s.Decide(t.Context(), charges))
	assert.False(t, charges[0].Decision.Allowed, "the slots of both")
	assert.EqualValues(t, 1, charges[1].Decision.Remaining, "a refused slot spends no quota")
	assert.Zero(t, s.Stats().Asked, "slots are not leased")
	for _, s := range []*Store{s, other} {
		require.NoError(t, s.Settle(t.Context(), []limiter.Settlement{{Charge: charges[0]}}))
		require.NoError(t, s.Close())
	}
	assert.EqualValues(t, 2, decideOne(t, other, q, "key", 0).Remaining)
}
