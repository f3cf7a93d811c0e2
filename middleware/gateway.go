package middleware

import (
	"net/http"
	"sync"

	"github.com/weirgo/weir/internal/route"
)

// Gateway is [RateLimit.Handler] for a program without routes of its own, such as one around
// httputil.ReverseProxy. It routes a request by the patterns of the rules: those of ByRoute, and of each
// [Route] in Match, Allow and package shed's Exempt. A [MatchFunc] has no patterns. Gateway sets
// r.Pattern, without method and host. [RateLimit.Reconfigure] changes the routes with the rules.
//
// Gateway ignores a slash at the end of a path, parameters (/a;b=c), and empty and dot segments, as the
// service behind may ignore them. If the service ignores upper and lower case, set foldCase.
func (l *RateLimit) Gateway(next http.Handler, foldCase bool) http.Handler {
	if next == nil {
		panic("middleware: Gateway needs a next handler")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := l.rules.Load()
		set.gateway.of(set, foldCase).Set(r)
		if behind, end := l.begin(set, w, r, r, nil, nil); behind != nil {
			serve(next, w, behind, end)
		}
	})
}

// gatewayRoutes are the routes of a ruleset, with letters as they are and folded. They are made
// when a gateway first needs them.
type gatewayRoutes [2]struct {
	once   sync.Once
	routes *route.Routes
}

func (g *gatewayRoutes) of(set *ruleset, foldCase bool) *route.Routes {
	made := &g[0]
	if foldCase {
		made = &g[1]
	}
	made.once.Do(func() {
		var patterns []route.Pattern
		for _, given := range set.routes() {
			patterns = append(patterns, given.pattern)
		}
		made.routes = route.NewRoutes(patterns, foldCase)
	})
	return made.routes
}
