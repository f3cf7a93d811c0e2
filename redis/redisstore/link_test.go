package redisstore

import (
	"context"
	"fmt"
	"strconv"
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
)

// farDeployments are deployments whose clients are a link away.
var farDeployments = []struct {
	name  string
	start func(t testing.TB) func(*redistest.Link) redis.UniversalClient
}{
	{"single", func(t testing.TB) func(*redistest.Link) redis.UniversalClient {
		server := redistest.Start(t)
		return func(link *redistest.Link) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: link.Dial})
		}
	}},
	{"single-context", func(t testing.TB) func(*redistest.Link) redis.UniversalClient {
		server := redistest.Start(t)
		return func(link *redistest.Link) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: link.Dial, ContextTimeoutEnabled: true})
		}
	}},
	{"TLS", func(t testing.TB) func(*redistest.Link) redis.UniversalClient {
		_, addr, config := redistest.StartTLS(t)
		return func(link *redistest.Link) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, Dialer: link.DialTLS(config), TLSConfig: config})
		}
	}},
	{"Sentinel", func(t testing.TB) func(*redistest.Link) redis.UniversalClient {
		sentinel := redistest.Sentinels(t)
		return func(link *redistest.Link) redis.UniversalClient {
			return redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: sentinel.Name, SentinelAddrs: redistest.Addrs(sentinel.Sentinels), Dialer: link.Dial,
			})
		}
	}},
	{"Cluster", func(t testing.TB) func(*redistest.Link) redis.UniversalClient {
		nodes := redistest.Cluster(t)
		return func(link *redistest.Link) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), Dialer: link.Dial})
		}
	}},
}

// A pace is how callers ask: so many at once, of so many keys, each as soon as it is
// answered, from a cold start on.
type pace struct {
	callers, keys int
	calls         int // in all
}

// run is the share of calls that were late.
func (p pace) run(call func(key string) (late bool)) float64 {
	var next, late atomic.Int64
	var wg sync.WaitGroup
	for range p.callers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(p.calls); i = next.Add(1) {
				if call("client " + strconv.Itoa(int(uint64(i)*0x9E3779B97F4A7C15>>32%uint64(p.keys)))) {
					late.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return float64(late.Load()) / float64(p.calls)
}

// runWeir is the share of decisions that were degraded. runAlone is the share of commands
// that go-redis by itself has no answer to in the same time.
func (p pace) runWeir(t testing.TB, client redis.UniversalClient) (float64, failover.Stats) {
	s := New(client, Options{Failover: failover.Options{OnDegraded: func(failover.Event) {}}})
	q := quotaOf(t, "rule", limiter.Limit{Events: 1_000_000, Per: time.Second, Burst: 1_000_000_000, Algorithm: limiter.TokenBucket})
	share := p.run(func(key string) bool {
		var d [1]limiter.Decision
		if err := s.Decide(context.Background(), []limiter.Charge{charge(q, key, 1)}, d[:]); err != nil {
			t.Error(err)
		}
		return d[0].Degraded
	})
	return share, s.Stats().Stats
}

func (p pace) runAlone(client redis.UniversalClient) float64 {
	const deadline = 50 * time.Millisecond
	return p.run(func(key string) bool {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		start := time.Now()
		return client.Incr(ctx, key).Err() != nil || time.Since(start) > deadline
	})
}

// A link so long that a new connection takes a multiple of the deadline, and a decision that
// waits for another batch more than it. Both are a multiple of what is common, as such times
// suffer less from a busy machine.
const (
	farTrip     = 250 * time.Millisecond
	farDeadline = 400 * time.Millisecond
)

func TestALongWayToRedisIsNoOutage(t *testing.T) {
	for _, at := range farDeployments {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			link := &redistest.Link{RoundTrip: farTrip}
			client := closeAfter(t, at.start(t)(link))
			s := newStore(client, Options{}).Within(farDeadline).(*store)
			q := bounded(t, "rule", 1_000_000, limiter.TokenBucket)
			var failed, answered atomic.Int64
			var wg sync.WaitGroup
			for range 32 {
				wg.Go(func() {
					for range 8 {
						if err := s.Decide(t.Context(), []limiter.Charge{charge(q, "key", 1)}, make([]limiter.Decision, 1)); err != nil {
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

// BenchmarkOverALink is a new store's share of degraded decisions over links of different
// lengths, beside the share of commands that go-redis alone is late with. A cell is as long
// as -benchtime says in calls for each caller: 300x is meaningful.
func BenchmarkOverALink(b *testing.B) {
	for _, at := range farDeployments {
		b.Run(at.name, func(b *testing.B) {
			start := at.start(b)
			for _, roundTrip := range []time.Duration{0, 5, 20, 30, 40} {
				for _, callers := range []int{1, 8, 64} {
					for _, keys := range []int{1, 1000} {
						b.Run(fmt.Sprintf("rtt=%dms/callers=%d/keys=%d", roundTrip, callers, keys), func(b *testing.B) {
							p := pace{callers, keys, callers * b.N}
							over := func() (*redistest.Link, redis.UniversalClient) {
								link := &redistest.Link{RoundTrip: roundTrip * time.Millisecond}
								client := start(link)
								b.Cleanup(func() { require.NoError(b, client.Close()) })
								return link, client
							}
							link, client := over()
							began := time.Now()
							weir, stats := p.runWeir(b, client)
							b.ReportMetric(float64(time.Since(began).Microseconds())/float64(b.N)/1000, "ms/decision")
							b.ReportMetric(0, "ns/op")
							b.ReportMetric(100*weir, "degraded-%")
							b.ReportMetric(float64(stats.Failures), "failures")
							b.ReportMetric(float64(link.Dials()), "dials")
							link, client = over()
							b.ReportMetric(100*p.runAlone(client), "alone-late-%")
							b.ReportMetric(float64(link.Dials()), "alone-dials")
						})
					}
				}
			}
		})
	}
}
