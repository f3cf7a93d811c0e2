package route

import (
	"net/http"
	"slices"
	"strings"
)

// A Router chooses routes for requests as a program's router would that has them. It is for
// one goroutine.
type Router struct {
	routes []Pattern
	mux    *http.ServeMux // nil until it is asked
}

// NewRouter returns one that has these routes, which rules are written with. What is none is
// left out.
func NewRouter(texts []string) *Router {
	r := &Router{}
	for _, text := range texts {
		if pattern, err := ParseRule(text); err == nil {
			r.routes = append(r.routes, pattern)
		}
	}
	return r
}

// Route is what a router that knows no hosts chooses: of the routes that match the one that
// has letters where the others have a parameter, and a parameter where they have all that is
// below, or else the path itself.
func (r *Router) Route(method, path string) string {
	best, most := path, []byte(nil)
	for i := range r.routes {
		pattern := &r.routes[i]
		if !pattern.Takes(method) {
			continue
		}
		if fit, says, ok := pattern.fit(path); ok && slices.Compare(says, most) > 0 {
			best, most = fit, says
		}
	}
	return best
}

// OfMux is what an http.ServeMux with the routes chooses, or the path itself: it is asked.
// What it can't have is left out.
func (r *Router) OfMux(request *http.Request) string {
	if r.mux == nil {
		r.mux = http.NewServeMux()
		for i := range r.routes {
			register(r.mux, &r.routes[i])
		}
	}
	if _, pattern := r.mux.Handler(request); pattern != "" {
		return pattern
	}
	return request.URL.Path
}

// register adds the route of a pattern, if it can be one beside those that are there. A host
// with a wildcard is no host to a mux.
func register(mux *http.ServeMux, p *Pattern) {
	path := p.Path
	if p.Below {
		path += "/"
	}
	hosts := []string{p.Host}
	switch {
	case strings.HasPrefix(p.Host, "*"):
		hosts = []string{""}
	case strings.Contains(p.Host, ":"):
		hosts = []string{p.Host, "[" + p.Host + "]"} // as it comes with a port, and without
	}
	for _, host := range hosts {
		func() {
			defer func() { _ = recover() }()
			mux.Handle(strings.TrimSpace(p.Method+" "+host+OfMux(path)), http.NotFoundHandler())
		}()
	}
}
