// Package ginlimit is Weir's middleware for gin:
//
//	r.Use(ginlimit.PerIP(limiter.PerMinute(100)))                              // the router
//	r.GET("/search", ginlimit.PerIP(limiter.PerSecond(2)), search)             // one route
//	r.Use(ginlimit.New(middleware.Must(middleware.New(middleware.Config{...})))) // rules
//
// A route is gin's pattern, such as "/users/:id". Package keyfunc finds the client's address, whatever
// gin's TrustedProxies are: gin's default trusts every header, so do not use c.ClientIP as a key.
//
// A rule with Counts uses the status that is set when the handlers behind the limiter return. So add a
// middleware that answers the handlers' errors after the limiter.
package ginlimit

import (
	"bufio"
	"cmp"
	"net"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// Options is what [NewWith] takes.
type Options struct {
	// OnRefused answers a refused request, or leaves the answer to a middleware in front, with c.Error
	// for example. The header fields are set already, Retry-After included. The status is
	// result.Status unless OnRefused sets another. The handlers behind the limiter do not run. Nil: the
	// Answer of middleware.Refusal, or a short body.
	OnRefused func(c *gin.Context, result middleware.Result)
}

// New returns a gin middleware for limits. In handlers, middleware.FromContext(c.Request.Context())
// returns the decision.
func New(limits *middleware.RateLimit) gin.HandlerFunc { return NewWith(limits, Options{}) }

// NewWith is New with options.
func NewWith(limits *middleware.RateLimit, o Options) gin.HandlerFunc {
	var first sync.Once
	return func(c *gin.Context) {
		first.Do(func() { limits.KnowRoutes(list(c)) })
		c.Request.Pattern = c.FullPath()
		if len(c.Params) > 0 && !route.IsPlain(c.Request.URL) {
			// For keyfunc.PathValue: gin routes by the unescaped path.
			route.KeepValues(c.Request, c.Params.Get)
		}
		var onRefused func(middleware.Result)
		if o.OnRefused != nil {
			onRefused = func(result middleware.Result) {
				c.Abort()
				c.Status(result.Status)
				o.OnRefused(c, result)
			}
		}
		finish, byStatus, passed := limits.Begin(c.Writer, c.Request, onRefused)
		switch {
		case !passed:
			c.Abort()
		case byStatus:
			next(c, finish)
		case finish != nil:
			defer finish(http.StatusOK)
			c.Next()
		}
	}
}

// next runs the handlers behind, and calls finish with the status.
func next(c *gin.Context, finish func(status int)) {
	inner, request := c.Writer, c.Request
	answered, _, r := response.WatchBoth(inner, request)
	c.Writer, c.Request = &writer{inner, answered}, r
	// The server removes the files of the form.
	defer func() { c.Writer, request.MultipartForm = inner, cmp.Or(c.Request.MultipartForm, r.MultipartForm) }()
	answered.Finish(func(status int) {
		set := inner.Status() // gin may not have sent it yet
		if response.IsFinal(set) && (status == http.StatusOK || inner.Written() && status != http.StatusSwitchingProtocols) {
			status = set
		}
		finish(status)
	}, c.Next)
}

// A writer is gin's writer, and watches the answer.
type writer struct {
	gin.ResponseWriter
	answered *response.Response
}

func (w *writer) Write(b []byte) (int, error)       { return w.answered.Write(b) }
func (w *writer) WriteString(s string) (int, error) { return w.answered.WriteString(s) }
func (w *writer) Flush()                            { _ = w.answered.FlushError() }
func (w *writer) Unwrap() http.ResponseWriter       { return w.ResponseWriter }

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.answered.TakeOver() }

// list returns the engine's routes, if the server serves the engine itself: a context has no engine.
func list(c *gin.Context) (all []string) {
	if server, ok := c.Request.Context().Value(http.ServerContextKey).(*http.Server); ok {
		if engine, ok := server.Handler.(*gin.Engine); ok {
			for _, r := range engine.Routes() {
				all = append(all, r.Method+" "+r.Path)
			}
		}
	}
	return all
}

// PerIP limits requests for each client address, as [middleware.PerIP] does.
func PerIP(limit limiter.Limit, options ...keyfunc.IPOption) gin.HandlerFunc {
	return New(middleware.Must(middleware.NewPerIP(limit, options...)))
}
