package middleware_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

var mux http.Handler = http.NewServeMux()

func ExamplePerIP() {
	handler := middleware.PerIP(limiter.PerMinute(2).WithBurst(2))(mux)

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 404 1
	// 404 0
	// 429 0
}

func ExamplePerIP_behindAProxy() {
	// The load balancers' addresses, and nobody else's: who is in there can claim
	// to be any client.
	handler := middleware.PerIP(limiter.PerMinute(100), keyfunc.TrustProxies("10.1.0.0/16"))(mux)
	_ = handler
}

func ExampleNew() {
	limits, err := middleware.New(middleware.Config{
		Rules: []middleware.Rule{
			{Name: "global", Key: keyfunc.Global, Limit: limiter.PerSecond(5_000)}, // one counter for all
			{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(300)},
			{Name: "plan", Key: keyfunc.First(keyfunc.User, keyfunc.IP()),
				Limit: limiter.PerHour(100),
				Tiers: middleware.Tiers{"premium": limiter.PerHour(10_000)}},
			{Name: "search", Match: middleware.Route("GET /search"), Key: keyfunc.IP(),
				Limit: limiter.PerMinute(30).WithBurst(10)},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := limits.Handler(mux)

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Header().Get("X-RateLimit-Limit")) // of the rule with the fewest units left
	// Output: 100
}

// Your own authentication says who the user is and which tier they are in.
func ExampleWithTier() {
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := keyfunc.WithUser(r.Context(), "42")
			ctx = middleware.WithTier(ctx, "premium")
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{{
		Name:  "plan",
		Key:   keyfunc.User,
		Limit: limiter.PerHour(100),
		Tiers: middleware.Tiers{"premium": limiter.PerHour(10_000)},
	}}}))
	handler := authenticate(limits.Handler(mux))

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Header().Get("X-RateLimit-Limit"))
	// Output: 10000
}

// Outside the authentication there is no user or tier yet: every request is then
// counted without a key, on one counter for all.
func ExampleWithTier_incorrect() {
	authenticate := func(next http.Handler) http.Handler { return next }
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
		{Name: "plan", Key: keyfunc.User, Limit: limiter.PerHour(100)},
	}}))
	handler := limits.Handler(authenticate(mux)) // the wrong way around
	_ = handler
}

func ExampleFromContext() {
	report := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result, _ := middleware.FromContext(r.Context())
		fmt.Printf("%d of %d left by rule %s\n", result.Remaining, result.Limit, result.Rule)
	})
	limits := middleware.Must(middleware.New(middleware.Config{Results: true, Rules: []middleware.Rule{
		{Name: "reports", Key: keyfunc.Global, Limit: limiter.PerDay(10)},
	}}))
	limits.Handler(report).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	// Output: 9 of 10 left by rule reports
}

// The limits of a running service are changed; what was used of them stays used.
func ExampleRateLimit_Reconfigure() {
	rules := func(perHour int64) middleware.Config {
		return middleware.Config{Results: true, Rules: []middleware.Rule{
			{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(perHour).With(limiter.SlidingLog)},
		}}
	}
	limits := middleware.Must(middleware.New(rules(100)))
	h := limits.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result, _ := middleware.FromContext(r.Context())
		fmt.Println(result.Remaining, "left")
	}))
	ask := func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) }

	ask()
	if err := limits.Reconfigure(rules(10)); err != nil {
		fmt.Println(err)
	}
	ask()
	// Output:
	// 99 left
	// 8 left
}

// One of many rules applies to a request, by its route.
func ExampleConfig_byRoute() {
	perIP := func(name string, limit limiter.Limit) middleware.Rule {
		return middleware.Rule{Name: name, Key: keyfunc.IP(), Limit: limit}
	}
	rest := perIP("rest", limiter.PerMinute(300))
	limits := middleware.Must(middleware.New(middleware.Config{
		Results: true,
		ByRoute: map[string][]middleware.Rule{
			"GET /search": {perIP("search", limiter.PerMinute(30))},
			"/admin/*":    {perIP("admin", limiter.PerMinute(60))},
		},
		Default: []middleware.Rule{rest},
	}))
	show := func(w http.ResponseWriter, r *http.Request) {
		result, _ := middleware.FromContext(r.Context())
		fmt.Println(r.URL.Path, "-", result.Rule)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", show)
	mux.HandleFunc("/admin/users/{id}", show)
	mux.HandleFunc("/", show)
	h := limits.Handler(mux)
	for _, path := range []string{"/search", "/admin/users/7", "/about"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	// Output:
	// /search - search
	// /admin/users/7 - admin
	// /about - rest
}
