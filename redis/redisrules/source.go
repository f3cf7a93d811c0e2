package redisrules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A source is a key in Redis, a string, as a [rules.Source]. What is written with Publish is
// heard of at once, and any other change at the next poll. Where the client reads from
// replicas, a nudge may come before the text does, which the next poll makes up for.
type source struct {
	client  redis.UniversalClient
	key     string
	nudges  chan struct{} // holds one until it is received; others are dropped
	reading chan struct{} // holds one while a read is under way, which may outlast its caller

	// heartbeat is how long a subscription may be silent before it is asked whether it
	// still stands, and then how long the answer may take.
	heartbeat time.Duration

	cancel context.CancelFunc
	ended  chan struct{}
}

var _ rules.Source = (*source)(nil)

const (
	maxText     = 1 << 20
	defaultPoll = 10 * time.Second

	// pause is between two attempts to subscribe.
	pause = 500 * time.Millisecond
)

func errTooLong(what string) error {
	return fmt.Errorf("redisrules: %s is longer than 1 MiB (%d bytes)", what, maxText)
}

// newSource begins to listen for changes of a key, and nudges at least every poll, as what
// was written without a message is found only by reading; 0 stands for 10 seconds. It
// neither waits for Redis nor closes the client.
func newSource(client redis.UniversalClient, key string, poll time.Duration) *source {
	return newSourceWith(client, key, cmp.Or(poll, defaultPoll), 3*time.Second)
}

func newSourceWith(client redis.UniversalClient, key string, poll, heartbeat time.Duration) *source {
	ctx, cancel := context.WithCancel(context.Background())
	s := &source{
		client:    client,
		key:       key,
		nudges:    make(chan struct{}, 1),
		reading:   make(chan struct{}, 1),
		heartbeat: heartbeat,
		cancel:    cancel,
		ended:     make(chan struct{}),
	}
	var both sync.WaitGroup
	both.Go(func() { s.tick(ctx, poll) })
	both.Go(func() { s.listen(ctx) })
	go func() {
		both.Wait()
		close(s.ended)
	}()
	return s
}

// publish writes text for every source of that key to read, and tells them. If it fails, the
// text may have been written all the same.
func publish(ctx context.Context, client redis.UniversalClient, key string, text []byte) error {
	return publishBy(ctx, client, key, text, func(ctx context.Context, written string) error {
		return client.Set(ctx, key, written, 0).Err()
	})
}

// publishIf is publish if what is there is of that version.
func publishIf(ctx context.Context, client redis.UniversalClient, key, version string, text []byte) error {
	return publishBy(ctx, client, key, text, func(ctx context.Context, written string) error {
		err := client.Watch(ctx, func(tx *redis.Tx) error {
			there, err := read(ctx, tx, key)
			now := ""
			switch {
			case err == nil:
				now = rules.VersionOf(there)
			case !errors.Is(err, ErrNone):
				return err
			}
			if now != version {
				return fmt.Errorf("%w, but of %q", ErrChanged, now)
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, key, written, 0).Err() })
			return err
		}, key)
		if errors.Is(err, redis.TxFailedErr) {
			return fmt.Errorf("%w: they were changed just now", ErrChanged)
		}
		return err
	})
}

// publishBy has set write the text, and tells the sources.
func publishBy(ctx context.Context, client redis.UniversalClient, key string, text []byte, set func(ctx context.Context, written string) error) error {
	if len(text) > maxText {
		return errTooLong(fmt.Sprintf("what is to be written to Redis key %q", key))
	}
	written := string(text) // a caller that has left may change the slice
	// Two commands: in a Cluster the channel and the key may be on different nodes.
	_, err := wire.Call(ctx, func(ctx context.Context) ([]byte, error) {
		if err := set(ctx, written); err != nil {
			return nil, err
		}
		if err := client.Publish(ctx, channelOf(key), "").Err(); err != nil {
			return nil, fmt.Errorf("it is written, but no process is told and it is found at the next poll: %w", err)
		}
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("redisrules: publish Redis key %q: %w", key, err)
	}
	return nil
}

func channelOf(key string) string { return key + ":changed" }

// Read implements [rules.Source]. Without a deadline in the context it ends within a second.
func (s *source) Read(ctx context.Context) ([]byte, error) {
	text, err := wire.Call(ctx, func(ctx context.Context) ([]byte, error) {
		select {
		case s.reading <- struct{}{}:
			defer func() { <-s.reading }()
			return read(ctx, s.client, s.key)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("redisrules: read Redis key %q: %w", s.key, err)
	}
	if len(text) > maxText {
		return nil, errTooLong(fmt.Sprintf("Redis key %q", s.key))
	}
	return text, nil
}

// A reader is what read needs of a client or a transaction.
type reader interface {
	GetRange(ctx context.Context, key string, start, end int64) *redis.StringCmd
	Exists(ctx context.Context, keys ...string) *redis.IntCmd
}

// read reads a byte more than a source may have, if there is one.
func read(ctx context.Context, from reader, key string) ([]byte, error) {
	text, err := from.GetRange(ctx, key, 0, maxText).Bytes()
	if err != nil || len(text) > 0 {
		return text, err
	}
	switch there, err := from.Exists(ctx, key).Result(); {
	case err != nil:
		return nil, err
	case there == 0:
		return nil, ErrNone
	}
	// An empty one, or one that was written between the two.
	return from.GetRange(ctx, key, 0, maxText).Bytes()
}

// Changed implements [rules.Source].
func (s *source) Changed() <-chan struct{} { return s.nudges }

// Close implements [rules.Source]. It waits for its goroutines, though for no longer than
// a second if Redis hangs: what hangs in the client ends with the client's own timeouts.
func (s *source) Close() error {
	s.cancel()
	late := time.NewTimer(wire.Patience)
	defer late.Stop()
	select {
	case <-s.ended:
	case <-late.C:
	}
	return nil
}

func (s *source) nudge() {
	select {
	case s.nudges <- struct{}{}:
	default: // there is one already
	}
}

func (s *source) tick(ctx context.Context, poll time.Duration) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.nudge()
		case <-ctx.Done():
			return
		}
	}
}

// listen follows one subscription after the other.
func (s *source) listen(ctx context.Context) {
	for {
		s.follow(ctx)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// follow nudges for each message, and for the subscription itself, as messages may have
// been missed before. It returns when the connection fails.
func (s *source) follow(ctx context.Context) {
	subscription, err := wire.Subscribe(ctx, s.client, channelOf(s.key))
	if err != nil {
		return
	}
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // it ends ReceiveTimeout

	for asked := false; ; {
		received, err := subscription.ReceiveTimeout(ctx, s.heartbeat)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
			if _, pong := received.(*redis.Pong); !pong {
				s.nudge()
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
