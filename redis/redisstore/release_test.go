package redisstore_test

import (
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/redisstore"
)

// exportsTo is exports with a log.
func exportsTo(t *testing.T, client redis.UniversalClient, log io.Writer) (*redisstore.Store, *limiter.Semaphore) {
	store := redisstore.New(client, redisstore.Options{Failover: failover.Options{
		Deadline: redistest.Patience, Logger: slog.New(slog.NewTextHandler(log, nil)),
	}})
	s, err := limiter.NewSemaphore(limiter.SemaphoreConfig{Name: "exports", Store: store, Limit: limiter.AtOnce(1)})
	require.NoError(t, err)
	return store, s
}

func TestAReleaseThatRedisRefusesIsLoggedAndSentAgain(t *testing.T) {
	for _, tt := range []struct{ name, forbid, allow, said string }{
		{"its user may not", "ACL SETUSER default -zrem", "ACL SETUSER default +zrem", "NOPERM|permission|can't run this command"},
		{"it is a replica", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server, log := redistest.Start(t), &lines{}
			store, s := exportsTo(t, redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr})), log)
			release, _, err := s.Acquire(t.Context(), "key")
			require.NoError(t, err)
			key := server.MustDo("KEYS", "*places*")
			server.MustDo(strings.Fields(tt.forbid)...)
			release()
			redistest.Await(t, "the line", func() bool { return log.count("weir-not-returned") > 0 })
			server.MustDo(strings.Fields(tt.allow)...)
			redistest.Await(t, "the token to be removed, where one that expires stays", func() bool {
				return server.MustDo("ZRANGE", key, "(0", "+inf", "BYSCORE") == ""
			})
			log.mu.Lock()
			assert.Regexp(t, tt.said, log.text.String())
			log.mu.Unlock()
			assert.Equal(t, 1, log.count("weir-not-returned"))
			require.NoError(t, store.Close())
		})
	}
}

// Close waits for a second. On a busy machine a second try may come later than that.
func TestCloseRepeatsAReleaseWhoseAnswerIsLost(t *testing.T) {
	server := redistest.Start(t)
	redistest.Await(t, "Close to hear that the slot is released", func() bool {
		var loses atomic.Bool
		link := &redistest.Link{Lose: func() bool { return loses.Swap(false) }}
		client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: link.Dial}))
		store, s := exportsTo(t, client, io.Discard)
		release, _, err := s.Acquire(t.Context(), "key")
		require.NoError(t, err)
		loses.Store(true)
		release()
		redistest.Await(t, "the answer to be lost", func() bool { return !loses.Load() })
		return store.Close() == nil
	})
}

// A Redis that is gone holds up no program's end.
func TestCloseWithADeadRedisReturns(t *testing.T) {
	server := redistest.Start(t)
	store, s := exportsTo(t, redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr})), io.Discard)
	release, _, err := s.Acquire(t.Context(), "key")
	require.NoError(t, err)
	server.Pause()
	release()
	assert.ErrorContains(t, store.Close(), "Redis did not confirm in 1s that all slots are released")
	server.Kill()
	assert.ErrorContains(t, store.Close(), "Redis did not confirm in 1s that all slots are released")
}
