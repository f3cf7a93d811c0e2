package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

var everyAlgorithm = []limiter.Algorithm{
	limiter.SlidingCounter, limiter.TokenBucket, limiter.LeakyBucket, limiter.FixedWindow, limiter.SlidingLog,
}

func connect(t testing.TB, server *redistest.Server) redis.UniversalClient {
	return redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
}

// bounded is a quota that nothing comes back to while a test lasts.
func bounded(t testing.TB, rule string, events int64, a limiter.Algorithm) *limiter.Quota {
	t.Helper()
	q, err := limiter.NewQuota(rule, "", limiter.Limit{Events: events, Per: phase.Long(), Algorithm: a})
	require.NoError(t, err)
	return q
}

func charge(q *limiter.Quota, key string, cost int64) limiter.Charge {
	return limiter.Charge{Quota: q, Key: key, Cost: cost}
}

// decideOne is a decision on a single charge.
func decideOne(t testing.TB, s limiter.Store, q *limiter.Quota, key string, cost int64) limiter.Decision {
	t.Helper()
	charges := []limiter.Charge{charge(q, key, cost)}
	require.NoError(t, s.Decide(t.Context(), charges))
	return charges[0].Decision
}

// allowed reports whether all charges were admitted.
func allowed(charges []limiter.Charge) bool {
	for _, c := range charges {
		if !c.Decision.Allowed {
			return false
		}
	}
	return true
}

// nameOf is the name of a key's counter in Redis.
func nameOf(rule, key string) string {
	digester := keyfunc.NewDigester(nil)
	digest := digester.Digest(key)
	return "weir:3:{" + string(digest[:]) + "}:" + rule
}
