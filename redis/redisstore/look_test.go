package redisstore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/redisstore"
)

func TestALookWritesNothingAndKeepsNoSmallerCostOut(t *testing.T) {
	client := connect(t, redistest.Start(t))
	for _, a := range everyAlgorithm {
		sample := limiter.Limit{Events: 10, Per: phase.Long(), Algorithm: a}
		l := limiter.Must(limiter.New(limiter.Config{Name: sample.String(), Limit: sample, Store: redisstore.New(client, redisstore.Options{})}))
		first, err := l.AllowN(t.Context(), "key", 8)
		require.NoError(t, err)
		left := first.Remaining
		counters := client.DBSize(context.Background()).Val()
		for _, n := range []int64{left + 1, left, 0, first.Limit + 1, left + 1} {
			d, err := l.Look(t.Context(), "key", n)
			require.NoError(t, err)
			assert.Equal(t, n <= left, d.Allowed, "%v: %d", sample, n)
			assert.Equal(t, n > left, d.RetryAfter > 0, "%v: %d", sample, n)
			assert.Equal(t, n > first.Limit, d.RetryAfter == limiter.Never, "%v: %d", sample, n)
			assert.Equal(t, left, d.Remaining, "%v: %d", sample, n)
		}
		assert.Equal(t, counters, client.DBSize(context.Background()).Val(), sample)
		d, err := l.AllowN(t.Context(), "key", left)
		require.NoError(t, err)
		assert.True(t, d.Allowed, sample)
	}
}
