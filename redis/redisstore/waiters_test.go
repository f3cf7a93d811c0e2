package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

// scripts is how many scripts a server has run.
func scripts(t *testing.T, server *redistest.Server) (n int) {
	var calls int
	for _, command := range []string{"evalsha", "eval"} {
		for line := range strings.Lines(server.MustDo("INFO", "commandstats")) {
			if _, err := fmt.Sscanf(line, "cmdstat_"+command+":calls=%d,", &calls); err == nil {
				n += calls
			}
		}
	}
	return n
}

func exports(t *testing.T, client redis.UniversalClient) (*redisstore.Store, *limiter.Semaphore) {
	store := redisstore.New(client, redisstore.Options{Failover: failover.Options{Deadline: redistest.Patience}})
	s, err := limiter.NewSemaphore(limiter.SemaphoreConfig{Name: "exports", Store: store, Limit: limiter.AtOnce(1).Queue(10, time.Minute)})
	require.NoError(t, err)
	return store, s
}

// Each of 500 keys has a waiter, and another process holds its slot.
func TestWaitersOfManyKeysAskInOneScript(t *testing.T) {
	server := redistest.Start(t)
	const keys = 500
	connect := func() redis.UniversalClient {
		return redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	}
	holds, holder := exports(t, connect())
	waits, waiter := exports(t, connect())
	var releases []func()
	for i := range keys {
		release, d, err := holder.Acquire(t.Context(), fmt.Sprint(i))
		require.NoError(t, err)
		require.True(t, d.Allowed)
		releases = append(releases, release)
	}
	var got sync.WaitGroup
	var inside, degraded atomic.Int64
	for i := range keys {
		got.Go(func() {
			release, d, err := waiter.Acquire(context.Background(), fmt.Sprint(i))
			assert.NoError(t, err)
			if d.Degraded {
				degraded.Add(1)
			}
			inside.Add(1)
			release()
		})
	}
	redistest.Await(t, "all to wait", func() bool { return waits.Stats().Batches > 0 && waits.Stats().Remembered > 2*keys })
	before, began := scripts(t, server), time.Now()
	time.Sleep(300 * time.Millisecond)
	asked, passed := scripts(t, server)-before, time.Since(began)
	t.Logf("%d scripts in %v", asked, passed)
	assert.LessOrEqual(t, asked, 3*int(passed/(20*time.Millisecond))+20, "of one process, with 256 keys each, beside renewals")
	assert.Zero(t, inside.Load())
	for _, release := range releases {
		release()
	}
	got.Wait()
	assert.EqualValues(t, keys, inside.Load())
	assert.Zero(t, degraded.Load())
	require.NoError(t, holds.Close())
	require.NoError(t, waits.Close())
}
