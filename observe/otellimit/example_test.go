package otellimit_test

import (
	"net/http"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/otellimit"
)

func Example() {
	store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	telemetry := otellimit.Must(otellimit.New(otellimit.Options{Store: store}))
	limits := middleware.Must(middleware.New(middleware.Config{
		Store:    store,
		Observer: telemetry,
		Rules:    []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(100)}},
	}))
	// otelhttp.NewHandler around it begins the spans.
	http.Handle("/", limits.Handler(http.NotFoundHandler()))
}
