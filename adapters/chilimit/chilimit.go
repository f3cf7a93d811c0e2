// Package chilimit is for chi routers with rules that match by route.
//
// For all other rules, package middleware is chi's middleware as it is:
//
//	r.Use(middleware.PerIP(limiter.PerMinute(100)))
//	r.With(middleware.PerIP(limiter.PerSecond(2))).Get("/search", search)
//
// But chi routes a request after the middleware added with Use has run. So a rule with Match:
// middleware.Route("GET /search") needs
//
//	r.Use(chilimit.New(limits))
//
// which looks the route up first. Add it behind middleware that changes the path or the method that chi
// routes by, such as CleanPath, StripSlashes and GetHead. In front of them it may see another route than
// chi will, and clients can evade a limit.
//
// In rules and in keyfunc.Route, a route is its whole pattern in every sub-router: "/v1/users/{id}", and
// "/v1/" for the "/" of a router mounted at "/v1". A sub-router inside another handler, as in
// r.Mount("/v1", auth(sub)), is hidden: all its routes are "/v1/*", except for limits added With. Put
// auth inside the sub-router.
package chilimit

import (
	"cmp"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/middleware"
)

// New returns a chi middleware for limits that knows the route.
func New(limits *middleware.RateLimit) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		limited := limits.Handler(next)
		var known sync.Map // by root, the routers below it
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rctx := chi.RouteContext(r.Context()); rctx != nil && rctx.Routes != nil && r.URL != nil {
				routers, ok := known.Load(rctx.Routes)
				if !ok {
					routers, _ = known.LoadOrStore(rctx.Routes, below(rctx.Routes, "", map[string]chi.Routes{}))
					limits.KnowRoutes(list(rctx.Routes))
				}
				r.Pattern = pattern(rctx, r, routers.(map[string]chi.Routes))
			}
			limited.ServeHTTP(w, r)
		})
	}
}

// below adds a router and the routers mounted in it to routers, by their paths.
func below(router chi.Routes, at string, routers map[string]chi.Routes) map[string]chi.Routes {
	routers[at] = router
	for _, r := range router.Routes() {
		if r.SubRoutes != nil {
			below(r.SubRoutes, at+mountPoint(r.Pattern), routers)
		}
	}
	return routers
}

// list returns the routes of a router and of the routers mounted in it.
func list(router chi.Routes) (all []string) {
	_ = chi.Walk(router, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		all = append(all, method+" "+pattern)
		return nil
	})
	return all
}

// mountPoint returns the path of a router that chi mounted at "/v1", "/v1/" or "/v1/*".
func mountPoint(pattern string) string {
	return strings.TrimSuffix(strings.TrimSuffix(pattern, "*"), "/")
}

// pattern returns the route that chi has chosen or will choose, or the empty string if there is none.
func pattern(rctx *chi.Context, r *http.Request, routers map[string]chi.Routes) string {
	at, whole := "", ""
	for _, p := range rctx.RoutePatterns {
		at, whole = at+mountPoint(p), at+p
	}
	router, ok := routers[at]
	if !ok {
		return whole // the middleware belongs to a single route
	}
	method := cmp.Or(rctx.RouteMethod, r.Method)
	asked := cmp.Or(r.URL.RawPath, r.URL.Path, "/")
	rest := cmp.Or(rctx.RoutePath, asked) // the path below a mount, or as CleanPath and the like left it
	into := r
	if rest == asked && route.IsPlain(r.URL) {
		into = nil // keyfunc.PathValue reads the path itself
	}
	found := find(router, method, rest, into)
	if found == "" {
		// For limits in front of CleanPath. path.Clean does not undo escapes, as CleanPath may.
		found = find(router, method, path.Clean("/"+rest), r)
	}
	if found == "" {
		return ""
	}
	if root := at + strings.TrimSuffix(found, "/"); routers[root] != nil {
		return root + "/" // "/v1" and "/v1/" are one route
	}
	return at + found
}

// contexts are reused for chi's Find, which writes to them.
var contexts = sync.Pool{New: func() any { return chi.NewRouteContext() }}

// find returns the pattern of a path. If into is not nil, it gets the values of the path's parameters, as
// chi will set them.
func find(routes chi.Routes, method, path string, into *http.Request) string {
	scratch := contexts.Get().(*chi.Context)
	defer contexts.Put(scratch)
	scratch.Reset()
	found := routes.Find(scratch, method, path)
	if found == "" && method == http.MethodHead {
		return find(routes, http.MethodGet, path, into) // middleware.GetHead may yet make it one
	}
	if into != nil && found != "" {
		for i, name := range scratch.URLParams.Keys {
			into.SetPathValue(name, scratch.URLParams.Values[i])
		}
	}
	return found
}
