package source

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Redis is a key of Redis's, a string. Who writes it with Publish is heard of at once, and
// anybody else at the next poll. Where the client reads from replicas, a nudge may come
// before the text does, which the next poll makes up for.
//
// An ACL user needs +getrange +exists +subscribe +ping on the key and on the channel, which
// is the key and ":changed"; one who publishes, +set +publish.
type Redis struct {
	client redis.UniversalClient
	key    string
	nudges
	calls calls

	// heartbeat is how long a subscription may be silent before it is asked whether it
	// still stands, and then how long the answer may take.
	heartbeat time.Duration

	cancel context.CancelFunc
	ended  chan struct{}
}

// pause is between two attempts to subscribe.
const pause = 500 * time.Millisecond

// NewRedis begins to listen for changes of a key, and nudges at least every poll, as what
// was written without a message is found only by reading; not positive stands for 10 seconds.
// It neither waits for Redis nor closes the client.
func NewRedis(client redis.UniversalClient, key string, poll time.Duration) *Redis {
	return newRedis(client, key, orDefault(poll), 3*time.Second)
}

func newRedis(client redis.UniversalClient, key string, poll, heartbeat time.Duration) *Redis {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Redis{
		client:    client,
		key:       key,
		nudges:    newNudges(),
		calls:     newCalls(),
		heartbeat: heartbeat,
		cancel:    cancel,
		ended:     make(chan struct{}),
	}
	var both sync.WaitGroup
	both.Go(func() { r.tick(ctx, poll) })
	both.Go(func() { r.listen(ctx) })
	go func() {
		both.Wait()
		close(r.ended)
	}()
	return r
}

// Publish writes text for every Redis of that key to read, and tells them. If it fails, the
// text may have been written all the same.
func Publish(ctx context.Context, client redis.UniversalClient, key string, text []byte) error {
	if len(text) > maxText {
		return errTooLong(fmt.Sprintf("what is to be written to Redis key %q", key))
	}
	written := string(text) // who leaves may go on with the slice
	// Two commands: in a Cluster the channel and the key may be on different nodes.
	_, err := newCalls().within(ctx, func(ctx context.Context) ([]byte, error) {
		if err := client.Set(ctx, key, written, 0).Err(); err != nil {
			return nil, err
		}
		if err := client.Publish(ctx, channelOf(key), "").Err(); err != nil {
			return nil, fmt.Errorf("it is written, but nobody is told and it is found at the next poll: %w", err)
		}
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("source: publish Redis key %q: %w", key, err)
	}
	return nil
}

func channelOf(key string) string { return key + ":changed" }

// Read reads the key. Without a deadline in the context it ends within a second.
func (r *Redis) Read(ctx context.Context) ([]byte, error) {
	text, err := r.calls.within(ctx, r.read)
	if err != nil {
		return nil, fmt.Errorf("source: read Redis key %q: %w", r.key, err)
	}
	if len(text) > maxText {
		return nil, errTooLong(fmt.Sprintf("Redis key %q", r.key))
	}
	return text, nil
}

// read reads a byte more than a source may have, if there is one.
func (r *Redis) read(ctx context.Context) ([]byte, error) {
	text, err := r.client.GetRange(ctx, r.key, 0, maxText).Bytes()
	if err != nil || len(text) > 0 {
		return text, err
	}
	switch there, err := r.client.Exists(ctx, r.key).Result(); {
	case err != nil:
		return nil, err
	case there == 0:
		return nil, ErrMissing
	}
	// An empty one, or it was written between the two.
	return r.client.GetRange(ctx, r.key, 0, maxText).Bytes()
}

// Changed implements Source.
func (r *Redis) Changed() <-chan struct{} { return r.nudges }

// Close implements Source. What hangs in the client ends with the client's own timeouts.
func (r *Redis) Close() error {
	r.cancel()
	await(r.ended)
	return nil
}

func (r *Redis) tick(ctx context.Context, poll time.Duration) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.nudge()
		case <-ctx.Done():
			return
		}
	}
}

// listen follows one subscription after the other.
func (r *Redis) listen(ctx context.Context) {
	for {
		r.follow(ctx)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// follow nudges for each message, and for the subscription itself, as messages may have
// been missed before. It returns when the connection fails.
func (r *Redis) follow(ctx context.Context) {
	subscription, err := subscribe(ctx, r.client, channelOf(r.key))
	if err != nil {
		return
	}
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // it ends ReceiveTimeout

	for asked := false; ; {
		received, err := subscription.ReceiveTimeout(ctx, r.heartbeat)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
			if _, pong := received.(*redis.Pong); !pong {
				r.nudge()
			}
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			if subscription.Ping(ctx) != nil {
				return
			}
		default:
			return
		}
	}
}

// subscribe asks for a subscription; what is received first tells whether it was had. A
// Ring without any shard that answers panics here, where other clients wait.
func subscribe(ctx context.Context, client redis.UniversalClient, channel string) (s *redis.PubSub, err error) {
	if _, ring := client.(*redis.Ring); ring {
		defer func() {
			if reason := recover(); reason != nil {
				err = fmt.Errorf("%v", reason)
			}
		}()
	}
	return client.Subscribe(ctx, channel), nil
}
