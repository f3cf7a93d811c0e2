package keyfunc

import (
	"net/http"
	"strings"
)

// Route is the pattern that matched the request, as [http.Request.Pattern] has it:
// "route:GET /users/{id}". It is one counter for everybody; use Join(User, Route)
// for one per user and route, and [PathValue] for one per id.
//
// The raw path would not do: a client can spell it in many ways, and every id in
// it would be a key. A request without a pattern has no key, so Route needs a
// router that has already run, an adapter, or a limiter around an http.ServeMux.
func Route(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", ErrNoKey
	}
	return sharedMark + routeTag + r.Pattern, nil
}

// Method is the request's method: "method:GET". Methods that net/http has no
// constant for, "get" among them, share "method:other": a client can invent
// methods without end. Its error is always nil.
func Method(r *http.Request) (string, error) {
	switch r.Method {
	case http.MethodGet:
		return sharedMark + methodTag + http.MethodGet, nil
	case http.MethodHead:
		return sharedMark + methodTag + http.MethodHead, nil
	case http.MethodPost:
		return sharedMark + methodTag + http.MethodPost, nil
	case http.MethodPut:
		return sharedMark + methodTag + http.MethodPut, nil
	case http.MethodPatch:
		return sharedMark + methodTag + http.MethodPatch, nil
	case http.MethodDelete:
		return sharedMark + methodTag + http.MethodDelete, nil
	case http.MethodConnect:
		return sharedMark + methodTag + http.MethodConnect, nil
	case http.MethodOptions:
		return sharedMark + methodTag + http.MethodOptions, nil
	case http.MethodTrace:
		return sharedMark + methodTag + http.MethodTrace, nil
	}
	return sharedMark + methodTag + "other", nil
}

// Host is the host the request asks for, in lower case, without port, brackets or
// trailing dot: "host:example.com".
//
// It is safe when something in front of the limiter answers only to hosts you
// know: a proxy, a ServeMux pattern with a host. Otherwise the client writes what
// it likes in the Host header, and every new host is a new key. To check, ask for
// a host you do not have (curl -H 'Host: x.invalid'): it must not reach the limiter.
func Host(r *http.Request) (string, error) {
	host, _ := splitPort(r.Host)
	host = strings.TrimSuffix(host, ".")
	if host == "" {
		return "", ErrNoKey
	}
	return sharedMark + hostTag + strings.ToLower(host), nil
}
