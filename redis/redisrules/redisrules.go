// Package redisrules keeps the rules of package rules in a key of Redis, so that all processes change
// their limits together:
//
//	limits, err := redisrules.Watch(ctx, rdb, "limits", rules.Options{})
//	...
//	err = redisrules.Publish(ctx, rdb, "limits", text, rules.Options{}) // elsewhere
//
// An ACL user that watches needs +getrange +exists +subscribe +ping, on the key and on the channel,
// whose name is the key followed by ":changed": for the key limits, ~limits resetchannels
// &limits:changed. A user that publishes needs +set +publish, and for
// [PublishIf] also +getrange +exists +watch +unwatch +multi +exec.
package redisrules

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/internal/wire"
)

// Watch is [rules.Watch] for rules in a Redis key of type string. [Publish] writes them and sends a
// message to all processes; a process that misses the message reads them within Options.Poll. Set
// Options.Fallback to rules that hold at the start if Redis is down, or if its rules are missing or
// wrong. Rules in Redis cannot name a file of bans. Watch's caller closes the client.
func Watch(ctx context.Context, client redis.UniversalClient, key string, o rules.Options) (*rules.Watcher, error) {
	if err := errors.Join(o.Validate(), check(client, key)); err != nil {
		return nil, err
	}
	return rules.WatchSource(ctx, key, newSource(client, key, o.Poll), o)
}

// Publish checks the text of rules, writes it to a key in Redis and sends a message to all processes
// that watch the key. If it returns an error, the text may still have been written.
func Publish(ctx context.Context, client redis.UniversalClient, key string, text []byte, o rules.Options) error {
	return publish(ctx, client, key, text, o, func(ctx context.Context, written string) error {
		return client.Set(ctx, key, written, 0).Err()
	})
}

// ErrChanged is the error of [PublishIf] if the rules in Redis are not of the given version.
var ErrChanged = errors.New("the rules in Redis are not of that version")

// PublishIf is [Publish], but writes only if the rules in Redis have the given version
// ([rules.VersionOf]). So two operators who change the rules at once do not undo each other's changes.
// An empty version means that there are no rules yet.
func PublishIf(ctx context.Context, client redis.UniversalClient, key, version string, text []byte, o rules.Options) error {
	return publish(ctx, client, key, text, o, func(ctx context.Context, written string) error {
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

// publish checks the text, calls set to write it, and sends the message.
func publish(ctx context.Context, client redis.UniversalClient, key string, text []byte, o rules.Options,
	set func(ctx context.Context, written string) error) error {

	if err := check(client, key); err != nil {
		return err
	}
	if len(text) > maxText {
		return errTooLong(fmt.Sprintf("the text for Redis key %q", key))
	}
	if _, err := rules.Parse(text, o); err != nil {
		return err
	}
	written := string(text) // a caller whose context has ended may change the slice
	// Two commands: in a Cluster the channel and the key may be on different nodes.
	_, err := wire.Call(ctx, func(ctx context.Context) (struct{}, error) {
		if err := set(ctx, written); err != nil {
			return struct{}{}, err
		}
		if err := client.Publish(ctx, channelOf(key), "").Err(); err != nil {
			return struct{}{}, fmt.Errorf("the text is written, but the message to the processes failed: they read the text at their next poll: %w", err)
		}
		return struct{}{}, nil
	})
	if err != nil {
		return wire.Errorf("redisrules", "publish Redis key %q: %w", key, err)
	}
	return nil
}

// ErrNone is the error of [Read] if the key does not exist.
var ErrNone = errors.New("the key does not exist")

// Read returns the text of the rules in a key of Redis.
func Read(ctx context.Context, client redis.UniversalClient, key string) ([]byte, error) {
	if err := check(client, key); err != nil {
		return nil, err
	}
	return (&source{client: client, key: key, reading: make(chan struct{}, 1)}).Read(ctx)
}

func check(client redis.UniversalClient, key string) error {
	if err := wire.CheckClient("redisrules", client); err != nil {
		return err
	}
	if key == "" {
		return wire.Errorf("redisrules", "the key in Redis is empty")
	}
	return nil
}
