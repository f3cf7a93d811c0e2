// Package echo5limit is Weir's middleware for echo v5:
//
//	e.Use(echo5limit.PerIP(weir.PerMinute(100)))                  // the router
//	e.GET("/search", search, echo5limit.PerIP(weir.PerSecond(2))) // one route
//	e.Use(echo5limit.New(weir.Must(weir.New(weir.Config{...}))))  // rules
//
// A route is echo's pattern, such as "/users/:id". Middleware added with e.Pre runs before routing, so
// it does not know the route. Package keyfunc finds the client's address, whatever echo's IPExtractor
// is.
//
// A rule with Counts needs the status of the answer. So if such a rule applies to a request, the
// limiter itself passes an error of the handlers to the HTTPErrorHandler. It also returns the error to
// the middleware in front, so the HTTPErrorHandler gets the error twice. It must ignore a response that
// is committed, as echo's own does.
package echo5limit

import (
	"cmp"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v5"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// Options is what [NewWith] takes.
type Options struct {
	// OnRefused answers a refused request, or returns an error for echo's HTTPErrorHandler, such as
	// echo.NewHTTPError(result.Status). The header fields are set already, Retry-After included. The
	// status is result.Status unless OnRefused sets another. Nil: the Answer of middleware.Refusal, or
	// a short body.
	OnRefused func(c *echo.Context, result middleware.Result) error
}

// New returns an echo middleware for limits. In handlers, middleware.FromContext(c.Request().Context())
// returns the decision, with Config.Results.
func New(limits *middleware.RateLimit) echo.MiddlewareFunc { return NewWith(limits, Options{}) }

// NewWith is New with options.
func NewWith(limits *middleware.RateLimit, o Options) echo.MiddlewareFunc {
	var first sync.Once
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			first.Do(func() { limits.KnowRoutes(list(c)) })
			c.Request().Pattern = c.Path()
			if values := c.PathValues(); len(values) > 0 { // echo may route by another spelling of the path
				keyfunc.WithPathValues(c.Request(), values.Get)
			}
			onRefused, failed := o.answers(c)
			entered := limits.Enter(writer{c.Response()}, c.Request(), onRefused)
			if entered == nil {
				return *failed
			}
			return nextAndEnd(c, next, entered)
		}
	}
}

// A writer reports whether echo has answered.
type writer struct{ http.ResponseWriter }

func (w writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w writer) Written() bool {
	r, err := echo.UnwrapResponse(w.ResponseWriter)
	return err == nil && r.Committed
}

var none error // which Weir's own answers return

// answers returns o.OnRefused for c, or nil, and a pointer to its error.
func (o Options) answers(c *echo.Context) (func(middleware.Result), *error) {
	if o.OnRefused == nil {
		return nil, &none
	}
	var err error
	return func(result middleware.Result) {
		inner := c.Response()
		var w *echo.Response
		if w, err = echo.UnwrapResponse(inner); err != nil {
			return // so echo answers 500
		}
		w.Status = result.Status
		answered := &answer{ResponseWriter: inner}
		c.SetResponse(answered)
		defer c.SetResponse(inner)
		if err = o.OnRefused(c, result); err == nil && !answered.begun && !w.Committed {
			inner.WriteHeader(w.Status)
		}
	}, &err
}

// An answer knows whether it has begun, which echo does not know while gzip holds it back.
type answer struct {
	http.ResponseWriter
	begun bool
}

func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	a.begun = a.begun || status >= http.StatusOK
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// nextAndEnd calls next. An error is answered before the end, so that its status counts.
func nextAndEnd(c *echo.Context, next echo.HandlerFunc, entered *middleware.Entered) (err error) {
	inner, status := c.Response(), http.StatusInternalServerError // of a panic
	watched := entered.Writer != http.ResponseWriter(writer{inner})
	if watched {
		c.SetResponse(entered.Writer)
	}
	c.SetRequest(entered.Request)
	defer func() {
		c.SetResponse(inner)
		entered.Request.MultipartForm = cmp.Or(c.Request().MultipartForm, entered.Request.MultipartForm)
		entered.End(status)
	}()
	if err = next(c); err != nil && watched {
		c.Echo().HTTPErrorHandler(c, err)
	}
	status = http.StatusOK
	return err
}

// list returns the routes of the router.
func list(c *echo.Context) (all []string) {
	for _, r := range c.Echo().Router().Routes() {
		all = append(all, strings.TrimSpace(strings.TrimPrefix(r.Method, echo.RouteAny)+" "+r.Path))
	}
	return all
}

// PerIP limits requests for each client address, as [middleware.PerIP] does.
func PerIP(limit limiter.Limit, options ...keyfunc.IPOption) echo.MiddlewareFunc {
	return New(middleware.Must(middleware.NewPerIP(limit, options...)))
}
