package redisstore

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/limitertest"
)

func conforms(t *testing.T, client redis.UniversalClient, o Options, flush func()) {
	clock := newServerClock(t)
	var s *store
	limitertest.Run(t, limitertest.Harness{
		New: func(t testing.TB) limiter.Store {
			flush()
			s = onClock(t, clock, client, o).leases(2 * time.Minute) // so long that slots travel with other charges
			return s
		},
		Sleep: func(d time.Duration) {
			for s.unsettled.count.Load() > 0 {
				time.Sleep(100 * time.Microsecond)
			}
			clock.sleep(d)
		},
	})
}

func TestAStoreOnOneServerKeepsItsPromises(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	flush := func() { server.MustDo("FLUSHALL") }
	for name, o := range map[string]Options{
		"by default":            {Secret: []byte("a secret of 16 bytes"), Prefix: "other"},
		"each refusal by Redis": {ForgetRefusals: true},
	} {
		t.Run(name, func(t *testing.T) { conforms(t, client, o, flush) })
	}
}

// A Sentinel's client is as one for one server here.
func TestAStoreOnAClusterKeepsItsPromises(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)})
	t.Cleanup(func() { _ = client.Close() })
	conforms(t, client, Options{}, func() {
		for _, n := range nodes {
			n.MustDo("FLUSHALL")
		}
	})
}
