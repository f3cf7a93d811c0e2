// Package ginlimit is Weir's middleware for gin:
//
//	r.Use(ginlimit.PerIP(limiter.PerMinute(100)))                              // the router
//	r.GET("/search", ginlimit.PerIP(limiter.PerSecond(2)), search)             // one route
//	r.Use(ginlimit.New(middleware.Must(middleware.New(middleware.Config{...})))) // rules
//
// A route is gin's pattern, such as "/users/:id". The client's address is what
// package keyfunc says, whatever gin's TrustedProxies are: gin's default trusts
// every header, so c.ClientIP is no key for a limit.
//
// A rule with Counts goes by the status that is known when the handlers behind the limiter
// have returned: a middleware that answers for their errors belongs behind the limiter too.
package ginlimit

import (
	"bufio"
	"net"
	"net/http"
	"strings"
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
	// OnRefused answers a request that is refused, or leaves that to a middleware in front,
	// as with c.Error. Retry-After and the other header fields are set already, and the
	// status is result.Status until it sets another. The handlers behind do not run.
	// Nil: the Answer of middleware.Refusal, or a short body.
	OnRefused func(c *gin.Context, result middleware.Result)
}

// New returns limits as a gin middleware. Handlers find the decision with
// middleware.FromContext(c.Request.Context()).
func New(limits *middleware.RateLimit) gin.HandlerFunc { return NewWith(limits, Options{}) }

// NewWith is New with options.
func NewWith(limits *middleware.RateLimit, o Options) gin.HandlerFunc {
	var first sync.Once
	return func(c *gin.Context) {
		first.Do(func() { limits.KnowRoutes(list(c)) })
		c.Request.Pattern = c.FullPath()
		if len(c.Params) > 0 && !route.IsPlain(c.Request.URL) {
			// What keyfunc.PathValue could not tell: gin routes by the path that is unescaped.
			c.Request = c.Request.WithContext(route.WithValues(c.Request.Context(), values(c)))
		}
		var onRefused func(http.ResponseWriter, *http.Request, middleware.Result)
		if o.OnRefused != nil {
			onRefused = func(_ http.ResponseWriter, _ *http.Request, result middleware.Result) {
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

// next has the handlers behind run, and tells finish how the request ends.
func next(c *gin.Context, finish func(status int)) {
	w, request := &writer{ResponseWriter: c.Writer}, c.Request
	_, c.Request = w.answered.WatchBoth(c.Writer, request)
	c.Writer = w
	// The server removes the form's files.
	defer func() { c.Writer, request.MultipartForm = w.ResponseWriter, c.Request.MultipartForm }()
	w.answered.Finish(func(status int) {
		if status == http.StatusOK || w.Written() && status != http.StatusSwitchingProtocols {
			status = w.Status() // which gin may not have sent yet
		}
		finish(status)
	}, c.Next)
}

// A writer tells what gin's own does not.
type writer struct {
	gin.ResponseWriter
	answered response.Response
}

func (w *writer) Write(b []byte) (int, error)       { return w.answered.Write(b) }
func (w *writer) WriteString(s string) (int, error) { return w.answered.WriteString(s) }
func (w *writer) Flush()                            { _ = w.answered.FlushError() }
func (w *writer) Unwrap() http.ResponseWriter       { return w.ResponseWriter }

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.answered.TakeOver() }

// list is what the engine has, if it is what the server serves: a context does not tell.
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

// values tells what gin has found in the path.
func values(c *gin.Context) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := c.Params.Get(name)
		if strings.HasSuffix(c.FullPath(), "/*"+name) {
			value = strings.TrimPrefix(value, "/")
		}
		return value, ok
	}
}

// PerIP limits requests for each client address, as [middleware.PerIP] does.
func PerIP(limit limiter.Limit, options ...keyfunc.IPOption) gin.HandlerFunc {
	return New(middleware.Must(middleware.NewPerIP(limit, options...)))
}
