package route

import (
	"context"
	"net/http"
	"net/url"
	"path"
)

// IsPlain reports whether all routers read a path alike: it has no unnecessary escapes, and no empty, "." or
// ".." segments.
func IsPlain(u *url.URL) bool {
	if u.RawPath != "" || u.Path == "" || u.Path[0] != '/' {
		return false
	}
	clean := path.Clean(u.Path)
	return clean == u.Path || len(clean)+1 == len(u.Path) && u.Path[len(clean)] == '/'
}

type valuesKey struct{}

// WithValues returns a context with the values that a router found for the parameters of a path that is not
// plain.
func WithValues(ctx context.Context, values func(name string) (string, bool)) context.Context {
	return context.WithValue(ctx, valuesKey{}, values)
}

// FoundBy returns the value that r's router found for a parameter, if r's context has it.
func FoundBy(r *http.Request, name string) (string, bool) {
	if values, ok := r.Context().Value(valuesKey{}).(func(string) (string, bool)); ok {
		return values(name)
	}
	return "", false
}
