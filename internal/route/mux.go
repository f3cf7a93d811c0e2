package route

import (
	"net/http"
	"net/url"
	"strings"
)

// someSegment stands for the value of a parameter. No route should have it.
const someSegment = "~weir~"

// IsIn reports whether the pattern of a rule matches a route of mux. A mux does not list its routes, so IsIn asks for
// the routes of requests that such a route could have: to the pattern's host, or else to the given one, by each
// method, with some value for each parameter. It may miss a route below p, and a route for another host.
func (p *Pattern) IsIn(mux *http.ServeMux, host string) bool {
	hosts := []string{host, ""}
	if p.Host != "" && !strings.HasPrefix(p.Host, "*") {
		hosts = []string{p.Host, "[" + p.Host + "]"} // an IPv6 address is in brackets
	}
	for _, host := range hosts {
		for _, method := range append([]string{p.Method}, methods...) {
			// A mux redirects CONNECT to routes that it does not have.
			if !p.Takes(method) || method == "" || method == http.MethodConnect && p.Method == "" {
				continue
			}
			if p.servedBy(mux, method, host) {
				return true
			}
		}
	}
	return false
}

// servedBy reports whether mux gives a request with that method and host to a route that p matches.
func (p *Pattern) servedBy(mux *http.ServeMux, method, host string) bool {
	path := p.somePath()
	for _, below := range []string{"", "/", "/" + someSegment, "/" + someSegment + "/" + someSegment} {
		u := &url.URL{Path: Unescape(path + below), RawPath: path + below}
		_, pattern := mux.Handler(&http.Request{Method: method, Host: host, URL: u})
		if matchPath(p.Path, Parse(pattern).Path, p.Below) {
			return true
		}
	}
	return false
}

// somePath returns a path that p matches, without a slash at the end.
func (p *Pattern) somePath() string {
	var b strings.Builder
	for rest, more := p.Path, true; more; {
		var segment string
		segment, rest, more = cut(rest)
		switch {
		case parameter(segment) != literal:
			segment = someSegment
		case segment == "{$}":
			segment = ""
		}
		b.WriteString(segment)
		if more {
			b.WriteByte('/')
		}
	}
	return strings.TrimSuffix(b.String(), "/")
}
