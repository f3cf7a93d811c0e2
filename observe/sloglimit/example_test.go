package sloglimit_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/sloglimit"
)

func Example() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "retry_after" {
				return slog.Attr{} // it changes from run to run
			}
			return a
		},
	}))
	refusals := sloglimit.Must(sloglimit.New(sloglimit.Options{Logger: logger}))
	defer refusals.Flush()

	limits := middleware.Must(middleware.New(middleware.Config{
		Observer: refusals,
		Rules:    []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(1).With(limiter.SlidingLog)}},
	}))
	handler := limits.Handler(http.NotFoundHandler())
	for range 100 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
	// Output:
	// level=INFO msg="weir: requests are refused" code=weir-refused rule=all limit="1/1h sliding-log" requests=1
	// level=INFO msg="weir: requests are refused" code=weir-refused rule=all limit="1/1h sliding-log" requests=98
}
