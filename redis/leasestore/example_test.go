package leasestore_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/leasestore"
)

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	store, err := leasestore.New(rdb, leasestore.Options{Mode: leasestore.Leased})
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

// A mode that makes no sense for a limit says why.
func ExampleMode_Check() {
	fmt.Println(leasestore.Leased.Check(limiter.PerMinute(100).With(limiter.SlidingLog)))
	// Output:
	// leasestore: limit 100/1m sliding-log cannot be leased: a sliding-log is for exactly N in any period, and what is taken ahead has no time of its own
}
