package middleware

import (
	"cmp"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/nearest"
	"github.com/weirgo/weir/internal/route"
)

// A rule for a route that does not exist never applies, and a tier that no rule has means no tier. So a
// misspelt name turns a limit off. New cannot see that, so requests are checked, and a warning is logged.

// The number of warnings is bounded, as all names of a configuration or of authentication may be wrong.
const (
	mostAbsent  = 8 // routes in warnings, for each change of the rules
	mostUnknown = 8 // tiers and rules in warnings, in the life of a limiter
	mostRouters = 64
	longestName = 64 // logged bytes of a tier or a rule
)

// A router contains the limiter, and knows its routes.
type router interface {
	// has reports whether the router can route a request by a rule's pattern. If not, it returns the
	// route that it uses instead, or the nearest one.
	has(p *route.Pattern, r *http.Request) (ok bool, instead string)

	// is reports whether other is the same router, or has the same routes.
	is(other router) bool
}

// KnowRoutes gives l the routes of its router, such as "GET /users/{id}", or "/users/{id}" for all
// methods. It logs a warning for a rule whose route does not exist. Adapters call it before the first
// request. Without patterns it does nothing.
func (l *RateLimit) KnowRoutes(patterns []string) {
	if len(patterns) > 0 {
		l.know(listOf(slices.Sorted(slices.Values(patterns))))
	}
}

func (l *RateLimit) know(r router) {
	l.changing.Lock()
	defer l.changing.Unlock()
	var all []router
	if known := l.routers.Load(); known != nil {
		all = *known
	}
	// A limiter around every route of a router gets the same routes each time.
	if len(all) == mostRouters || slices.ContainsFunc(all, r.is) {
		return
	}
	all = append(slices.Clip(all), r)
	l.routers.Store(&all)
}

func (set *ruleset) vetRoutes(routers []router, r *http.Request) {
	absent := 0
	for _, given := range set.routes() {
		if !set.notices.isNew(given.rule, given.text) {
			continue
		}
		found, instead := false, ""
		for i := 0; i < len(routers) && !found; i++ {
			var other string
			found, other = routers[i].has(&given.pattern, r)
			instead = cmp.Or(instead, other)
		}
		if found {
			continue
		}
		if absent++; absent > mostAbsent {
			continue
		}
		warn(set.Logger, "weir-no-such-route",
			"weir: the router does not have the route of a rule, so the rule never applies: is the route misspelt? "+
				"Ignore this if the route is added later, exists for another host, or is inside a handler with a limiter of its own",
			slog.String("rule", given.rule), slog.String("route", given.text), slog.String("nearest", instead))
	}
	if absent > mostAbsent {
		warn(set.Logger, "weir-no-such-route", "weir: more rules have routes that the router does not have", slog.Int("rules", absent-mostAbsent))
	}
}

// A givenRoute is a pattern in a Config.
type givenRoute struct {
	rule, text string
	pattern    route.Pattern
}

// configAllow is givenRoute.rule for Config.Allow.
const configAllow = "Config.Allow"

// routes returns the patterns of ByRoute, and of each Match, Config.Allow and Config.Overload that knows
// its patterns, if they need a route.
func (set *ruleset) routes() (all []givenRoute) {
	add := func(rule string, texts ...string) {
		for _, text := range texts {
			if p, err := route.ParseRule(text); err == nil && !p.IsForAll() {
				all = append(all, givenRoute{rule, text, p})
			}
		}
	}
	matched := func(rule string, match any) { add(rule, route.PatternsOf(match)...) }
	for _, r := range set.all {
		if r.info.Route != "" {
			add(r.Name, r.info.Route)
		}
		matched(r.Name, r.Match)
	}
	matched(configAllow, set.Allow)
	matched("Config.Overload", set.Overload)
	return all
}

// gatewayRoutes returns the routes that Gateway routes requests by.
func (set *ruleset) gatewayRoutes(foldCase bool) *route.Routes {
	var patterns, exempt []route.Pattern
	for _, given := range set.routes() {
		if given.rule == configAllow {
			exempt = append(exempt, given.pattern)
		} else {
			patterns = append(patterns, given.pattern)
		}
	}
	return route.NewRoutes(patterns, exempt, foldCase)
}

// A listed router lists its routes.
type listed struct {
	patterns []string
	routes   []route.Pattern
}

func listOf(patterns []string) *listed {
	l := &listed{patterns: patterns}
	for _, text := range patterns {
		l.routes = append(l.routes, route.Parse(text))
	}
	return l
}

func (l *listed) is(other router) bool {
	o, ok := other.(*listed)
	return ok && slices.Equal(l.patterns, o.patterns)
}

func (l *listed) has(p *route.Pattern, _ *http.Request) (bool, string) {
	wanted := *p
	wanted.Host = "" // these routers do not know hosts
	for i := range l.routes {
		if r := &l.routes[i]; wanted.Matches(cmp.Or(r.Method, wanted.Method), "", r) {
			return true, ""
		}
	}
	method := cmp.Or(p.Method, "GET") // listed patterns have a method
	return false, nearest.Of(method+" "+p.Path, l.patterns)
}

// A muxed router is an http.ServeMux. It lists no routes, but returns the route of a request.
type muxed struct{ *http.ServeMux }

var methods = []string{
	http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodHead, http.MethodOptions, http.MethodConnect, http.MethodTrace,
}

func (m muxed) is(other router) bool { return other == router(m) }

func (m muxed) has(p *route.Pattern, r *http.Request) (bool, string) {
	if p.Below {
		return true, "" // the routes below have unknown names
	}
	asked := methods
	if p.Method != "" {
		asked = []string{p.Method}
	}
	hosts := []string{r.Host, ""}
	if p.Host != "" {
		hosts = []string{strings.Replace(p.Host, "*", "weir-0", 1)}
	}
	paths := []string{p.Example()}
	if strings.HasSuffix(p.Path, "/") {
		paths = append(paths, paths[0]+"weir-0") // in case "/{$}" does not precede "/"
	}
	instead := ""
	for _, path := range paths {
		u := &url.URL{Path: route.Unescape(path), RawPath: path}
		for _, method := range asked {
			for _, host := range hosts {
				_, text := m.Handler(&http.Request{Method: method, Host: host, URL: u})
				if text == "" {
					continue
				}
				routed := route.Parse(text)
				if p.Matches(method, route.Host(host), &routed) {
					return true, ""
				}
				if len(text) > len(instead) {
					instead = text
				}
			}
		}
	}
	return false, instead
}

// vetTier logs a warning for a tier that no rule has.
func (set *ruleset) vetTier(tier string) {
	if !set.tierNames[tier] {
		set.notices.warnUnknown(set.Logger, "weir-unknown-tier",
			"weir: no rule has the tier of a request, so the request is limited as if it had no tier: is the tier misspelt?",
			"tier", tier, maps.Keys(set.tierNames))
	}
}

// warnUnknown logs a warning for a name of a request's context that no rule has.
func (n *notices) warnUnknown(logger *slog.Logger, code, message, kind, name string, known iter.Seq[string]) {
	shown := name[:min(len(name), longestName)]
	if n.unknown.Load() >= mostUnknown || !n.isNew(code, shown) || n.unknown.Add(1) > mostUnknown {
		return
	}
	warn(logger, code, message,
		slog.String(kind, strings.ToValidUTF8(shown, "")), slog.String("nearest", nearest.Of(name, slices.Sorted(known))))
}
