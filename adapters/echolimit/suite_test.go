package echolimit_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/weirgo/weir/adapters/echolimit"
	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/internal/routertest"
	"github.com/weirgo/weir/middleware"
)

func TestMain(m *testing.M) { leak.VerifyMain(m) }

func TestEcho(t *testing.T) {
	routertest.Run(t, routertest.Router{Build: build(echo.New), Pattern: routertest.ColonParams, Fails: fails, Refuses: refuses})
}

func build(engine func() *echo.Echo) func(routertest.App) http.Handler {
	return func(app routertest.App) http.Handler {
		e := engine()
		if app.Authenticate != nil {
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					c.SetRequest(c.Request().WithContext(app.Authenticate(c.Request())))
					return next(c)
				}
			})
		}
		e.Use(limits(app.Limits)...)
		fill(e.Group(""), app.Group)
		return e
	}
}

func fill(r *echo.Group, g routertest.Group) {
	for _, route := range g.Routes {
		handler := func(c echo.Context) error {
			for i, name := range c.ParamNames() {
				c.Request().SetPathValue(name, c.ParamValues()[i])
			}
			route.Handler(c.Response(), c.Request())
			return nil
		}
		if route.Method == "" {
			r.Any(routertest.ColonParams(route.Path), handler, limits(route.Limits)...)
		} else {
			r.Add(route.Method, routertest.ColonParams(route.Path), handler, limits(route.Limits)...)
		}
	}
	for _, sub := range g.Groups {
		fill(r.Group(routertest.ColonParams(sub.Prefix), limits(sub.Limits)...), sub)
	}
}

func limits(all []routertest.Limit) []echo.MiddlewareFunc {
	var handlers []echo.MiddlewareFunc
	for _, limit := range all {
		if limit.Rules != nil {
			handlers = append(handlers, echolimit.New(limit.Rules))
		} else {
			handlers = append(handlers, echolimit.PerIP(limit.PerIP))
		}
	}
	return handlers
}

var errWrongPassword = errors.New("a wrong password")

func fails(all []routertest.Limit) http.Handler {
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if !c.Response().Committed && errors.Is(err, errWrongPassword) {
			_ = c.String(http.StatusUnauthorized, "wrong")
		}
	}
	e.Use(limits(all)...)
	e.GET("/", func(c echo.Context) error { return errWrongPassword })
	return e
}

func refuses(limits *middleware.RateLimit, answer routertest.Answer, seen func(status int)) http.Handler {
	e := echo.New()
	e.HTTPErrorHandler = func(_ error, c echo.Context) { _ = c.String(http.StatusInternalServerError, routertest.FailedText) }
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			seen(c.Response().Status)
			return err
		}
	}, echolimit.NewWith(limits, echolimit.Options{OnRefused: func(c echo.Context, result middleware.Result) error {
		return answer(c.Response(), c.Request(), result)
	}}))
	e.GET("/", home)
	return e
}
