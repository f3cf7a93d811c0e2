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
	exports, err := limiter.NewSemaphore(limiter.SemaphoreConfig{Name: "exports", Max: 5, Store: store})
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

// The keys that have used the largest share of their limit.
func ExampleTop() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	top, all, err := redisstore.Top(context.Background(), rdb, 10, redisstore.TopOptions{Rule: "ip"})
	if err != nil {
		log.Fatal(err)
	}
	for _, u := range top {
		fmt.Println(u.Digest, u.Used, "of", u.Limit)
	}
	fmt.Println("all were looked at:", all)
}
