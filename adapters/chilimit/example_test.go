package chilimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"

	"github.com/weirgo/weir/adapters/chilimit"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// Without rules by route, package middleware is all that chi needs.
func Example_router() {
	r := chi.NewRouter()
	r.Use(middleware.PerIP(limiter.PerMinute(2).WithBurst(2)))
	r.Get("/", func(w http.ResponseWriter, r *http.Request) {})

	get(r, "/")
	get(r, "/")
	get(r, "/")
	// Output:
	// 200, 1 of 2 left
	// 200, 0 of 2 left
	// 429, 0 of 2 left
}

// One route is limited by a middleware of its own.
func Example_route() {
	search := func(w http.ResponseWriter, r *http.Request) {}

	r := chi.NewRouter()
	r.With(middleware.PerIP(limiter.PerSecond(2))).Get("/search", search)

	get(r, "/search")
	// Output: 200, 1 of 2 left
}

// Rules by route need New, which knows the route before chi has chosen it.
func ExampleNew() {
	limits, err := middleware.New(middleware.Config{
		Rules: []middleware.Rule{
			{Name: "plan", Key: keyfunc.First(keyfunc.User, keyfunc.IP()),
				Limit: limiter.PerHour(100),
				Tiers: middleware.Tiers{"premium": limiter.PerHour(10_000)}},
			{Name: "export", Match: middleware.Route("GET /v1/reports/{id}"), Key: keyfunc.IP(),
				Limit: limiter.PerMinute(30).WithBurst(10)},
		},
	})
	if err != nil {
		panic(err)
	}
	signIn := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := middleware.WithTier(r.Context(), "premium")
			ctx = keyfunc.WithUser(ctx, "42")
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}

	r := chi.NewRouter()
	r.Use(signIn, chilimit.New(limits))
	r.Route("/v1", func(r chi.Router) {
		r.Get("/reports", func(w http.ResponseWriter, r *http.Request) {})
		r.Get("/reports/{id}", func(w http.ResponseWriter, r *http.Request) {})
	})

	get(r, "/v1/reports")
	get(r, "/v1/reports/7")
	// Output:
	// 200, 9999 of 10000 left
	// 200, 9 of 10 left
}

func get(h http.Handler, path string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	fmt.Printf("%d, %s of %s left\n", w.Code,
		w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("X-RateLimit-Limit"))
}
