package wire

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/internal/redistest"
)

// A dial that takes longer than its test is no reason for a goroutine that dials for ever.
func TestAClientOfSentinelsIsClosedAfterItHasDialled(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	before := leak.Now()
	dialled := make(chan struct{}, 100)
	t.Run("a test that ends while its client dials", func(t *testing.T) {
		client := redistest.CloseAfter(t, redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: sentinel.Name, SentinelAddrs: redistest.Addrs(sentinel.Sentinels),
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialled <- struct{}{}
				time.Sleep(300 * time.Millisecond)
				return new(net.Dialer).DialContext(ctx, network, addr)
			},
		}))
		for range 5 {
			go client.Ping(context.Background())
		}
		<-dialled
	})
	before.Verify(t)
}
