package echolimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/echolimit"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func serve(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func home(c echo.Context) error { return c.String(http.StatusOK, "home") }

func TestARefusalIsAnsweredWithTheContextOfEcho(t *testing.T) {
	failure := errors.New("ours")
	for name, test := range map[string]struct {
		answer func(c echo.Context, result middleware.Result) error
		status int
		body   string
		failed []error
	}{
		"an answer":      {func(c echo.Context, r middleware.Result) error { return c.String(418, c.Path()+" "+r.Rule) }, 418, "/ all", nil},
		"an error":       {func(echo.Context, middleware.Result) error { return failure }, 500, "handled", []error{failure}},
		"neither of two": {func(echo.Context, middleware.Result) error { return nil }, 429, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var failed []error
			e := echo.New()
			e.HTTPErrorHandler = func(err error, c echo.Context) {
				failed = append(failed, err)
				_ = c.String(500, "handled")
			}
			limits := middleware.Must(middleware.New(middleware.Config{
				Rules:   []middleware.Rule{{Name: "all", Limit: limiter.PerHour(1).With(limiter.SlidingLog)}},
				Refusal: middleware.Refusal{Answer: func(http.ResponseWriter, *http.Request, middleware.Result) { t.Error("the adapter's goes before it") }},
			}))
			var status int
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					err := next(c)
					status = c.Response().Status
					return err
				}
			}, echolimit.NewWith(limits, echolimit.Options{OnRefused: test.answer}))
			e.GET("/", home)
			require.Equal(t, "home", serve(e, "/").Body.String())
			w := serve(e, "/")
			require.Equal(t, test.status, w.Code)
			if test.failed == nil { // an error is answered behind all middleware
				require.Equal(t, test.status, status, "loggers and metrics of echo's count refusals")
			}
			require.Equal(t, test.body, w.Body.String())
			require.Equal(t, test.failed, failed)
			require.NotEmpty(t, w.Header().Get("Retry-After"))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		})
	}
}

// Pre runs before routing: limits work, rules by route do not apply.
func TestInPreThereIsNoRoute(t *testing.T) {
	patterns := []string{}
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
		{Name: "all", Limit: limiter.PerHour(2).With(limiter.SlidingLog), Match: middleware.MatchFunc(func(r *http.Request) bool {
			patterns = append(patterns, r.Pattern)
			return true
		})},
		{Name: "home", Limit: limiter.PerHour(1).With(limiter.SlidingLog), Match: middleware.Route("/")},
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
		{Name: "tokens", Limit: limiter.PerHour(10).With(limiter.SlidingLog), Cost: middleware.Reserve(func(*http.Request) int64 { return 5 })},
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
