package wire

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Listen calls heard for each message on a channel, until ctx ends. It calls subscribed whenever
// go-redis has subscribed, as it may have missed messages before.
func Listen(ctx context.Context, client redis.UniversalClient, channel string, subscribed func(), heard func(message string)) {
	for ctx.Err() == nil {
		s := client.Subscribe(ctx, channel)
		stop := context.AfterFunc(ctx, func() { _ = s.Close() })
		for of := range s.ChannelWithSubscriptions() {
			if message, ok := of.(*redis.Message); ok {
				heard(message.Payload)
			} else {
				subscribed()
			}
		}
		stop() // the client was closed
		_ = s.Close()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
