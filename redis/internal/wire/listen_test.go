package wire

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

// go-redis panics if no shard of a Ring answers, and closes the client of a shard that a Ring has no
// more.
func TestListenFollowsARing(t *testing.T) {
	before, after := redistest.Start(t), redistest.Start(t)
	before.Kill()
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"one": before.Addr}, HeartbeatFrequency: 10 * time.Millisecond,
	})
	redistest.CloseAfter(t, ring)
	redistest.Await(t, "the shard to count as down", func() bool { return ring.Len() == 0 })

	ctx, cancel := context.WithCancel(t.Context())
	var heard atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Listen(ctx, ring, "channel", func() { heard.Add(1) }, func(string) { heard.Add(1) })
	}()
	hears := func(what string, begin func()) {
		heard.Store(0)
		begin()
		redistest.Await(t, what, func() bool { return heard.Load() > 0 })
	}
	hears("a shard that is there again", before.Restart)
	hears("a message", func() { require.NoError(t, ring.Publish(t.Context(), "channel", "").Err()) })
	hears("another shard", func() { ring.SetAddrs(map[string]string{"two": after.Addr}) })
	hears("a message there", func() { require.NoError(t, ring.Publish(t.Context(), "channel", "").Err()) })
	cancel()
	<-ended
}
