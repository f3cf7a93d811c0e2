// Package chilimit is for chi routers with rules that match by route.
//
// For all other rules, use package weir alone:
//
//	r.Use(weir.PerIP(weir.PerMinute(100)))
//	r.With(weir.PerIP(weir.PerSecond(2))).Get("/search", search)
//
// But chi routes a request after the middleware added with Use has run. So a rule with Match:
// weir.Route("GET /search") needs
//
//	r.Use(chilimit.New(limits))
//
// which looks the route up first. Add it behind middleware that changes the path or the method that chi
// routes by, such as CleanPath, StripSlashes and GetHead. In front of such middleware it may find
// another route than chi, and clients can evade a limit.
//
// In rules and in keyfunc.Route, a route is the whole pattern, in sub-routers too: "/v1/users/{id}",
// and "/v1/" for the "/" of a router mounted at "/v1". A sub-router inside another handler, as in
// r.Mount("/v1", auth(sub)), is hidden: all its routes are "/v1/*". Only limiters that chi's With adds
// to a route see the whole pattern. Put auth inside the sub-router.
package chilimit

import (
	"cmp"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/weirgo/weir/middleware"
)

// New returns a chi middleware that enforces limits, and looks up chi's route for them.
func New(limits *middleware.RateLimit) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		limited := limits.Handler(next)
		var known sync.Map // by root, the routers below it
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rctx := chi.RouteContext(r.Context()); rctx != nil && rctx.Routes != nil && r.URL != nil {
				routers, ok := known.Load(rctx.Routes)
				if !ok {
					found := map[string]chi.Routes{}
					limits.KnowRoutes(below(rctx.Routes, "", found))
					routers, _ = known.LoadOrStore(rctx.Routes, found)
				}
				r.Pattern = pattern(rctx, r, routers.(map[string]chi.Routes))
			}
			limited.ServeHTTP(w, r)
		})
	}
}

// below adds a router and the routers mounted in it to routers, by their paths, and returns their routes.
func below(router chi.Routes, at string, routers map[string]chi.Routes) (all []string) {
	routers[at] = router
	for _, r := range router.Routes() {
		if r.SubRoutes != nil {
			all = append(all, below(r.SubRoutes, at+mountPoint(r.Pattern), routers)...)
			continue
		}
		for method := range r.Handlers { // "*" too, beside each method
			all = append(all, method+" "+at+r.Pattern)
		}
	}
	return all
}

// mountPoint returns the path of a router that chi mounted at "/v1", "/v1/" or "/v1/*".
func mountPoint(pattern string) string { return strings.TrimRight(pattern, "/*") }

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
	rest := cmp.Or(rctx.RoutePath, r.URL.RawPath, r.URL.Path, "/") // below a mount, or as CleanPath and the like left it
	params := contexts.Get().(*chi.Context)
	defer contexts.Put(params)
	found := find(params, router, method, rest)
	if found == "" {
		// For limits in front of CleanPath. path.Clean does not undo escapes, as CleanPath may.
		rest = path.Clean("/" + rest)
		found = find(params, router, method, rest)
	}
	if found == "" {
		return ""
	}
	for i, name := range params.URLParams.Keys { // as chi will, before it calls the route's handler
		r.SetPathValue(name, params.URLParams.Values[i])
	}
	if root := at + strings.TrimSuffix(found, "/"); routers[root] != nil {
		return root + "/" // "/v1" and "/v1/" are one route
	}
	return at + found
}

// contexts are reused for chi's Find, which writes to them.
var contexts = sync.Pool{New: func() any { return chi.NewRouteContext() }}

// find returns the pattern of a path, and puts the values of the path's parameters into params, as chi will
// set them.
func find(params *chi.Context, router chi.Routes, method, path string) string {
	params.Reset()
	found := router.Find(params, method, path)
	if found == "" && method == http.MethodHead {
		return find(params, router, http.MethodGet, path) // middleware.GetHead may yet make it one
	}
	return found
}
