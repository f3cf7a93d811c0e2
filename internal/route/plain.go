package route

import (
	"context"
	"net/http"
	"net/url"
	"path"
)

// IsPlain reports whether there is one way to read a path: nothing in it is escaped that
// need not be, and it has no empty, "." or ".." segments. Routers differ in the others.
func IsPlain(u *url.URL) bool {
	if u.RawPath != "" || u.Path == "" || u.Path[0] != '/' {
		return false
	}
	clean := path.Clean(u.Path)
	return clean == u.Path || len(clean)+1 == len(u.Path) && u.Path[len(clean)] == '/'
}

type valuesKey struct{}

// WithValues returns a context with what a router has found for the parameters of a path
// that is not plain.
func WithValues(ctx context.Context, values func(name string) (string, bool)) context.Context {
	return context.WithValue(ctx, valuesKey{}, values)
}

// FoundBy is what r's router has found for a parameter, if it is in r's context.
func FoundBy(r *http.Request, name string) (string, bool) {
	if values, ok := r.Context().Value(valuesKey{}).(func(string) (string, bool)); ok {
		return values(name)
	}
	return "", false
}
