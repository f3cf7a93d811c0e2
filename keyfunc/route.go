package keyfunc

import (
	"net/http"

	"github.com/weirgo/weir/internal/route"
)

// Route is the pattern that matched the request, as [http.Request.Pattern] has it:
// "route:GET /users/{id}". It is one counter for all clients; use Join(User, Route)
// for one per user and route, and [PathValue] for one per id.
//
// The raw path would not do: a client can spell it in many ways, and each id in it would be a key. A
// request without a pattern has no key. So Route needs a router that has already run, an adapter, or
// a limiter around an http.ServeMux.
func Route(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", ErrNoKey
	}
	return Shared.mark() + routeTag + r.Pattern, nil
}

// Method is the request's method: "method:GET". Methods that net/http has no
// constant for, "get" among them, share "method:other": a client can invent
// methods without end. Its error is always nil.
func Method(r *http.Request) (string, error) {
	if key, ok := methodKeys[r.Method]; ok {
		return key, nil
	}
	return otherMethod, nil
}

var (
	otherMethod = Shared.Mark(methodTag + "other")
	methodKeys  = map[string]string{}
)

func init() {
	for _, method := range []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace,
	} {
		methodKeys[method] = Shared.Mark(methodTag + method)
	}
}

// Host is the requested host: "host:example.com". It is in lower case, without port, brackets or
// trailing dot, and an IPv6 address is in its short form. Texts that cannot be a host share
// "host:other".
//
// It is safe if a proxy, or a ServeMux pattern with a host, accepts only hosts that you know. Otherwise
// a client can write any text into the Host header, and each text is a new key. To check, request an
// unknown host (curl -H 'Host: x.invalid'): it must not reach the limiter.
//
// For an outgoing request (package pace) with an empty r.Host, as after a redirect, it is the URL's
// host.
func Host(r *http.Request) (string, error) {
	field := r.Host
	if field == "" && r.URL != nil {
		field = r.URL.Host
	}
	host := route.Host(field)
	if host == "" {
		if text, _ := splitPort(field); text == "" || text == "." {
			return "", ErrNoKey
		}
		host = "other"
	}
	return Shared.mark() + hostTag + host, nil
}
