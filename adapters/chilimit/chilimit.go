// Package chilimit is for chi routers with rules that match by route.
//
// For all other rules, package middleware is chi's middleware as it is:
//
//	r.Use(middleware.PerIP(limiter.PerMinute(100)))
//	r.With(middleware.PerIP(limiter.PerSecond(2))).Get("/search", search)
//
// But chi routes a request after the middleware added with Use has run, so a rule
// with Match: middleware.Route("GET /search") needs
//
//	r.Use(chilimit.New(limits))
//
// which looks the route up first. In rules and in keyfunc.Route, a route is then
// its whole pattern, such as "/v1/users/{id}", in every sub-router.
package chilimit

import (
	"net/http"
	"path"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/weirgo/weir/middleware"
)

// New returns limits as a chi middleware that knows the route.
func New(limits *middleware.RateLimit) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		limited := limits.Handler(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rctx := chi.RouteContext(r.Context()); rctx != nil && rctx.Routes != nil && r.URL != nil {
				r.Pattern = pattern(rctx, r)
			}
			limited.ServeHTTP(w, r)
		})
	}
}

// pattern is the route that chi is going to choose, or empty if there is none.
func pattern(rctx *chi.Context, r *http.Request) string {
	method := rctx.RouteMethod
	if method == "" {
		method = r.Method
	}
	full := r.URL.RawPath
	if full == "" {
		full = r.URL.Path
	}
	if rctx.RoutePath != "" && len(rctx.RoutePatterns) == 0 {
		full = rctx.RoutePath // as middleware.StripSlashes and CleanPath leave it
	}
	if found := find(rctx.Routes, method, full); found != "" {
		return found
	}
	return find(rctx.Routes, method, path.Clean("/"+full))
}

// contexts holds what chi's Find writes to.
var contexts = sync.Pool{New: func() any { return chi.NewRouteContext() }}

func find(routes chi.Routes, method, path string) string {
	scratch := contexts.Get().(*chi.Context)
	defer contexts.Put(scratch)
	scratch.Reset()
	found := routes.Find(scratch, method, path)
	if found == "" && method == http.MethodHead {
		// middleware.GetHead may yet make it a GET.
		scratch.Reset()
		found = routes.Find(scratch, http.MethodGet, path)
	}
	return found
}
