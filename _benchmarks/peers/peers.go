// Package peers has the middleware for HTTP of other rate limiters, each with its defaults,
// by the peer's address.
package peers

import (
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	ulule "github.com/ulule/limiter/v3"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// A Quota is what a client gets: in a bucket Burst at once and one more Every so often, in
// a window of Window Burst.
type Quota struct {
	Burst int64
	Every time.Duration
}

// Window is of such a length that one hardly ever ends during a race.
const Window = 30 * 24 * time.Hour

// The quotas of a race.
var (
	Plenty = Quota{1<<28 - 1, 10 * time.Millisecond} // is never used up
	Single = Quota{1, Window}                        // is, by one request
)

func (q Quota) perSecond() float64 { return float64(time.Second) / float64(q.Every) }

// A Peer is a library's middleware.
type Peer struct {
	Name, Module, About string

	// Wrap puts next behind a limiter, which lives as long as the process.
	Wrap func(q Quota, next http.Handler) (http.Handler, error)

	// Frame puts next behind what Wrap does without the limiter. Nil: that is next itself.
	Frame func(next http.Handler) http.Handler
}

// Names that goals speak of.
const (
	GoLimiter = "go-limiter"
	Echo      = "echo"
)

// All are the peers. To add one, add it here.
var All = []Peer{
	{Name: GoLimiter, Module: "github.com/sethvargo/go-limiter", Wrap: wrapGoLimiter,
		About: "httplimit on a memorystore: a fixed window"},
	{Name: "httprate", Module: "github.com/go-chi/httprate", Wrap: wrapHTTPRate,
		About: "LimitBy the address: a sliding window"},
	{Name: "ulule", Module: "github.com/ulule/limiter/v3", Wrap: wrapUlule,
		About: "the middleware for net/http on a memory store: a fixed window"},
	{Name: "tollbooth", Module: "github.com/didip/tollbooth/v8", Wrap: wrapTollbooth,
		About: "HTTPMiddleware: a token bucket"},
	{Name: Echo, Module: "github.com/labstack/echo/v4", Wrap: wrapEcho, Frame: FrameEcho,
		About: "echo's own RateLimiter: a token bucket, which sets no fields"},
}

// Version is that of a module in this program, or empty.
func Version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return ""
}

func wrapGoLimiter(q Quota, next http.Handler) (http.Handler, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.Burst), Interval: Window})
	if err != nil {
		return nil, err
	}
	m, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return m.Handle(next), nil
}

func wrapHTTPRate(q Quota, next http.Handler) (http.Handler, error) {
	return httprate.LimitBy(int(q.Burst), Window, func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	})(next), nil
}

func wrapUlule(q Quota, next http.Handler) (http.Handler, error) {
	l := ulule.New(ululememory.NewStore(), ulule.Rate{Period: Window, Limit: q.Burst})
	return ululehttp.NewMiddleware(l).Handler(next), nil
}

func wrapTollbooth(q Quota, next http.Handler) (http.Handler, error) {
	l := tollbooth.NewLimiter(q.perSecond(), &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: Window})
	l.SetBurst(int(q.Burst)).SetIPLookup(tollboothlimiter.IPLookup{Name: "RemoteAddr"})
	return tollbooth.HTTPMiddleware(l)(next), nil
}

func wrapEcho(q Quota, next http.Handler) (http.Handler, error) {
	store := echomiddleware.NewRateLimiterMemoryStoreWithConfig(echomiddleware.RateLimiterMemoryStoreConfig{
		Rate: rate.Limit(q.perSecond()), Burst: int(q.Burst), ExpiresIn: Window,
	})
	return WithEcho(next, echomiddleware.RateLimiter(store)), nil
}

// WithEcho is an Echo with one route and one middleware.
func WithEcho(next http.Handler, m echo.MiddlewareFunc) http.Handler {
	e := echo.New()
	e.GET("/", echo.WrapHandler(next), m)
	return e
}

// FrameEcho is an Echo with a middleware that does nothing.
func FrameEcho(next http.Handler) http.Handler {
	return WithEcho(next, func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return next(c) }
	})
}

// Nowhere is a ResponseWriter that keeps the header and the status.
type Nowhere struct {
	Fields http.Header
	Status int
}

// Header is the response's.
func (w *Nowhere) Header() http.Header { return w.Fields }

// Write writes to nowhere.
func (w *Nowhere) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader keeps the status.
func (w *Nowhere) WriteHeader(status int) { w.Status = status }

// Key is the key of a client, an address. The first 2^24 differ.
func Key(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }
