package redisstore_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/redisstore"
)

// A refusal is remembered for a second, so a round that takes longer on a busy machine is repeated.
func TestAFailedCallForgetsNoRefusalOfAnotherKey(t *testing.T) {
	server := redistest.Start(t)
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	n := 0
	redistest.Await(t, "a round within a second", func() bool {
		n++
		store := redisstore.New(client, redisstore.Options{Failover: failover.Options{
			Deadline: 20 * time.Millisecond, Failures: 3, Logger: slog.New(slog.DiscardHandler),
		}})
		l := limiter.Must(limiter.New(limiter.Config{Name: fmt.Sprint("rule ", n), Store: store, Limit: limiter.PerDay(1).With(limiter.TokenBucket)}))
		allow := func(key string) limiter.Decision {
			d, err := l.Allow(t.Context(), key)
			require.NoError(t, err)
			return d
		}
		defer server.Resume()
		began := time.Now()
		if allow("hot"); allow("hot").Degraded {
			return false
		}
		server.Pause()
		var others, hot []limiter.Decision
		for i := range 3 {
			others = append(others, allow(fmt.Sprint("other ", i)))
			hot = append(hot, allow("hot"))
		}
		isDegraded := store.Stats().Degraded
		if time.Since(began) >= time.Second {
			return false
		}
		for i := range others {
			assert.True(t, others[i].Degraded)
			assert.Equal(t, i == 2, hot[i].Allowed, "the share admits one more when the breaker is open, after failed call %d", i)
			assert.Equal(t, i == 2, hot[i].Degraded)
		}
		assert.True(t, isDegraded, "what is remembered is no sign of life")
		return true
	})
}
