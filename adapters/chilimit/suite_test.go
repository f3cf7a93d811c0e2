package chilimit_test

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/weirgo/weir/adapters/chilimit"
	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/middleware/routertest"
)

func TestMain(m *testing.M) { leak.VerifyMain(m) }

// A shape is a way to write an App for chi.
type shape struct {
	front []func(http.Handler) http.Handler // in front of everything
	plain bool                              // middleware.Handler as it is, not chilimit.New
	mount bool                              // groups are mounted routers
}

func TestChi(t *testing.T) {
	for name, shape := range map[string]shape{
		"Route":                      {},
		"Mount":                      {mount: true},
		"behind StripSlashes":        {front: chi.Middlewares{chimiddleware.StripSlashes}},
		"behind CleanPath":           {front: chi.Middlewares{chimiddleware.CleanPath}},
		"behind GetHead":             {front: chi.Middlewares{chimiddleware.GetHead}},
		"behind all three, mounted":  {front: chi.Middlewares{chimiddleware.CleanPath, chimiddleware.StripSlashes, chimiddleware.GetHead}, mount: true},
		"with middleware.Handler":    {plain: true},
		"with middleware.Handler, 2": {plain: true, mount: true, front: chi.Middlewares{chimiddleware.CleanPath}},
	} {
		t.Run(name, func(t *testing.T) {
			routertest.Run(t, routertest.Router{Build: shape.build, Unrouted: shape.plain})
		})
	}
}

func (s shape) build(app routertest.App) http.Handler {
	r := chi.NewRouter()
	r.Use(s.front...)
	if app.Authenticate != nil {
		r.Use(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r.WithContext(app.Authenticate(r)))
			})
		})
	}
	r.Use(s.limits(app.Limits)...)
	s.fill(r, app.Group)
	return r
}

func (s shape) fill(r chi.Router, g routertest.Group) {
	for _, route := range g.Routes {
		limited := r.With(s.limits(route.Limits)...)
		if route.Method == "" {
			limited.Handle(route.Path, route.Handler)
		} else {
			limited.Method(route.Method, route.Path, route.Handler)
		}
	}
	for _, group := range g.Groups {
		sub := chi.NewRouter()
		sub.Use(s.limits(group.Limits)...)
		s.fill(sub, group)
		if s.mount {
			r.Mount(group.Prefix, sub)
			continue
		}
		r.Route(group.Prefix, func(r chi.Router) {
			r.Use(s.limits(group.Limits)...)
			s.fill(r, group)
		})
	}
}

func (s shape) limits(all []routertest.Limit) []func(http.Handler) http.Handler {
	var handlers []func(http.Handler) http.Handler
	for _, limit := range all {
		if s.plain {
			handlers = append(handlers, limit.Rules.Handler)
		} else {
			handlers = append(handlers, chilimit.New(limit.Rules))
		}
	}
	return handlers
}
