package redisstore_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/redis/redisstore"
)

// All processes of a service enforce one limit.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	limits, err := middleware.New(middleware.Config{
		Store: redisstore.New(rdb, redisstore.Options{Failover: failover.Options{Replicas: 3}}),
		Rules: []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(100)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = http.ListenAndServe(":8080", limits.Handler(http.NotFoundHandler()))
}

// How many exports of a tenant run at once, in all processes together.
func Example_semaphore() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	store := redisstore.New(rdb, redisstore.Options{})
	defer store.Close() // when all have ended
	exports, err := limiter.NewSemaphore(limiter.SemaphoreConfig{Name: "exports", Limit: limiter.AtOnce(5), Store: store})
	if err != nil {
		log.Fatal(err)
	}
	release, d, err := exports.Acquire(context.Background(), "tenant:7")
	defer release()
	if err != nil || !d.Allowed {
		fmt.Println("not now:", err, d.RetryAfter)
		return
	}
	fmt.Println("exporting")
}

// A store with wrong options says so where a limiter is made of it.
func ExampleNew_incorrect() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	_, err := limiter.New(limiter.Config{
		Name: "mail", Limit: limiter.PerHour(50),
		Store: redisstore.New(rdb, redisstore.Options{Prefix: "my app"}),
	})
	fmt.Println(err)
	// Output:
	// redisstore: Prefix "my app" has a space, a brace or a character outside printable ASCII
}

// What the counters in a Redis have used.
func ExampleUsages() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	ctx := context.Background()
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		names, next, err := rdb.Scan(ctx, cursor, redisstore.CounterNames(""), 50).Result()
		if err != nil {
			log.Fatal(err)
		}
		found, err := redisstore.Usages(ctx, rdb, "", names)
		if err != nil {
			log.Fatal(err)
		}
		for _, u := range found {
			fmt.Println(u.Rule, u.Digest, u.Used, "of", u.Limit)
		}
		cursor = next
	}
}
