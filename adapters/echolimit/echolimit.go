// Package echolimit is Weir's middleware for echo v4:
//
//	e.Use(echolimit.PerIP(limiter.PerMinute(100)))                               // the router
//	e.GET("/search", search, echolimit.PerIP(limiter.PerSecond(2)))              // one route
//	e.Use(echolimit.New(middleware.Must(middleware.New(middleware.Config{...})))) // rules
//
// A route is echo's pattern, such as "/users/:id". It is not known to middleware
// added with e.Pre. The client's address is what package keyfunc says, whatever
// echo's IPExtractor is.
//
// Where a rule that applied has Counts, an error from the handlers behind the limiter goes to
// the HTTPErrorHandler at once, as the status is what counts, and then to the middleware in
// front as ever. The HTTPErrorHandler has to leave alone what is answered already, as echo's
// own does.
package echolimit

import (
	"net/http"
	"slices"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// Options is what [NewWith] takes.
type Options struct {
	// OnRefused answers a request that is refused, or returns an error for echo's
	// HTTPErrorHandler to answer, such as echo.NewHTTPError(result.Status). Retry-After and
	// the other header fields are set already, and the status is result.Status until it sets
	// another. Nil: the Answer of middleware.Refusal, or a short body.
	OnRefused func(c echo.Context, result middleware.Result) error
}

// New returns limits as an echo middleware. Handlers find the decision with
// middleware.FromContext(c.Request().Context()).
func New(limits *middleware.RateLimit) echo.MiddlewareFunc { return NewWith(limits, Options{}) }

// NewWith is New with options.
func NewWith(limits *middleware.RateLimit, o Options) echo.MiddlewareFunc {
	var first sync.Once
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			first.Do(func() { limits.KnowRoutes(list(c)) })
			c.Request().Pattern = c.Path()
			if len(c.ParamNames()) > 0 && !route.IsPlain(c.Request().URL) {
				// What keyfunc.PathValue could not tell: echo may route by another spelling of the path.
				c.SetRequest(c.Request().WithContext(route.WithValues(c.Request().Context(), values(c))))
			}
			onRefused, failed := o.answers(c)
			finish, byStatus, passed := limits.Begin(c.Response(), c.Request(), onRefused)
			switch {
			case !passed && failed != nil:
				return *failed
			case !passed:
				return nil
			case byStatus:
				return nextAndFinish(c, next, finish)
			case finish != nil:
				defer finish(http.StatusOK)
			}
			return next(c)
		}
	}
}

// answers is o.OnRefused for c, and what it has returned; both nil without one.
func (o Options) answers(c echo.Context) (func(http.ResponseWriter, *http.Request, middleware.Result), *error) {
	if o.OnRefused == nil {
		return nil, nil
	}
	var err error
	return func(_ http.ResponseWriter, _ *http.Request, result middleware.Result) {
		w := c.Response()
		w.Status = result.Status
		if err = o.OnRefused(c, result); err == nil && !w.Committed {
			w.WriteHeader(w.Status)
		}
	}, &err
}

// nextAndFinish has next answer, and tells finish how. An error is answered here, by the
// HTTPErrorHandler, as the status is what finish wants.
func nextAndFinish(c echo.Context, next echo.HandlerFunc, finish func(status int)) (err error) {
	var answered response.Response
	inner, request := c.Response().Writer, c.Request()
	w, r := answered.WatchBoth(inner, request)
	c.Response().Writer = w
	c.SetRequest(r)
	// The server removes the form's files.
	defer func() { c.Response().Writer, request.MultipartForm = inner, c.Request().MultipartForm }()
	answered.Finish(finish, func() {
		if err = next(c); err != nil {
			c.Error(err)
		}
	})
	return err
}

// values tells what echo has found in the path.
func values(c echo.Context) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		return c.Param(name), slices.Contains(c.ParamNames(), name)
	}
}

// list is what the router has.
func list(c echo.Context) (all []string) {
	for _, r := range c.Echo().Routes() {
		all = append(all, r.Method+" "+r.Path)
	}
	return all
}

// PerIP limits requests for each client address, as [middleware.PerIP] does.
func PerIP(limit limiter.Limit, options ...keyfunc.IPOption) echo.MiddlewareFunc {
	return New(middleware.Must(middleware.NewPerIP(limit, options...)))
}
