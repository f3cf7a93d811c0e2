package redisrules

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A source is a [rules.Source] for a key in Redis, a string. It learns of a Publish at once, and of any
// other change at the next poll. If the client reads from replicas, the message may arrive before the
// text; the next poll then reads it.
type source struct {
	client  redis.UniversalClient
	key     string
	nudges  chan struct{} // full until Changed's caller receives; further nudges are dropped
	reading chan struct{} // full while a read is in progress, even if its caller has left

	cancel context.CancelFunc
	ended  chan struct{}
}

var _ rules.Source = (*source)(nil)

const (
	maxText     = 1 << 20
	defaultPoll = 10 * time.Second
)

func errTooLong(what string) error {
	return wire.Errorf("redisrules", "%s is longer than 1 MiB (%d bytes)", what, maxText)
}

// newSource returns a source that nudges for each message, and every poll: text that was written
// without a message is found only by reading. A poll of 0 is 10 seconds. newSource does not wait for
// Redis.
func newSource(client redis.UniversalClient, key string, poll time.Duration) *source {
	ctx, cancel := context.WithCancel(context.Background())
	s := &source{
		client:  client,
		key:     key,
		nudges:  make(chan struct{}, 1),
		reading: make(chan struct{}, 1),
		cancel:  cancel,
		ended:   make(chan struct{}),
	}
	go s.follow(ctx, cmp.Or(poll, defaultPoll))
	return s
}

func channelOf(key string) string { return key + ":changed" }

// Read implements [rules.Source]. If ctx has no deadline, Read returns within a second.
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
		return nil, wire.Errorf("redisrules", "read Redis key %q: %w", s.key, err)
	}
	if len(text) > maxText {
		return nil, errTooLong(fmt.Sprintf("Redis key %q", s.key))
	}
	return text, nil
}

// A reader is a client or a transaction.
type reader interface {
	GetRange(ctx context.Context, key string, start, end int64) *redis.StringCmd
	Exists(ctx context.Context, keys ...string) *redis.IntCmd
}

// read reads at most one byte more than a source may have.
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
	// The text is empty, or was written between the two commands.
	return from.GetRange(ctx, key, 0, maxText).Bytes()
}

// Changed implements [rules.Source].
func (s *source) Changed() <-chan struct{} { return s.nudges }

// Close implements [rules.Source]. It waits for its goroutines, but at most a second: if Redis hangs,
// they end with the client's own timeouts.
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
	default: // it is full
	}
}

// follow nudges every poll, and for each message.
func (s *source) follow(ctx context.Context, poll time.Duration) {
	defer close(s.ended)
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { wire.Listen(ctx, s.client, channelOf(s.key), s.nudge, func(string) { s.nudge() }) })
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.nudge()
		}
	}
}
