// Observability is a busy service that shows its limits: on a live page, to Prometheus, and in
// the log. traffic.go plays its clients: twenty good ones, an attacker that makes up keys, a
// noisy tenant, and a partner that keeps to its limit (package pace).
//
//	go run ./_examples/observability
//	open http://127.0.0.1:8080/limits                                 # the page: look at the tenant, ban it, lift the ban
//	for i in $(seq 11); do curl -i http://127.0.0.1:8080/search; done # 10 pass
//	curl -s http://127.0.0.1:8080/metrics | grep rate_limit_exceeded  # ip: the attacker; tenant: the noisy one
//	prometheus --config.file=_examples/observability/prometheus.yml --storage.tsdb.path=/tmp/weir
//
// Grafana shows grafana-dashboard.json (Dashboards, New, Import); alerts.yml is tried by
// promtool test rules _examples/observability/*_test.yml. With -redis 127.0.0.1:6379
// several such services share their counters in that Redis. Stop it: the alerts fire and the
// services go on.
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/dashboard"
	"github.com/weirgo/weir/observe/offenders"
	"github.com/weirgo/weir/observe/promlimit"
	"github.com/weirgo/weir/observe/sloglimit"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
)

// open returns the store of the counters, and the list of bans.
func open(server string) (limiter.Store, bans.List) {
	if server == "" {
		return must(limiter.NewMemory(limiter.MemoryOptions{})), must(bans.New(bans.Options{}))
	}
	rdb := redis.NewClient(&redis.Options{Addr: server})
	return redisstore.New(rdb, redisstore.Options{}),
		must(redisbans.New(context.Background(), rdb, redisbans.Options{}))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// isOperator reports whether a request is from this machine, to its address. A foreign page could
// make a browser here send requests, but under a name of its own. Your isOperator checks the
// signed-in user.
func isOperator(r *http.Request) bool {
	return strings.HasPrefix(r.RemoteAddr, "127.0.0.1:") && strings.HasPrefix(r.Host, "127.0.0.1:")
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	server := flag.String("redis", "", "address of a Redis to count in; empty: in memory")
	flag.Parse()

	store, list := open(*server)
	top := offenders.Must(offenders.New(offenders.Options{Window: time.Minute})) // whom does each rule refuse most?
	metrics := promlimit.Must(promlimit.New(promlimit.Options{Store: store, Bans: list, Top: top}))
	prometheus.MustRegister(metrics)
	refusals := sloglimit.Must(sloglimit.New(sloglimit.Options{}))
	page := must(dashboard.New(dashboard.Options{Authorize: isOperator, Store: store, Bans: list, ShowKeys: true}))

	address, tenant := keyfunc.IP(keyfunc.TrustProxies("127.0.0.1")), keyfunc.Header("X-Tenant")
	limits := weir.Must(weir.New(weir.Config{
		Store: store, Bans: weir.Bans{List: list, Keys: []keyfunc.Func{address, tenant}},
		Observer: middleware.Observers(metrics, refusals, page, top),
		Rules: []weir.Rule{
			{Name: "ip", Key: address, Limit: weir.PerSecond(50)},
			{Name: "tenant", Key: tenant, NoKey: middleware.NoKeySkip, Limit: weir.PerSecond(20)},
			{Name: "search", Match: weir.Route("GET /search"), Key: address, Limit: weir.PerMinute(10)},
			{Name: "ip-next", Key: address, Limit: weir.PerSecond(10), Mode: weir.Shadow}, // what would it do?
		},
	}))
	page.Add(limits)
	hello := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") }
	service := http.NewServeMux()
	service.HandleFunc("GET /{$}", hello)
	service.HandleFunc("GET /search", hello)
	mux := http.NewServeMux()
	mux.Handle("/", limits.Handler(service))
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.Handle("/limits", page)

	listener := must(net.Listen("tcp", *addr))
	log.Printf("listening on http://%s", listener.Addr())
	play("http://" + listener.Addr().String())
	partner("http://"+listener.Addr().String(), metrics)
	log.Fatal(http.Serve(listener, mux))
}
