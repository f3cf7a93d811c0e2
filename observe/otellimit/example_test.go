package otellimit_test

import (
	"log"
	"net/http"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/otellimit"
)

func Example() {
	store, err := limiter.NewMemory(limiter.MemoryConfig{})
	if err != nil {
		log.Fatal(err)
	}
	telemetry := otellimit.Must(otellimit.New(otellimit.Options{Store: store}))
	limits := middleware.Must(middleware.New(middleware.Config{
		Store:    store,
		Observer: telemetry,
		Rules:    []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(100)}},
	}))
	// otelhttp.NewHandler around it begins the spans.
	http.Handle("/", limits.Handler(http.NotFoundHandler()))
}
