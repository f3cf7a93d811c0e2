package keyfunc

import (
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirgo/weir/internal/route"
)

// PathValue is the value of a parameter in the request's path: "path:id:42" for PathValue("id"), the
// path "/users/42" and the pattern "/users/{id}", or "/users/:id" in gin and echo. A parameter for the
// rest of a path has its name in the pattern: "file" in "/static/{file...}" and "/static/*file", "*" in
// "/static/*".
//
// All clients share the counter of a value. The value is what the route's handler will see, with
// percent-encoding undone, so each spelling of an id has the same key. PathValue finds it before the
// router sets it: in front of an http.ServeMux, and in chilimit, ginlimit and echolimit. There
// r.PathValue and chi.URLParam return nothing yet, and your own Func would count all ids as one.
//
// It is safe if clients may share a counter, such as a limit for each document. A client that requests
// another value each time has a new key each time: put a rule on [IP] beside it. To check, request two
// ids and compare their remaining quotas: each id must count alone.
//
// A request has no key if its route lacks the parameter, or if it has no route. The first request to a
// route that has other parameters but not this one logs a warning (code weir-no-such-parameter): the
// name may be misspelt. A path that does not fit its route, because something rewrote it, is an error.
//
// If an outer mux has a parameter of the same name, the outer parameter's value is the key: use
// different names.
//
// PathValue panics if name cannot be the name of a parameter.
func PathValue(name string) Func { return must(newPathValue(name)) }

func newPathValue(name string) (Func, error) {
	if name == "" || strings.ContainsAny(name, "/{}:$ \t") || strings.HasSuffix(name, "...") {
		return nil, fmt.Errorf("keyfunc: PathValue(%q): it is not the name of a parameter", name)
	}
	prefix := pathTag + name + ":"
	errNoFit := fmt.Errorf("keyfunc: the request's path does not fit its route, so the parameter %q is not known", name)
	var warning parameterWarning
	return func(r *http.Request) (string, error) {
		value, ok := pathValue(r, name)
		switch {
		case ok:
			warning.seen()
			return prefix + value, nil
		case slices.Contains(route.Parameters(r.Pattern), name):
			return "", errNoFit
		}
		warning.missing(r, name)
		return "", ErrNoKey
	}, nil
}

// pathValue is what name stands for in r's path. A router that has run has the last word, as
// it may have routed by another path than the request has.
func pathValue(r *http.Request, name string) (string, bool) {
	value, ok := matched(r, name)
	if r.URL != nil && !route.IsPlain(r.URL) {
		if found, there := route.FoundBy(r, name); there && !(ok && route.Unescape(found) == value) {
			if strings.Contains(r.URL.RawPath, found) {
				found = route.Unescape(found) // the router went by the path as it came
			}
			return found, true
		}
	}
	if set := valueSet(r, name); set != "" && !(ok && set == value) {
		return route.Unescape(set), true // chi's is escaped
	}
	return value, ok
}

// valueSet is r.PathValue, which panics behind an http.ServeMux for a CONNECT of some paths
// that are not clean, such as /users//: the mux gives these a pattern without its values.
func valueSet(r *http.Request, name string) (value string) {
	if r.Method == http.MethodConnect {
		defer func() { _ = recover() }()
	}
	return r.PathValue(name)
}

// matched is what name stands for in r's path, by the pattern that r is routed by.
func matched(r *http.Request, name string) (string, bool) {
	if r.Pattern == "" || r.URL == nil {
		return "", false
	}
	// As http.ServeMux does. Other routers may go by another spelling of a path that is not
	// plain: their adapters say what they found.
	text, escaped := r.URL.Path, false
	if r.URL.RawPath != "" && r.URL.EscapedPath() == r.URL.RawPath {
		text, escaped = r.URL.RawPath, true
	}
	if value, ok := route.Value(r.Pattern, text, escaped, name); ok {
		return value, true
	}
	// A path that is about to be corrected has the route of the right one: CONNECT's is not.
	clean := path.Clean("/" + text)
	if value, ok := route.Value(r.Pattern, clean, escaped, name); ok {
		return value, true
	}
	return route.Value(r.Pattern, strings.TrimSuffix(clean, "/")+"/", escaped, name)
}

// A parameterWarning tells the operator, once, of a parameter that no route has.
type parameterWarning struct{ done atomic.Bool }

// seen notes that there is such a parameter.
func (w *parameterWarning) seen() {
	if !w.done.Load() {
		w.done.Store(true)
	}
}

func (w *parameterWarning) missing(r *http.Request, name string) {
	if w.done.Load() {
		return
	}
	others := route.Parameters(r.Pattern)
	if len(others) == 0 || !w.done.CompareAndSwap(false, true) {
		return
	}
	slog.Default().LogAttrs(r.Context(), slog.LevelWarn,
		"keyfunc: a route does not have the parameter that its requests are to be counted by, so they have no "+
			"key: is its name misspelt? If the rule is for other routes, which have it, all is well.",
		slog.String("code", "weir-no-such-parameter"), slog.String("parameter", name),
		slog.String("route", r.Pattern), slog.Any("parameters", others))
}

// WithPathValues is for adapters of routers. If r's path has more than one spelling, it keeps in r's context, in
// place, how to get the value that the router found for a parameter of r.Pattern. [PathValue] then uses it. Get must
// work for as long as r does.
func WithPathValues(r *http.Request, get func(name string) (value string, found bool)) {
	if !route.IsPlain(r.URL) {
		route.KeepValues(r, get)
	}
}
