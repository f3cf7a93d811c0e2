package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/missing"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/limiter"
)

// Warnings are for mistakes that New cannot see. Each is logged once, has a code that docs/warnings.md
// explains, and never contains a key.

// isNew reports whether this is the first warning with that code about a name, such as a rule's.
func (l *RateLimit) isNew(code, about string) bool {
	if _, given := l.warned.Load([2]string{code, about}); given {
		return false
	}
	_, given := l.warned.LoadOrStore([2]string{code, strings.Clone(about)}, true)
	return !given
}

// warnOnce warns once of each rule, or once if the rule is empty.
func (set *ruleset) warnOnce(code, rule, message string, attrs ...slog.Attr) {
	if !set.limiter.isNew(code, rule) {
		return
	}
	if rule != "" {
		attrs = append([]slog.Attr{slog.String("rule", rule)}, attrs...)
	}
	warn(set.Logger, code, message, attrs...)
}

func warn(logger *slog.Logger, code, message string, attrs ...slog.Attr) {
	attrs = append([]slog.Attr{slog.String("code", code)}, attrs...)
	cmp.Or(logger, slog.Default()).LogAttrs(context.Background(), slog.LevelWarn, message, attrs...)
}

// mostClaimed is the most names that a limiter claims. It keeps them, and each change of the rules may bring new ones.
const mostClaimed = 10_000

// claim claims the names of the rules' counters in the store, and warns if another limiter has claimed one:
// the two then share counters. The error is the store's.
func (l *RateLimit) claim(set *ruleset) error {
	names := map[string]bool{}
	for _, quota := range set.quotas {
		if err := l.checkQuota(quota); err != nil {
			return err
		}
		names[quota.Rule()] = true
	}
	claimer, ok := limiter.As[limiter.Claimer](l.store)
	if !ok {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if l.claimed[name] || len(l.claimed) >= mostClaimed {
			continue
		}
		err := claimer.Claim(name)
		switch {
		case errors.Is(err, limiter.ErrClaimed):
			warn(set.Logger, "weir-shared-counter",
				"weir: two limiters share a store and a rule name, so they share counters; rename one, or give each its own store",
				slog.String("rule", name))
		case err != nil:
			return fmt.Errorf("middleware: Config.Store: %w", err)
		}
		l.claimed[name] = true
	}
	return nil
}

// warnUnheld warns of requests that a configuration probably leaves unlimited by mistake: those in no tier, and those
// that the rules of their tier or route do not match, because such rules replace Default.
func (set *ruleset) warnUnheld() {
	if set.limitsAll || set.Shadow {
		return
	}
	if set.freesTierless() {
		set.warnOnce("weir-unlimited", "", "weir: Config.ByTier has rules, and Config.Default has none: a request in no tier, or in a "+
			"misspelt one, is not limited, unless ByRoute has rules for it")
	}
	byDefault, ofRoute := limitsAll(set.fallback), map[string][]*rule{}
	warnOf := func(rules []*rule, of slog.Attr) {
		inShadow := len(enforced(rules)) == 0
		if !limitsAll(rules) && (byDefault || !inShadow) {
			set.warnOnce("weir-unlimited", rules[0].Name, "weir: the rules of a tier or a route replace Config.Default, and none of them limits "+
				"every request: the others are not limited; add a rule without Match, or one to Config.Rules", of)
		}
	}
	for _, tier := range slices.Sorted(maps.Keys(set.byTier)) {
		warnOf(set.byTier[tier], slog.String("tier", tier))
	}
	for _, r := range set.all {
		if r.info.Route != "" && byDefault {
			ofRoute[r.info.Route] = append(ofRoute[r.info.Route], r)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(ofRoute)) {
		warnOf(ofRoute[text], slog.String("route", text))
	}
}

// freesTierless reports whether no rule limits a request in no tier, unless ByRoute has rules for it.
func (set *ruleset) freesTierless() bool {
	return len(set.byTier) > 0 && set.fallback == nil && !set.limitsAll && !set.Shadow
}

// limitsAll reports whether one of these rules limits or denies each request.
func limitsAll(rules []*rule) bool {
	return slices.ContainsFunc(enforced(rules), func(r *rule) bool {
		return !r.isPartial && (r.Match == nil || slices.ContainsFunc(route.PatternsOf(r.Match), isForAll))
	})
}

// isForAll reports whether the pattern of a rule matches every request.
func isForAll(text string) bool {
	p, err := route.ParseRule(text)
	return err == nil && p.Covers(&route.Pattern{Below: true})
}

// shortError returns the first 200 bytes of an error whose text may come from clients.
func shortError(err error) slog.Attr {
	text := err.Error()
	return slog.String("error", text[:min(len(text), 200)])
}

func (set *ruleset) warnKeyFailure(rule string, err error) {
	set.warnOnce("weir-key-failed", rule, "weir: a key function failed; ambiguous requests are answered 400, Rule.OnOutage decides "+
		"about the others, and if a ban may be missed, they are answered 503", shortError(err))
}

func (set *ruleset) warnStoreFailure(err error) {
	set.warnOnce("weir-store-failed", "", "weir: the store could not decide; such requests are answered 503 until it can",
		slog.String("error", err.Error()))
}

// warnUnrouted notes a request without a pattern, and warns if none of the first five had one: a Route that sees requests
// before they are routed never applies. The first few may all be for unknown paths. pattern is the route's, or empty.
func warnUnrouted(routes *missing.Detector, pattern string, r *http.Request, logger *slog.Logger) {
	if pattern == "" || !routes.Lacks(r) {
		return
	}
	warn(logger, "weir-unrouted",
		"weir: a rule matches a route, and the first five requests had none: if they were for routes that exist, requests reach the "+
			"limiter before they are routed, so the rule never applies; use the router's adapter",
		slog.String("route", pattern))
}

// keyless notes a request that a rule counts on the counter of all requests without a key.
func (set *ruleset) keyless(rule *rule, r *http.Request) {
	if rule.notes.keys.Lacks(r) {
		set.warnOnce("weir-keyless", rule.Name, "weir: the first five requests that a rule counted had no key, so they share one counter: "+
			"if clients have the key, such as a user, their authentication runs behind the limiter; put it in front")
	}
}

// tierless notes a request without a tier. Since the first WithTier of the process, some should have one.
func (set *ruleset) tierless(r *http.Request) {
	if tiersGiven.Load() && set.limiter.tiers.Lacks(r) {
		set.warnOnce("weir-keyless", "", "weir: WithTier is called, and five requests came without a tier, so the tiers' limits did not "+
			"apply: if they should have one, authentication runs behind the limiter; put it in front")
	}
}
