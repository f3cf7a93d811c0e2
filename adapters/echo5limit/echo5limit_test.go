package echo5limit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/echo5limit"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func serve(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func home(c *echo.Context) error { return c.String(http.StatusOK, "home") }

// Pre runs before routing: limits work, rules by route do not apply.
func TestInPreThereIsNoRoute(t *testing.T) {
	patterns := []string{}
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
		{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(2).With(limiter.SlidingLog), Match: middleware.MatchFunc(func(r *http.Request) bool {
			patterns = append(patterns, r.Pattern)
			return true
		})},
		{Name: "home", Key: keyfunc.Global, Limit: limiter.PerHour(1).With(limiter.SlidingLog), Match: middleware.Route("/")},
	}}))
	e := echo.New()
	e.Pre(echo5limit.New(limits))
	e.GET("/", home)
	require.Equal(t, http.StatusOK, serve(e, "/").Code)
	require.Equal(t, http.StatusOK, serve(e, "/").Code, "the rule for the route did not apply")
	require.Equal(t, http.StatusTooManyRequests, serve(e, "/").Code)
	require.Equal(t, []string{"", "", ""}, patterns)
}

func TestAnErrorIsHandledOnceWhereItsStatusDoesNotCount(t *testing.T) {
	failure := errors.New("ours")
	var handled []error
	e := echo.New()
	e.HTTPErrorHandler = func(c *echo.Context, err error) { handled = append(handled, err) }
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
		{Name: "tokens", Key: keyfunc.Global, Limit: limiter.PerHour(10).With(limiter.SlidingLog), Cost: middleware.Reserve(func(*http.Request) int64 { return 5 })},
	}}))
	e.Use(echo5limit.New(limits))
	e.GET("/", func(c *echo.Context) error {
		require.NoError(t, middleware.Settle(c.Request().Context(), "tokens", 1))
		return failure
	})
	serve(e, "/")
	require.Equal(t, []error{failure}, handled)
	found, err := limits.Peek(t.Context(), "tokens", "")
	require.NoError(t, err)
	require.EqualValues(t, 9, found[0].Remaining)
}

// denied returns a limiter that refuses every request, for an application that answers with a body and no status.
func denied(body string) echo.MiddlewareFunc {
	deny := middleware.Config{Rules: []middleware.Rule{{Name: "all", Mode: middleware.Deny}}}
	answer := func(c *echo.Context, _ middleware.Result) error {
		_, err := c.Response().Write([]byte(body))
		return err
	}
	return echo5limit.NewWith(middleware.Must(middleware.New(deny)), echo5limit.Options{OnRefused: answer})
}

func TestAnAnswerBehindGzipHasTheRefusalsStatus(t *testing.T) {
	for _, body := range []string{"", "slower"} {
		e := echo.New()
		e.Use(echomiddleware.Gzip(), denied(body))
		e.GET("/", home)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		require.Equal(t, http.StatusForbidden, w.Code, body)
		require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
	}
}

func TestAStatusOfTheApplicationStaysBehindGzip(t *testing.T) {
	for name, answer := range map[string]func(*echo.Context) error{
		"text":    func(c *echo.Context) error { return c.String(http.StatusTeapot, "slower") },
		"JSON":    func(c *echo.Context) error { return c.JSON(http.StatusTeapot, "slower") },
		"no body": func(c *echo.Context) error { return c.NoContent(http.StatusTeapot) },
		"error":   func(*echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "slower") },
	} {
		for _, shortest := range []int{0, 1000} { // gzip holds shorter answers back
			deny := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{{Name: "all", Mode: middleware.Deny}}}))
			e := echo.New()
			e.Use(echomiddleware.GzipWithConfig(echomiddleware.GzipConfig{MinLength: shortest}), echo5limit.NewWith(deny,
				echo5limit.Options{OnRefused: func(c *echo.Context, _ middleware.Result) error { return answer(c) }}))
			e.GET("/", home)
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept-Encoding", "gzip")
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			require.Equal(t, http.StatusTeapot, w.Code, "%s, %d", name, shortest)
		}
	}
}

// A hidden writer has no Unwrap, so no status can be set on echo's own Response.
type hidden struct{ http.ResponseWriter }

func TestARefusalToAWriterWithoutUnwrapIsAnError(t *testing.T) {
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.SetResponse(hidden{c.Response()})
			return next(c)
		}
	}, denied("slower"))
	e.GET("/", home)
	require.Equal(t, http.StatusInternalServerError, serve(e, "/").Code, "a refusal is never answered 200")
}
