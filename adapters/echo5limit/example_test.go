package echo5limit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"

	"github.com/weirgo/weir/adapters/echo5limit"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func ExamplePerIP() {
	e := echo.New()
	e.Use(echo5limit.PerIP(limiter.PerMinute(2).WithBurst(2)))
	e.GET("/", func(c *echo.Context) error { return nil })

	get(e, "/")
	get(e, "/")
	get(e, "/")
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
	signIn := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			ctx := middleware.WithTier(c.Request().Context(), "premium")
			ctx = keyfunc.WithUser(ctx, "42")
			c.SetRequest(c.Request().WithContext(ctx))
			return next(c)
		}
	}

	e := echo.New()
	e.Use(signIn, echo5limit.New(limits))
	g := e.Group("/v1")
	g.GET("/reports", func(c *echo.Context) error { return nil })
	g.GET("/reports/:id", func(c *echo.Context) error { return nil })

	get(e, "/v1/reports")
	get(e, "/v1/reports/7")
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
