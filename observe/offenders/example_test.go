package offenders_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/offenders"
)

func Example() {
	top, err := offenders.New(offenders.Options{ShowKeys: true})
	if err != nil {
		panic(err)
	}
	limits := middleware.Must(middleware.New(middleware.Config{
		Observer: top,
		Rules:    []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(2).WithBurst(2)}},
	}))
	handler := limits.Handler(http.NotFoundHandler())

	for range 10 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	for _, o := range top.Top("ip", 5) {
		fmt.Println(o.Key, "was refused", o.Refused.N, "of", o.All.N)
	}
	// Output:
	// 192.0.2.1 was refused 8 of 10
}
