package ginlimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func ExamplePerIP() {
	r := gin.New()
	r.Use(ginlimit.PerIP(limiter.PerMinute(2).WithBurst(2)))
	r.GET("/", func(c *gin.Context) {})

	get(r, "/")
	get(r, "/")
	get(r, "/")
	// Output:
	// 200, 1 of 2 left
	// 200, 0 of 2 left
	// 429, 0 of 2 left
}

func ExampleNew() {
	limits, err := middleware.New(middleware.Config{
		Rules: []middleware.Rule{
			{Name: "plan", Key: keyfunc.First(keyfunc.User, keyfunc.IP()),
				Limit: limiter.PerHour(100),
				Tiers: middleware.Tiers{"premium": limiter.PerHour(10_000)}},
			{Name: "export", Match: middleware.Route("GET /v1/reports/:id"), Key: keyfunc.IP(),
				Limit: limiter.PerMinute(30).WithBurst(10)},
		},
	})
	if err != nil {
		panic(err)
	}
	signIn := func(c *gin.Context) {
		ctx := middleware.WithTier(c.Request.Context(), "premium")
		ctx = keyfunc.WithUser(ctx, "42")
		c.Request = c.Request.WithContext(ctx)
	}

	r := gin.New()
	r.Use(signIn, ginlimit.New(limits))
	g := r.Group("/v1")
	g.GET("/reports", func(c *gin.Context) {})
	g.GET("/reports/:id", func(c *gin.Context) {})

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
