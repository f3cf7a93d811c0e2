package echolimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/echolimit"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func serve(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func home(c echo.Context) error { return c.String(http.StatusOK, "home") }

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
	e.Pre(echolimit.New(limits))
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
	e.HTTPErrorHandler = func(err error, c echo.Context) { handled = append(handled, err) }
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
		{Name: "tokens", Key: keyfunc.Global, Limit: limiter.PerHour(10).With(limiter.SlidingLog), Cost: middleware.Reserve(func(*http.Request) int64 { return 5 })},
	}}))
	e.Use(echolimit.New(limits))
	e.GET("/", func(c echo.Context) error {
		require.NoError(t, middleware.Settle(c.Request().Context(), "tokens", 1))
		return failure
	})
	serve(e, "/")
	require.Equal(t, []error{failure}, handled)
	found, err := limits.Peek(t.Context(), "tokens", "")
	require.NoError(t, err)
	require.EqualValues(t, 9, found[0].Remaining)
}
