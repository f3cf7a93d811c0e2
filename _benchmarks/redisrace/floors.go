package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/benchmarks/race"
)

func openPing(_ context.Context, c *environment) (func() race.Call, error) {
	client := c.client()
	return shared(func(ctx context.Context, _ string) (bool, error) {
		return true, client.Ping(ctx).Err()
	}), nil
}

func openEvalSHA(ctx context.Context, c *environment) (func() race.Call, error) {
	client := c.client()
	hash, err := client.ScriptLoad(ctx, "return 1").Result()
	if err != nil {
		return nil, err
	}
	return shared(func(ctx context.Context, key string) (bool, error) {
		n, err := client.EvalSha(ctx, hash, []string{key}).Int()
		return n == 1, err
	}), nil
}

// replay sends the commands that were recorded for each key, and takes any answer for a yes.
func replay(client *redis.Client, commands map[string][]any) race.Call {
	return func(ctx context.Context, key string) (bool, error) {
		return true, client.Do(ctx, commands[key]...).Err()
	}
}
