package middleware

import (
	"cmp"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/nearest"
	"github.com/weirgo/weir/internal/route"
)

// A rule for a route that is not there never applies, and a tier that no rule has is none:
// a name that is misspelt turns a limit off. Neither can be seen when a limiter is made, so
// both are looked for when requests come, and warned of.

// Vetting is bounded, as what is written in a configuration or comes from authentication may
// be wrong all over.
const (
	mostAbsent       = 8 // routes that are warned of at a time
	mostUnknownTiers = 8 // in the life of a limiter
	mostPlaces       = 64
	longestTier      = 64 // bytes of a tier that are logged
)

// A place is a router that l is in, as far as it can be asked for its routes.
type place interface {
	// has reports whether requests can be routed by a rule's pattern, and what they are
	// routed by instead or, if that is not known, might be.
	has(p *route.Pattern, r *http.Request) (ok bool, instead string)

	// is reports whether other is the same router, or has the same routes.
	is(other place) bool
}

// KnowRoutes tells l the routes of the router that it is in, such as "GET /users/{id}", or
// "/users/{id}" for all methods, so that it can warn of rules for routes that are not there.
// It is for adapters, before the first request. A router that tells none is not looked at.
func (l *RateLimit) KnowRoutes(patterns []string) {
	if len(patterns) > 0 {
		l.know(listOf(slices.Sorted(slices.Values(patterns))))
	}
}

func (l *RateLimit) know(p place) {
	l.changing.Lock()
	defer l.changing.Unlock()
	var all []place
	if known := l.places.Load(); known != nil {
		all = *known
	}
	// The limiter may be around every route of a router, and each time hear of all.
	if len(all) == mostPlaces || slices.ContainsFunc(all, p.is) {
		return
	}
	all = append(slices.Clip(all), p)
	l.places.Store(&all)
}

// vet looks, at the first request under a set, for rules that the known routers have no route for.
func (l *RateLimit) vet(set *ruleset, r *http.Request) {
	if places := l.places.Load(); places != nil && set.vetted.CompareAndSwap(false, true) {
		set.vetRoutes(*places, r)
	}
}

func (set *ruleset) vetRoutes(places []place, r *http.Request) {
	absent := 0
	for _, given := range set.routes() {
		if !set.notices.isNew(given.rule, given.text) {
			continue
		}
		pattern, err := route.ParseRule(given.text)
		if err != nil {
			continue // it was refused when it was made
		}
		found, instead := false, ""
		for _, p := range places {
			ok, other := p.has(&pattern, r)
			if found = ok; found {
				break
			}
			if instead == "" {
				instead = other
			}
		}
		if found {
			continue
		}
		if absent++; absent > mostAbsent {
			continue
		}
		warn(set.Logger, "weir-no-such-route",
			"weir: a rule is for a route that the router does not have, so it never applies: is it misspelt? "+
				"If the route is added later, is there for another host, or is inside another handler with a limiter of its own, all is well",
			slog.String("rule", given.rule), slog.String("route", given.text), slog.String("nearest", instead))
	}
	if absent > mostAbsent {
		warn(set.Logger, "weir-no-such-route", "weir: there are more such rules", slog.Int("rules", absent-mostAbsent))
	}
}

// A givenRoute is a pattern that something in a Config is for.
type givenRoute struct{ rule, text string }

// routes are all that can be known and need a route: those of ByRoute, and of a Match or
// Allow that is what Route returns.
func (set *ruleset) routes() (all []givenRoute) {
	matched := func(name string, match Match) {
		if m, ok := match.(*routeMatcher); ok {
			for _, text := range m.texts {
				all = append(all, givenRoute{name, text})
			}
		}
	}
	for _, r := range set.all {
		if text := r.info.Route; text != "" {
			all = append(all, givenRoute{r.Name, text})
		}
		matched(r.Name, r.Match)
	}
	matched("Config.Allow", set.Allow)
	return slices.DeleteFunc(all, func(given givenRoute) bool {
		p, err := route.ParseRule(given.text)
		return err != nil || p.IsForAll()
	})
}

// A listed place is a router that lists its routes.
type listed struct {
	patterns []string
	routes   []listedRoute // each path once
}

type listedRoute struct {
	route.Pattern
	methods []string
}

func listOf(patterns []string) *listed {
	l := &listed{patterns: patterns}
	at := map[string]int{}
	for _, text := range patterns {
		p := route.Parse(text)
		i, there := at[p.Path]
		if !there {
			i, at[p.Path] = len(l.routes), len(l.routes)
			l.routes = append(l.routes, listedRoute{Pattern: p})
		}
		l.routes[i].methods = append(l.routes[i].methods, p.Method)
	}
	return l
}

func (l *listed) is(other place) bool {
	o, ok := other.(*listed)
	return ok && slices.Equal(l.patterns, o.patterns)
}

func (l *listed) has(p *route.Pattern, _ *http.Request) (bool, string) {
	wanted := *p
	wanted.Host = "" // which these routers do not route by
	for i := range l.routes {
		r := &l.routes[i]
		if !wanted.Matches(wanted.Method, "", &r.Pattern) {
			continue
		}
		for _, method := range r.methods {
			if method == "" || wanted.Matches(method, "", &r.Pattern) {
				return true, ""
			}
		}
	}
	method := cmp.Or(p.Method, "GET") // which a listed pattern has one of
	return false, nearest.Of(method+" "+p.Path, l.patterns)
}

// A muxed place is an http.ServeMux, which lists nothing, but says what it routes a request by.
type muxed struct{ *http.ServeMux }

var methods = []string{
	http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodHead, http.MethodOptions, http.MethodConnect, http.MethodTrace,
}

func (m muxed) is(other place) bool { return other == place(m) }

func (m muxed) has(p *route.Pattern, r *http.Request) (bool, string) {
	if p.Below {
		return true, "" // what is below can't be asked for without its name
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
		paths = append(paths, paths[0]+"weir-0") // where "/{$}" does not go before "/"
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

// vetTier warns of a tier that no rule has.
func (set *ruleset) vetTier(tier string) {
	if set.tierNames[tier] || !set.notices.isNewTier(tier) {
		return
	}
	known := slices.Sorted(maps.Keys(set.tierNames))
	warn(set.Logger, "weir-unknown-tier",
		"weir: a request is in a tier that no rule has, so it is limited like one in no tier: is the tier misspelt?",
		slog.String("tier", strings.ToValidUTF8(tier[:min(len(tier), longestTier)], "")), slog.String("nearest", nearest.Of(tier, known)))
}

// isNew reports whether something of a rule is noticed for the first time. It is for what a
// configuration has.
func (n *notices) isNew(rule, what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told[[2]string{rule, what}] {
		return false
	}
	if n.told == nil {
		n.told = map[[2]string]bool{}
	}
	n.told[[2]string{rule, strings.Clone(what)}] = true
	return true
}

// isNewTier is isNew for a tier, as long as there are few.
func (n *notices) isNewTier(tier string) bool {
	return n.tiers.Load() < mostUnknownTiers &&
		n.isNew("", tier[:min(len(tier), longestTier)]) && n.tiers.Add(1) <= mostUnknownTiers
}
