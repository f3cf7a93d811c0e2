package redisstore_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/redisstore"
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
		sentinel := redistest.StartSentinel(t)
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: sentinel.Name, SentinelAddrs: redistest.Addrs(sentinel.Sentinels), Dialer: link.Dial,
		})
	},
	"Cluster": func(t testing.TB, link *redistest.Link) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(redistest.Cluster(t)), Dialer: link.Dial})
	},
}

// farTrip is a round trip so long that a new connection takes a multiple of the deadline, which is shorter than
// two, and a decision that waits for another batch takes more than it.
const farTrip = 400 * time.Millisecond

func TestALongWayToRedisIsNoOutage(t *testing.T) {
	for name, connect := range farClients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A Cluster and the sentinels are asked for the servers first, which may take
			// longer than the first of a caller's decisions waits.
			const most = 4 * farCallers
			var failed int64
			for _, trip := range []time.Duration{farTrip, 3 * farTrip, 5 * farTrip} { // go-redis itself waits for 3s
				var dials int
				if failed, dials = decideFarAway(t, connect, trip); failed <= most {
					assert.LessOrEqual(t, dials, 20, "connections are kept")
					return
				}
				t.Logf("%d of %d failed: a busy machine may be late, less so the longer the way is", failed, farCallers*farTimes)
			}
			assert.LessOrEqual(t, failed, int64(most), "connections are made although they take longer than the deadline")
		})
	}
}

const farCallers, farTimes = 32, 8

// decideFarAway has callers decide on a server that is so far away, and returns how many decisions failed.
func decideFarAway(t *testing.T, connect func(testing.TB, *redistest.Link) redis.UniversalClient, trip time.Duration) (failed int64, dials int) {
	link := &redistest.Link{RoundTrip: trip}
	s := redisstore.New(redistest.CloseAfter(t, connect(t, link)), redisstore.Options{}).Within(trip * 7 / 4)
	q := bounded(t, "rule", 1_000_000, limiter.TokenBucket)
	var failures atomic.Int64
	var wg sync.WaitGroup
	for range farCallers {
		wg.Go(func() {
			for range farTimes {
				if s.Decide(t.Context(), []limiter.Charge{charge(q, "key", 1)}) != nil {
					failures.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return failures.Load(), link.Dials()
}
