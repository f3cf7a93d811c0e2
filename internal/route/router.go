package route

import (
	"net/http"
	"slices"
	"strings"
)

// A Router chooses routes for requests as a router of a program with these routes would. Only one goroutine
// may use it at a time.
type Router struct {
	routes []Pattern      // the most specific first
	mux    *http.ServeMux // made by OfMux
}

// NewRouter returns a Router with these routes, written as in rules. It leaves out texts that are no route.
func NewRouter(texts []string) *Router {
	r := &Router{}
	for _, text := range texts {
		if pattern, err := ParseRule(text); err == nil {
			r.routes = append(r.routes, pattern)
		}
	}
	slices.SortStableFunc(r.routes, func(a, b Pattern) int { return slices.Compare(b.rank(), a.rank()) })
	return r
}

// Route returns the route that a router without hosts chooses: literal segments win over parameters, and
// parameters over routes for everything below. It returns the path itself if no route matches.
func (r *Router) Route(method, path string) string {
	for i := range r.routes {
		p := &r.routes[i]
		if route, ok := p.Fit(path); ok && p.Takes(method) {
			return route
		}
	}
	return path
}

// OfMux returns the route that an http.ServeMux with the routes chooses, or the path itself. It leaves out
// routes that a mux cannot have.
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

// register adds the route of a pattern, unless it conflicts with the routes of mux. A mux knows no wildcards in
// hosts, so it gets the route without the host.
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
		hosts = []string{p.Host, "[" + p.Host + "]"} // with a port, and without
	}
	for _, host := range hosts {
		func() {
			defer func() { _ = recover() }()
			mux.Handle(strings.TrimSpace(p.Method+" "+host+OfMux(path)), http.NotFoundHandler())
		}()
	}
}
