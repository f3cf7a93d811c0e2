package middleware

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/internal/route"
)

// A rule for a route that does not exist never applies, and a tier that no rule has means no tier. So a
// misspelt name turns a limit off. New cannot see that, so requests are checked, and a warning is logged.

// The number of warnings is bounded, as all names of a configuration or of authentication may be wrong.
const (
	mostAbsent  = 8       // routes in warnings, for each change of the rules
	mostUnknown = 8       // tiers and rules in warnings, in the life of a limiter
	mostRoutes  = 100_000 // of all routers
	mostMuxes   = 100
	longestName = 64 // logged bytes of a tier or a rule
)

// routers is what a limiter knows about the routers behind it. It does not change: know replaces it.
type routers struct {
	routes []string // sorted
	muxes  []*http.ServeMux
}

// KnowRoutes gives l the routes of its router, such as "GET /users/{id}", or "/users/{id}" for all
// methods. It logs a warning for a rule whose route does not exist. Adapters call it before the first
// request, for each router. Without patterns it does nothing.
func (l *RateLimit) KnowRoutes(patterns []string) { l.know(patterns, nil) }

// Routes returns the patterns of the rules in force: of ByRoute, and of each [Route] in Match, Allow, Bans.Deny and
// package shed's Exempt. Patterns for all requests are left out, and a MatchFunc has no patterns. What they are for does
// not apply to a request without a route.
func (l *RateLimit) Routes() (patterns []string) {
	l.rules.Load().routes(func(_, text string, _ *route.Pattern) { patterns = append(patterns, text) })
	return patterns
}

// know adds routes, and a mux unless it is nil, to what l knows about its routers.
func (l *RateLimit) know(patterns []string, mux *http.ServeMux) {
	l.changing.Lock()
	defer l.changing.Unlock()
	before := l.routers.Load()
	known := *before
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(known.routes, patterns))))
	if len(all) > len(known.routes) && len(all) <= mostRoutes { // a limiter around every route gets the same routes each time
		known.routes = all
	}
	if mux != nil && len(known.muxes) < mostMuxes && !slices.Contains(known.muxes, mux) {
		known.muxes = append(slices.Clip(known.muxes), mux)
	}
	if len(known.routes) > len(before.routes) || len(known.muxes) > len(before.muxes) {
		l.routers.Store(&known)
	}
}

// A vetting looks for rules whose route no router has. It ends when it has found a route for each of them, or
// after enough requests.
type vetting struct {
	ended atomic.Bool
	asked atomic.Pointer[routers]

	mu    sync.Mutex
	unmet []ruleRoute     // perhaps misspelt
	met   map[string]bool // the routes of requests
	seen  int             // requests with a route
}

// A ruleRoute is a pattern of a rule.
type ruleRoute struct {
	rule, text string
	pattern    route.Pattern
}

// enoughRouted is how many requests with a route must all miss a rule's route, before it is probably misspelt.
const enoughRouted = 1000

// vet notes the route of a request, and warns of rules whose route does not exist. At the first request, and when known
// has changed, it asks the routers.
func (set *ruleset) vet(known *routers, r *http.Request) {
	v := &set.vetting
	if v.asked.Load() == known && (r.Pattern == "" || r.Pattern == elsewhere) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended.Load() {
		return
	}
	if v.asked.Load() != known {
		v.asked.Store(known)
		v.unmet, v.met = set.ask(known, r.Host), map[string]bool{}
	}
	if r.Pattern != "" {
		if !v.met[r.Pattern] {
			v.met[r.Pattern] = true
			routed := route.Parse(r.Pattern)
			v.unmet = slices.DeleteFunc(v.unmet, func(at ruleRoute) bool { return at.pattern.Has(&routed) })
		}
		v.seen++
	}
	if len(v.unmet) == 0 || v.seen >= enoughRouted {
		set.warnAbsent(v.unmet, "weir: none of the first 1000 requests had the route of a rule: is the route misspelt? "+
			"Ignore this if such requests are rare")
		v.unmet, v.met = nil, nil
		v.ended.Store(true)
	}
}

// ask warns of the rules whose route no router has, and returns the routes that requests must show. A mux does not
// list its routes: it is asked about requests, here to the host of the first.
func (set *ruleset) ask(known *routers, host string) (unmet []ruleRoute) {
	listed := make([]route.Pattern, len(known.routes))
	for i, text := range known.routes {
		listed[i] = route.Parse(text)
	}
	var absent []ruleRoute
	set.routes(func(rule, text string, p *route.Pattern) {
		at := ruleRoute{rule, text, *p}
		switch {
		case slices.ContainsFunc(listed, func(r route.Pattern) bool { return p.Has(&r) }),
			slices.ContainsFunc(known.muxes, func(mux *http.ServeMux) bool { return p.IsIn(mux, host) }):
		case len(listed)+len(known.muxes) == 0, len(known.muxes) > 0 && (p.Below || strings.HasPrefix(p.Host, "*")):
			unmet = append(unmet, at)
		default:
			absent = append(absent, at)
		}
	})
	set.warnAbsent(absent, "weir: the router does not have the route of a rule, so the rule never applies: is the route misspelt? "+
		"Ignore this if the route is added later, or is in another router")
	return unmet
}

// warnAbsent warns of routes that no router seems to have, of each once.
func (set *ruleset) warnAbsent(absent []ruleRoute, message string) {
	more := 0
	for _, at := range absent {
		switch {
		case !set.limiter.isNew("weir-no-such-route "+at.rule, at.text):
		case more < mostAbsent:
			more++
			warn(set.Logger, "weir-no-such-route", message, slog.String("rule", at.rule), slog.String("route", at.text))
		default:
			more++
		}
	}
	if more > mostAbsent {
		warn(set.Logger, "weir-no-such-route", "weir: more rules have routes that seem to be misspelt", slog.Int("rules", more-mostAbsent))
	}
}

// routes calls f with each pattern that needs a route: of ByRoute, and of each Match, Config.Allow, Config.Bans.Deny
// and Config.Overload that knows its patterns. The rule of the latter three is their name.
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
	add("Config.Bans.Deny", route.PatternsOf(set.Bans.Deny)...)
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
	if set.tierNames[tier] {
		return
	}
	message := "weir: no rule has the tier of a request, so the rules for requests in no tier decide: is the tier misspelt?"
	if set.freesTierless() {
		message = "weir: no rule has the tier of a request, and without Config.Default a request in no tier is not limited, " +
			"unless ByRoute has rules for it: is the tier misspelt?"
	}
	set.warnUnknown("weir-unknown-tier", message, "tier", tier)
}

// warnUnknown logs a warning for a name of a request's context that no rule has.
func (set *ruleset) warnUnknown(code, message, kind, name string) {
	shown := name[:min(len(name), longestName)]
	if l := set.limiter; l.unknown.Load() >= mostUnknown || !l.isNew(code, shown) || l.unknown.Add(1) > mostUnknown {
		return
	}
	warn(set.Logger, code, message, slog.String(kind, strings.ToValidUTF8(shown, "")))
}
