package route

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// IsPlain reports whether all routers read a path alike: it has no unnecessary escapes, and no empty, "." or
// ".." segments.
func IsPlain(u *url.URL) bool {
	return u.RawPath == "" && strings.HasPrefix(u.Path, "/") && clean(u.Path) == u.Path
}

type valuesKey struct{}

// foundValues are the values of a route's parameters in a path.
type foundValues struct {
	pattern string
	of      func(name string) (string, bool)
}

// KeepValues keeps in r's context the values that its router found for the parameters of a path that is not plain.
// The route is r.Pattern.
func KeepValues(r *http.Request, values func(name string) (string, bool)) {
	*r = *r.WithContext(context.WithValue(r.Context(), valuesKey{}, foundValues{r.Pattern, values}))
}

// FoundBy returns the value that r's router found for a parameter, if r's context has it.
func FoundBy(r *http.Request, name string) (string, bool) {
	found, ok := r.Context().Value(valuesKey{}).(foundValues)
	if !ok {
		return "", false
	}
	value, ok := found.of(name)
	if strings.HasSuffix(found.pattern, "/*"+name) { // in gin the rest of a path begins with its slash
		value = strings.TrimPrefix(value, "/")
	}
	return value, ok
}
