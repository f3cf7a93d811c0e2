package redisrules_test

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisrules"
)

// All instances of a service take their limits from one key.
func ExampleWatch() {
	ctx := context.Background() // the service's
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	limits, err := redisrules.Watch(ctx, rdb, "limits", rules.Options{
		Fallback: []byte("{version: 1, default: 100/m}"), // until Redis has some
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()

	// Somewhere else, to change them:
	text := []byte("{version: 1, default: 200/m}")
	if err := redisrules.Publish(ctx, rdb, "limits", text, rules.Options{}); err != nil {
		log.Fatal(err)
	}
}
