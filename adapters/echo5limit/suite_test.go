package echo5limit_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/weirgo/weir/adapters/echo5limit"
	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/routertest"
)

func TestMain(m *testing.M) { leak.VerifyMain(m) }

func TestEcho5(t *testing.T) {
	routertest.Run(t, routertest.Router{
		Build: build, Pattern: routertest.ColonParams, ReturnsErrors: true, OnRefused: true, KeepsRequest: true,
	})
}

func build(app routertest.App) http.Handler {
	e := echo.New()
	if app.OnError != nil {
		e.HTTPErrorHandler = func(c *echo.Context, err error) {
			if sent, unwrapErr := echo.UnwrapResponse(c.Response()); unwrapErr != nil || !sent.Committed {
				app.OnError(c.Response(), err)
			}
		}
	}
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if app.Authenticate != nil {
				c.SetRequest(c.Request().WithContext(app.Authenticate(c.Request())))
			}
			err := next(c)
			if sent, unwrapErr := echo.UnwrapResponse(c.Response()); unwrapErr == nil && app.OnStatus != nil {
				app.OnStatus(sent.Status)
			}
			return err
		}
	})
	e.Use(limits(app.Limits)...)
	fill(e.Group(""), app.Group)
	return e
}

func fill(r *echo.Group, g routertest.Group) {
	for _, route := range g.Routes {
		handler := func(c *echo.Context) error {
			for _, p := range c.PathValues() {
				c.Request().SetPathValue(p.Name, p.Value)
			}
			if route.Context != nil {
				c.SetRequest(c.Request().WithContext(route.Context(c.Request())))
			}
			route.Handler(c.Response(), c.Request())
			return route.Err
		}
		if route.Method == "" {
			r.Any(route.Path, handler, limits(route.Limits)...)
		} else {
			r.Add(route.Method, route.Path, handler, limits(route.Limits)...)
		}
	}
	for _, sub := range g.Groups {
		fill(r.Group(sub.Prefix, limits(sub.Limits)...), sub)
	}
}

func limits(all []routertest.Limit) (handlers []echo.MiddlewareFunc) {
	for _, limit := range all {
		var options echo5limit.Options
		if limit.OnRefused != nil {
			options.OnRefused = func(c *echo.Context, result middleware.Result) error {
				return limit.OnRefused(c.Response(), c.Request(), result)
			}
		}
		handlers = append(handlers, echo5limit.NewWith(limit.Rules, options))
	}
	return handlers
}
