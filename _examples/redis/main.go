// Redis runs two instances of one service that share their limits through a Redis.
//
//	redis-server --save "" &
//	go run ./_examples/redis
//	for i in $(seq 6); do curl -i http://127.0.0.1:8080/; curl -i http://127.0.0.1:8081/; done # 10 of 12 pass
//	redis-cli shutdown nosave          # in a second, each instance counts for itself, to its half
//	curl -i http://127.0.0.1:8080/pay  # 503: closed in an outage; /news passes: open
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/redisstore"
)

// instance returns the service. Instances share only the counters in Redis.
func instance(rdb *redis.Client) http.Handler {
	limits := weir.Must(weir.New(weir.Config{
		Results: true, Store: redisstore.New(rdb, redisstore.Options{Failover: failover.Options{Replicas: 2}}),
		Rules: []weir.Rule{
			{Name: "ip", Match: weir.Route("/{$}"), Key: keyfunc.IP(), Limit: weir.PerMinute(10).With(weir.SlidingLog)},
			{Name: "pay", Key: keyfunc.Global, Match: weir.Route("/pay"), Limit: weir.PerMinute(10), OnOutage: weir.FailClosed},
			{Name: "news", Key: keyfunc.Global, Match: weir.Route("/news"), Limit: weir.PerMinute(10), OnOutage: weir.FailOpen},
		},
	}))
	hello := func(w http.ResponseWriter, r *http.Request) {
		result, ok := weir.FromContext(r.Context())
		fmt.Fprintln(w, "decided without Redis:", ok && result.Degraded)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", hello)
	mux.HandleFunc("/pay", hello)
	mux.HandleFunc("/news", hello)
	return limits.Handler(mux)
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address of the first instance")
	second := flag.String("second", "127.0.0.1:8081", "address of the other")
	server := flag.String("redis", "127.0.0.1:6379", "address of Redis")
	flag.Parse()
	for _, addr := range []string{*addr, *second} {
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			log.Fatal(err)
		}
		log.Printf("listening on http://%s", listener.Addr())
		go http.Serve(listener, instance(redis.NewClient(&redis.Options{Addr: *server})))
	}
	select {}
}
