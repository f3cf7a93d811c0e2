package bans_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// A limiter refuses what is banned, before any of its rules is asked.
func Example() {
	list := bans.Must(bans.New(bans.Options{}))
	limits := middleware.Must(middleware.New(middleware.Config{
		Bans:  middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.IP()}},
		Rules: []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(100)}},
	}))
	handler := limits.Handler(http.NotFoundHandler())
	ask := func(client string) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = client + ":1000"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}

	if err := list.Ban(context.Background(), "203.0.113.7", time.Hour); err != nil {
		fmt.Println(err)
	}
	fmt.Println(ask("203.0.113.7"), ask("198.51.100.9"))
	lifted, _ := list.Unban(context.Background(), "203.0.113.7")
	fmt.Println(lifted, ask("203.0.113.7"))
	// Output:
	// 403 404
	// true 404
}

// Each ban by escalation is longer than the one before.
func ExampleEscalation() {
	e := bans.Escalation{Ban: time.Minute, Factor: 2, Max: 10 * time.Minute}
	for times := range 5 {
		fmt.Print(e.Duration(times+1), " ")
	}
	// Output: 1m0s 2m0s 4m0s 8m0s 10m0s
}
