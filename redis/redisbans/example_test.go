package redisbans_test

import (
	"context"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/redis/redisbans"
)

// All processes of a service refuse a client together.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	list, err := redisbans.New(context.Background(), rdb, redisbans.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := middleware.New(middleware.Config{
		Bans:  middleware.Bans{List: list},
		Rules: []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(100)}},
	})
	_, _ = limits, err

	// By hand, from any of them:
	_ = list.Ban(context.Background(), "203.0.113.7", time.Hour)
}
