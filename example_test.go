package weir_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
)

func ExamplePerIP() {
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	limited := weir.PerIP(weir.PerMinute(2).With(weir.SlidingLog))(hello)

	for range 3 {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Printf("%d, %s left, again in %q seconds\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200, 1 left, again in "" seconds
	// 200, 0 left, again in "" seconds
	// 429, 0 left, again in "60" seconds
}

// Everything that rules are made of every day is in this package; keys are in keyfunc.
func ExampleNew() {
	limits, err := weir.New(weir.Config{
		Results: true, // for FromContext
		Rules: []weir.Rule{
			{Name: "global", Key: keyfunc.Global, Limit: weir.PerSecond(5_000)}, // one counter for all
			{Name: "ip", Key: keyfunc.IP(), Limit: weir.PerMinute(300)},
			{Name: "plan", Key: keyfunc.First(keyfunc.User, keyfunc.IP()), Limit: weir.PerHour(100),
				Tiers: weir.Tiers{"premium": weir.PerHour(10_000)}},
			{Name: "search", Match: weir.Route("GET /search"), Key: keyfunc.IP(), Limit: weir.PerMinute(30).WithBurst(10)},
			{Name: "login", Match: weir.Route("POST /login"), Key: keyfunc.IP(), Limit: weir.PerMinute(5).With(weir.SlidingLog),
				OnOutage: weir.FailClosed},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /search", http.NotFoundHandler())
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		result, _ := weir.FromContext(r.Context())
		fmt.Println(result.Rule, "has", result.Remaining, "left of", result.Limit)
	})
	handler := limits.Handler(mux)

	r := httptest.NewRequest("POST", "/login", nil)
	ctx := weir.WithUser(r.Context(), "42") // your authentication does this
	ctx = weir.WithTier(ctx, "premium")
	handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	// Output: login has 4 left of 5
}

func ExampleParse() {
	limit, err := weir.Parse("10/s burst 20") // from a flag, the environment, a file
	fmt.Println(limit == weir.PerSecond(10).WithBurst(20), err)
	// Output: true <nil>
}

func ExampleMust() {
	limits := weir.Must(weir.New(weir.Config{Rules: []weir.Rule{{Name: "all", Key: keyfunc.Global, Limit: weir.PerDay(1_000).With(weir.FixedWindow)}}}))
	fmt.Println(limits.Rules()[0].Limit)
	// Output: 1000/1d fixed-window
}
