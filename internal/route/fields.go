package route

import (
	"iter"
	"net/http"
	"slices"
	"strings"
)

// ofConnection are the fields that concern one connection. A proxy does not pass them on.
var ofConnection = []string{
	"Connection", "Http2-Settings", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade",
}

// IsOfConnection reports whether a field concerns one connection.
func IsOfConnection(field string) bool { return slices.Contains(ofConnection, field) }

// Listed returns the fields of h that a proxy removes because Connection lists them.
func Listed(h http.Header) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, by := range [...]string{"Connection", "Proxy-Connection"} { // Apache reads both
			for _, line := range h[by] {
				for option := range strings.SplitSeq(line, ",") {
					field := http.CanonicalHeaderKey(strings.Trim(option, " \t"))
					if len(h[field]) > 0 && !IsOfConnection(field) && !yield(field) {
						return
					}
				}
			}
		}
	}
}

// isListed reports whether h has a field that its Connection lists.
func isListed(h http.Header) bool {
	for range Listed(h) {
		return true
	}
	return false
}

// PlainField returns the name that some servers take a field's name for. CGI reads all but letters and digits as _.
func PlainField(name string) string {
	replaced := strings.Map(func(c rune) rune {
		if c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return '-'
		}
		return c
	}, name)
	if replaced == name {
		return name
	}
	return http.CanonicalHeaderKey(replaced)
}

// overrides are the fields in which a request has a method that replaces its own, for services that want it.
var overrides = []string{"X-Http-Method", "X-Http-Method-Override", "X-Method-Override"}

// HasOtherMethod reports whether a service may read the request as one with another method, by its fields or its query.
// A form in the body may have one too.
func HasOtherMethod(r *http.Request) bool {
	for name, values := range r.Header {
		if slices.Contains(overrides, PlainField(name)) && !slices.Equal(values, []string{r.Method}) {
			return true
		}
	}
	query := strings.ToLower(r.URL.RawQuery)
	if query == "" {
		return false
	}
	isOther := func(name string) bool {
		values, clear := Query(nil, query, strings.ToLower(name))
		return !clear || slices.ContainsFunc(values, func(method string) bool { return !strings.EqualFold(method, r.Method) })
	}
	return isOther("_method") || slices.ContainsFunc(overrides, isOther)
}
