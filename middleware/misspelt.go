package middleware

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/route"
)

// A rule for a route that does not exist never applies, and a tier that no rule has means no tier. So a
// misspelt name turns a limit off. New cannot see that, so requests are checked, and a warning is logged.

// The number of warnings is bounded, as all names of a configuration or of authentication may be wrong.
const (
	mostAbsent  = 8       // routes in warnings, for each change of the rules
	mostUnknown = 8       // tiers and rules in warnings, in the life of a limiter
	mostRoutes  = 100_000 // of all routers
	longestName = 64      // logged bytes of a tier or a rule
)

// KnowRoutes gives l the routes of its router, such as "GET /users/{id}", or "/users/{id}" for all
// methods. It logs a warning for a rule whose route does not exist. Adapters call it before the first
// request, for each router. Without patterns it does nothing.
func (l *RateLimit) KnowRoutes(patterns []string) {
	l.changing.Lock()
	defer l.changing.Unlock()
	var known []string
	if before := l.routes.Load(); before != nil {
		known = *before
	}
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(known, patterns))))
	if len(all) > len(known) && len(all) <= mostRoutes { // a limiter around every route gets the same routes each time
		l.routes.Store(&all)
	}
}

// vet warns of the rules whose route no router has, at the first request under them.
func (set *ruleset) vet(routes []string) {
	if !set.vetted.CompareAndSwap(false, true) {
		return
	}
	var known []route.Pattern
	for _, text := range routes {
		known = append(known, route.Parse(text))
	}
	absent := 0
	set.routes(func(rule, text string, p *route.Pattern) {
		if !set.notices.isNew("weir-no-such-route "+rule, text) {
			return
		}
		wanted := *p
		wanted.Host = "" // routers do not list hosts
		if slices.ContainsFunc(known, func(p route.Pattern) bool {
			return wanted.Matches(cmp.Or(p.Method, wanted.Method), "", &p)
		}) {
			return
		}
		if absent++; absent <= mostAbsent {
			warn(set.Logger, "weir-no-such-route",
				"weir: the router does not have the route of a rule, so the rule never applies: is the route misspelt? "+
					"Ignore this if the route is added later, or is in another router",
				slog.String("rule", rule), slog.String("route", text))
		}
	})
	if absent > mostAbsent {
		warn(set.Logger, "weir-no-such-route", "weir: more rules have routes that the router does not have", slog.Int("rules", absent-mostAbsent))
	}
}

// routes calls f with each pattern that needs a route: of ByRoute, and of each Match, Config.Allow and
// Config.Overload that knows its patterns. The rule of the latter two is their name.
func (set *ruleset) routes(f func(rule, text string, p *route.Pattern)) {
	add := func(rule string, texts ...string) {
		for _, text := range texts {
			if p, err := route.ParseRule(text); err == nil && !p.IsForAll() {
				f(rule, text, &p)
			}
		}
	}
	for _, r := range set.all {
		if r.info.Route != "" {
			add(r.Name, r.info.Route)
		}
		add(r.Name, route.PatternsOf(r.Match)...)
	}
	add(configAllow, route.PatternsOf(set.Allow)...)
	add("Config.Overload", route.PatternsOf(set.Overload)...)
}

const configAllow = "Config.Allow"

// gatewayRoutes returns the routes that Gateway routes requests by.
func (set *ruleset) gatewayRoutes(foldCase bool) *route.Routes {
	var patterns, exempt []route.Pattern
	set.routes(func(rule, _ string, p *route.Pattern) {
		if rule == configAllow {
			exempt = append(exempt, *p)
		} else {
			patterns = append(patterns, *p)
		}
	})
	return route.NewRoutes(patterns, exempt, foldCase)
}

// vetTier logs a warning for a tier that no rule has.
func (set *ruleset) vetTier(tier string) {
	if !set.tierNames[tier] {
		set.notices.warnUnknown(set.Logger, "weir-unknown-tier",
			"weir: no rule has the tier of a request, so the request is limited as if it had no tier: is the tier misspelt?",
			"tier", tier)
	}
}

// warnUnknown logs a warning for a name of a request's context that no rule has.
func (n *notices) warnUnknown(logger *slog.Logger, code, message, kind, name string) {
	shown := name[:min(len(name), longestName)]
	if n.unknown.Load() >= mostUnknown || !n.isNew(code, shown) || n.unknown.Add(1) > mostUnknown {
		return
	}
	warn(logger, code, message, slog.String(kind, strings.ToValidUTF8(shown, "")))
}
