// Package ginlimit is Weir's middleware for gin:
//
//	r.Use(ginlimit.PerIP(weir.PerMinute(100)))                  // the router
//	r.GET("/search", ginlimit.PerIP(weir.PerSecond(2)), search) // one route
//	r.Use(ginlimit.New(weir.Must(weir.New(weir.Config{...}))))  // rules
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
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"

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
// returns the decision, with Config.Results.
func New(limits *middleware.RateLimit) gin.HandlerFunc { return NewWith(limits, Options{}) }

// NewWith is New with options.
func NewWith(limits *middleware.RateLimit, o Options) gin.HandlerFunc {
	var first sync.Once
	return func(c *gin.Context) {
		first.Do(func() { limits.KnowRoutes(list(c)) })
		c.Request.Pattern = c.FullPath()
		if len(c.Params) > 0 {
			keyfunc.WithPathValues(c.Request, c.Params.Get) // gin routes by the unescaped path
		}
		var onRefused func(middleware.Result)
		if o.OnRefused != nil {
			onRefused = func(result middleware.Result) {
				c.Abort()
				c.Status(result.Status)
				o.OnRefused(c, result)
			}
		}
		if entered := limits.Enter(c.Writer, c.Request, onRefused); entered != nil {
			next(c, entered)
		} else {
			c.Abort()
		}
	}
}

// next runs the handlers behind.
func next(c *gin.Context, entered *middleware.Entered) {
	inner, panics := c.Writer, true
	if entered.Writer != inner {
		c.Writer = &writer{inner, entered.Writer}
	}
	c.Request = entered.Request
	defer func() {
		c.Writer = inner
		entered.Request.MultipartForm = cmp.Or(c.Request.MultipartForm, entered.Request.MultipartForm)
		entered.End(status(inner, panics))
	}()
	c.Next()
	panics = false
}

// status returns the status that gin sends, or has sent past the limiter's writer.
func status(w gin.ResponseWriter, panics bool) int {
	if panics && !w.Written() {
		return http.StatusInternalServerError
	}
	return max(http.StatusOK, w.Status()) // an early hint is no answer
}

// A writer is gin's writer, and writes through the limiter's.
type writer struct {
	gin.ResponseWriter
	watched http.ResponseWriter
}

// sent returns the limiter's writer, which sees the status that gin sends with the first bytes.
func (w *writer) sent() http.ResponseWriter {
	w.watched.WriteHeader(w.Status())
	return w.watched
}

func (w *writer) Write(b []byte) (int, error)       { return w.sent().Write(b) }
func (w *writer) WriteString(s string) (int, error) { return io.WriteString(w.sent(), s) }
func (w *writer) Flush()                            { _ = http.NewResponseController(w.sent()).Flush() }
func (w *writer) Unwrap() http.ResponseWriter       { return w.ResponseWriter }

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.watched).Hijack()
}

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
