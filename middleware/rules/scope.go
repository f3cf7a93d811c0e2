package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/internal/yamlfile"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// ruleSections are the sections that have rules, in their order.
var ruleSections = []string{"global", "tiers", "endpoints", "default", "descriptors"}

// A scope holds the rules for the same requests: a section, a tier or an endpoint.
type scope struct {
	section string   // global, tiers, endpoints or default
	of      string   // the tier, or the endpoint
	path    []string // in the document
	rules   []scopedRule
	pattern *route.Pattern // of an endpoint; nil if something is wrong with it

	fromRequest bool // of a descriptor: limit_from_request
}

// isOff reports whether all rules of a scope are off. The scope is then ignored.
func (at *scope) isOff() bool {
	return !slices.ContainsFunc(at.rules, func(p scopedRule) bool { return p.Mode != "off" })
}

// A scopedRule is a rule in its scope.
type scopedRule struct {
	*scope
	*rule
	path  []string // in the document, where the rule may be in a list
	name  string
	parts []string // of its key; none if the rule has none

	made middleware.Rule // for package middleware, as if the mode were not deny
}

// limits are the rule's limits by tier; "" is for requests in no other tier.
func (p *scopedRule) limits() map[string]limiter.Allowance {
	all := map[string]limiter.Allowance{"": p.made.Limit}
	maps.Copy(all, p.made.Tiers)
	return all
}

// limitsIn returns the rule's limits for a tier, without concurrency.
func (p *scopedRule) limitsIn(tier string) []limiter.Limit {
	a, ok := p.made.Tiers[tier]
	if !ok {
		a = p.made.Limit
	}
	limits, _, _ := limiter.Split(a)
	return limits
}

// scopes returns all scopes of a file, in the order of its sections.
func (f *file) scopes(doc *yamlfile.Document) (all []*scope) {
	add := func(section, of, name string, path []string, list ruleList, fallback []string) {
		at := &scope{section: section, of: of, path: path}
		for i := range list {
			version, r := list[i].splitMCP(name)
			if version != nil {
				at.rules = slices.Insert(at.rules, 0, scopedRule{scope: at, rule: version, path: doc.Element(path, i), name: version.Name})
			}
			if r == nil {
				continue
			}
			p := scopedRule{at, r, doc.Element(path, i), list.name(i, name, fallback), nil, middleware.Rule{}}
			for _, part := range list[i].parts(fallback) {
				p.parts = append(p.parts, strings.Join(choices(part), "|")) // however it is spaced
			}
			at.rules = append(at.rules, p)
		}
		all = append(all, at)
	}
	add("global", "", "global", []string{"global"}, f.Global, nil)
	for _, tier := range slices.Sorted(maps.Keys(f.Tiers)) {
		add("tiers", tier, "tier:"+tier, []string{"tiers", tier}, f.Tiers[tier], []string{"user|ip"})
	}
	inOrder := func(a, b string) int { return doc.Key("endpoints", a).Compare(doc.Key("endpoints", b)) }
	for _, pattern := range slices.SortedFunc(maps.Keys(f.Endpoints), inOrder) {
		add("endpoints", pattern, pattern, []string{"endpoints", pattern}, f.Endpoints[pattern], []string{"ip"})
	}
	add("default", "", "default", []string{"default"}, f.Default, []string{"ip"})
	return all
}

// rules returns the rules of all scopes.
func (r *Rules) rules() (all []*scopedRule) {
	for _, at := range r.scopes {
		for i := range at.rules {
			all = append(all, &at.rules[i])
		}
	}
	return all
}

// enforces reports whether a rule refuses what is beyond its limit, and active whether it has counters.
func (p *scopedRule) enforces() bool { return p.Mode == "" || p.Mode == "enforce" }

func (p *scopedRule) active() bool { return p.Mode != "off" && p.Mode != "deny" }

// choices are the alternatives of a part of a key, in the order in which they are tried.
func choices(part string) []string {
	all := strings.Split(part, "|")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}
