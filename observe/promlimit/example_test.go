package promlimit_test

import (
	"context"
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/observe/promlimit"
)

func Example() {
	store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	metrics := promlimit.Must(promlimit.New(promlimit.Options{Store: store}))
	prometheus.MustRegister(metrics)

	limits := middleware.Must(middleware.New(middleware.Config{
		Store:    store,
		Observer: metrics,
		Rules:    []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(100)}},
	}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.Handle("/", limits.Handler(http.NotFoundHandler()))
}

// With rules from a file, reloads and bans are shown too.
func ExampleMetrics_Follow() {
	metrics := promlimit.Must(promlimit.New(promlimit.Options{}))
	watcher, err := rules.Watch(context.Background(), "limits.yaml", rules.Options{
		Config: middleware.Config{Observer: metrics},
	})
	if err != nil {
		log.Fatal(err)
	}
	metrics.Follow(watcher)
	prometheus.MustRegister(metrics)
}
