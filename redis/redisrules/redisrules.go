// Package redisrules has limits in a key of Redis, in the format of package rules, so that a
// fleet changes together:
//
//	limits, err := redisrules.Watch(ctx, rdb, "limits", rules.Options{})
//	...
//	err = redisrules.Publish(ctx, rdb, "limits", text, rules.Options{}) // elsewhere
//
// An ACL user needs +getrange +exists +subscribe +ping on the key and on the channel, which
// is the key and ":changed"; one that publishes, +set +publish, and for [PublishIf] also
// +getrange +exists +watch +unwatch +multi +exec.
package redisrules

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/internal/wire"
)

// Watch is [rules.Watch] for rules that are the value of a key in Redis, a string. [Publish]
// writes them and tells all processes at once; a process that misses that finds them within
// Options.Poll. Options.Fallback has the rules to begin with if Redis is down, has none yet or
// has wrong ones. Rules in Redis can't name a file of bans. The client stays the caller's to
// close.
func Watch(ctx context.Context, client redis.UniversalClient, key string, o rules.Options) (*rules.Watcher, error) {
	if err := errors.Join(o.Validate(), check(client, key)); err != nil {
		return nil, err
	}
	return rules.WatchSource(ctx, key, newSource(client, key, o.Poll), o)
}

// Publish checks the text of rules, writes it to a key in Redis and tells all processes that
// have theirs from there. If it fails, the text may have been written all the same.
func Publish(ctx context.Context, client redis.UniversalClient, key string, text []byte, o rules.Options) error {
	return publish(ctx, client, key, text, o, func(ctx context.Context, written string) error {
		return client.Set(ctx, key, written, 0).Err()
	})
}

// ErrChanged is what [PublishIf] returns where other rules are in Redis than it was told.
var ErrChanged = errors.New("the rules in Redis are not of that version")

// PublishIf is [Publish] if the rules in Redis still are those of a version
// ([rules.VersionOf]), so that two operators that change them at once do not undo each other's work.
// Empty: if there are none yet.
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

// publish checks the text, has set write it, and tells the sources.
func publish(ctx context.Context, client redis.UniversalClient, key string, text []byte, o rules.Options,
	set func(ctx context.Context, written string) error) error {

	if err := check(client, key); err != nil {
		return err
	}
	if len(text) > maxText {
		return errTooLong(fmt.Sprintf("what is to be written to Redis key %q", key))
	}
	if _, err := rules.Parse(text, o); err != nil {
		return err
	}
	written := string(text) // a caller that has left may change the slice
	// Two commands: in a Cluster the channel and the key may be on different nodes.
	_, err := wire.Call(ctx, func(ctx context.Context) (struct{}, error) {
		if err := set(ctx, written); err != nil {
			return struct{}{}, err
		}
		if err := client.Publish(ctx, channelOf(key), "").Err(); err != nil {
			return struct{}{}, fmt.Errorf("it is written, but no process is told and it is found at the next poll: %w", err)
		}
		return struct{}{}, nil
	})
	if err != nil {
		return fmt.Errorf("redisrules: publish Redis key %q: %w", key, err)
	}
	return nil
}

// ErrNone is what [Read] returns where there are no rules.
var ErrNone = errors.New("nothing is there")

// Read gives the text of the rules in a key in Redis.
func Read(ctx context.Context, client redis.UniversalClient, key string) ([]byte, error) {
	if err := check(client, key); err != nil {
		return nil, err
	}
	return (&source{client: client, key: key, reading: make(chan struct{}, 1)}).Read(ctx)
}

func check(client redis.UniversalClient, key string) error {
	if wire.IsNil(client) {
		return errors.New("redisrules: the Redis client is nil")
	}
	if key == "" {
		return errors.New("redisrules: the key in Redis is empty")
	}
	return nil
}
