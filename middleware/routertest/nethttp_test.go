package routertest

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirgo/weir/internal/leak"
)

func TestMain(m *testing.M) { leak.VerifyMain(m) }

// One mux has all routes; the limits of a group are around each of them.
func TestServeMux(t *testing.T) {
	Run(t, Router{Unlisted: true, Pattern: pattern, Build: func(app App) http.Handler {
		mux := http.NewServeMux()
		for _, group := range app.Groups {
			flat(mux, group, "", nil)
		}
		routes(mux, "", app.Routes, nil)
		return front(app, mux)
	}})
}

func flat(mux *http.ServeMux, group Group, prefix string, outer []Limit) {
	limits := slices.Concat(outer, group.Limits)
	routes(mux, prefix+group.Prefix, group.Routes, limits)
	for _, sub := range group.Groups {
		flat(mux, sub, prefix+group.Prefix, limits)
	}
}

// Every group is a mux of its own, whose patterns have the whole path.
func TestServeMuxInServeMux(t *testing.T) {
	Run(t, Router{Nested: true, Unlisted: true, Pattern: pattern,
		Build: func(app App) http.Handler { return front(app, nested("", app.Group)) }})
}

func nested(prefix string, group Group) *http.ServeMux {
	mux := http.NewServeMux()
	routes(mux, prefix, group.Routes, nil)
	for _, sub := range group.Groups {
		mux.Handle(prefix+sub.Prefix+"/", limited(nested(prefix+sub.Prefix, sub), sub.Limits))
	}
	return mux
}

// pattern spells a path for http.ServeMux, where "/" alone matches every path.
func pattern(path string) string {
	if path == "/" {
		return "/{$}"
	}
	if below, ok := strings.CutSuffix(path, "/*"); ok {
		return below + "/{rest...}"
	}
	return path
}

func routes(mux *http.ServeMux, prefix string, routes []Route, outer []Limit) {
	for _, route := range routes {
		pattern := strings.TrimPrefix(route.Method+" "+prefix+route.Path, " ")
		mux.Handle(pattern, limited(route.Handler, slices.Concat(outer, route.Limits)))
	}
}

// front returns mux behind the limits of the whole router.
func front(app App, mux *http.ServeMux) http.Handler {
	handler := limited(mux, app.Limits)
	if app.Authenticate == nil {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(app.Authenticate(r)))
	})
}

func limited(handler http.Handler, limits []Limit) http.Handler {
	for _, limit := range slices.Backward(limits) {
		handler = limit.Rules.Handler(handler)
	}
	return handler
}
