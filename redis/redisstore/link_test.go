package redisstore

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
)

// farClients are of servers that are a link away.
var farClients = map[string]func(testing.TB, *redistest.Link) redis.UniversalClient{
	"single": func(t testing.TB, link *redistest.Link) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr, Dialer: link.Dial})
	},
	"single-context": func(t testing.TB, link *redistest.Link) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr, Dialer: link.Dial, ContextTimeoutEnabled: true})
	},
	"Sentinel": func(t testing.TB, link *redistest.Link) redis.UniversalClient {
		sentinel := redistest.Sentinels(t)
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: sentinel.Name, SentinelAddrs: redistest.Addrs(sentinel.Sentinels), Dialer: link.Dial,
		})
	},
	"Cluster": func(t testing.TB, link *redistest.Link) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(redistest.Cluster(t)), Dialer: link.Dial})
	},
}

// A link so long that a new connection takes a multiple of the deadline, and a decision that
// waits for another batch more than it. Both are a multiple of what is common, as such times
// suffer less from a busy machine.
const (
	farTrip     = 400 * time.Millisecond
	farDeadline = 700 * time.Millisecond
)

func TestALongWayToRedisIsNoOutage(t *testing.T) {
	for name, connect := range farClients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := &redistest.Link{RoundTrip: farTrip}
			client := closeAfter(t, connect(t, link))
			s := newStore(client, Options{}).Within(farDeadline).(*store)
			q := bounded(t, "rule", 1_000_000, limiter.TokenBucket)
			var failed, answered atomic.Int64
			var wg sync.WaitGroup
			for range 32 {
				wg.Go(func() {
					for range 8 {
						if err := s.Decide(t.Context(), []limiter.Charge{charge(q, "key", 1)}); err != nil {
							failed.Add(1)
						} else {
							answered.Add(1)
						}
					}
				})
			}
			wg.Wait()
			// A Cluster and the sentinels are asked for the servers first, which may take
			// longer than the first of a caller's decisions waits.
			assert.LessOrEqual(t, failed.Load(), int64(2*32), "connections are made although they take longer than the deadline")
			assert.GreaterOrEqual(t, answered.Load(), int64(6*32))
			assert.LessOrEqual(t, link.Dials(), 20, "connections are kept")
		})
	}
}
