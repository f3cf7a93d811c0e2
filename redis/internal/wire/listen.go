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
		if s := subscribe(ctx, client, channel); s != nil {
			stop := context.AfterFunc(ctx, func() { _ = s.Close() })
			for of := range s.ChannelWithSubscriptions() {
				if message, ok := of.(*redis.Message); ok {
					heard(message.Payload)
				} else {
					subscribed()
				}
			}
			stop() // the client was closed, or a Ring has other shards now
			_ = s.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// subscribe returns nil for a Ring without a shard that answers: it panics where other clients wait.
func subscribe(ctx context.Context, client redis.UniversalClient, channel string) *redis.PubSub {
	if _, ring := client.(*redis.Ring); ring {
		defer func() { _ = recover() }()
	}
	return client.Subscribe(ctx, channel)
}
