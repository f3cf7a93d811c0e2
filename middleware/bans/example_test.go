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

// A client that is refused twice within ten minutes is banned for a minute, then for two
// minutes, for four, and so on up to a day.
func ExampleEscalation() {
	limits := middleware.Must(middleware.New(middleware.Config{
		Bans: bans.Must(bans.NewMemory(bans.MemoryConfig{})),
		Rules: []middleware.Rule{{
			Name: "login", Key: keyfunc.IP(), Limit: limiter.PerHour(1).With(limiter.SlidingLog),
			Escalate: bans.Escalation{After: 2, Within: 10 * time.Minute, Ban: time.Minute},
		}},
	}))

	h := limits.Handler(http.NotFoundHandler())
	for range 4 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 404
	// 429
	// 429
	// 403
}

// Bans by hand name a key as its function makes it.
func ExampleMemory_Ban() {
	list := bans.Must(bans.NewMemory(bans.MemoryConfig{}))
	ctx := context.Background()

	if err := list.Ban(ctx, "203.0.113.7", 24*time.Hour); err != nil {
		panic(err)
	}
	ban, banned := list.Find("203.0.113.7")
	fmt.Println(banned, time.Until(ban.Until).Round(time.Hour))

	lifted, _ := list.Unban(ctx, "203.0.113.7")
	_, banned = list.Find("203.0.113.7")
	fmt.Println(lifted, banned)
	// Output:
	// true 24h0m0s
	// true false
}
