package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/redisstore"
)

// A node that never answers holds up the first call for a second, and no call of each of its slots: they are many.
func TestASilentNodeOfAClusterHoldsUpOneCall(t *testing.T) {
	nodes := redistest.StartCluster(t)
	for _, tt := range []struct {
		name   string
		silent int // of nodes
		drops  bool
	}{
		{"it accepts, and says nothing", 1, false},
		{"nobody answers a dial", 1, true},
		{"no node answers a dial", 3, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, node := range nodes[:tt.silent] {
				if !tt.drops {
					node.Pause()
					defer node.Resume()
				}
			}
			silent, back := redistest.Addrs(nodes[:tt.silent]), make(chan struct{})
			client := redistest.CloseAfter(t, redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: redistest.Addrs(nodes), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					for _, other := range silent {
						if tt.drops && addr == other {
							select { // go-redis dials five times, for five seconds
							case <-ctx.Done():
								return nil, ctx.Err()
							case <-back:
							}
						}
					}
					return new(net.Dialer).DialContext(ctx, network, addr)
				},
			}))
			store := redisstore.New(client, redisstore.Options{Failover: failover.Options{
				Deadline: 20 * time.Millisecond, Failures: 1000, OnDegraded: func(failover.Event) {},
			}})
			l := closedRule(t, store)
			failed, slow := 0, 0
			for i := range 60 {
				began := time.Now()
				if _, err := l.Allow(t.Context(), fmt.Sprint("key ", i)); err != nil {
					require.ErrorIs(t, err, failover.ErrUnavailable)
					failed++
				}
				if time.Since(began) > 900*time.Millisecond {
					slow++
				}
			}
			assert.Positive(t, failed)
			assert.LessOrEqual(t, slow, 4, "one, or some more on a busy machine")
			close(back)
			for _, node := range nodes[:tt.silent] {
				node.Resume()
			}
			for i := range 60 {
				redistest.Await(t, "the node", func() bool {
					_, err := l.Allow(t.Context(), fmt.Sprint("key ", i))
					return err == nil
				})
			}
			redistest.Await(t, "what is in flight", func() bool {
				pools := client.PoolStats()
				return pools.TotalConns == pools.IdleConns
			})
		})
	}
}
