package leasestore_test

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/leasestore"
)

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	store, err := leasestore.New(rdb, leasestore.Options{})
	if err != nil {
		panic(err)
	}
	defer store.Close()

	search := limiter.Must(limiter.New(limiter.Config{
		Name: "search", Limit: limiter.PerSecond(10_000), Store: store,
	}))
	d, err := search.Allow(context.Background(), "everybody")
	_, _ = d, err
}
