package rules

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/route"
)

// A Need is what a rule goes by that not every request says, or not everything that tells of
// requests, such as a log.
type Need struct {
	Rule string // the rule's name

	// Of is user, tier, host, header:NAME, cookie:NAME, query:NAME, key:NAME for a key of the
	// application's own, route for routes that the file does not name, status for the answer's,
	// or settled for what the application says that a request really cost.
	Of string
}

// Needs are what the rules go by beside the method, path and address of requests: for
// whoever decides by them about requests of which less is known. They are sorted.
func (r *Rules) Needs() []Need {
	needs := map[Need]bool{}
	of := func(at, name string, rule *rule, fallback []string, always ...string) {
		need := func(of string) { needs[Need{name, of}] = true }
		for _, part := range rule.parts(fallback) {
			for choice := range strings.SplitSeq(part, "|") {
				r.needsOf(strings.TrimSpace(choice), at, need)
			}
		}
		if len(rule.Tiers) > 0 {
			need("tier")
		}
		if rule.Cost != nil && rule.Cost.Header != "" {
			need("header:" + http.CanonicalHeaderKey(rule.Cost.Header))
		}
		for _, of := range always {
			need(of)
		}
		if len(rule.Counts) > 0 {
			need("status")
		}
		if rule.Cost != nil && rule.Cost.Settle {
			need("settled")
		}
	}
	f := r.file
	all := func(at string, list ruleList, fallback []string, always ...string) {
		for i := range list {
			of(at, list.name(i, at, fallback), &list[i], fallback, always...)
		}
	}
	all("global", f.Global, nil)
	for tier, list := range f.Tiers {
		all("tier:"+tier, list, []string{"user|ip"}, "tier")
	}
	for text, list := range f.Endpoints {
		var hosted []string
		if hostOf(text) != "" {
			hosted = []string{"host"}
		}
		all(text, list, []string{"ip"}, hosted...)
	}
	all("default", f.Default, []string{"ip"})
	return slices.SortedFunc(maps.Keys(needs), func(a, b Need) int {
		return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Rule, b.Rule))
	})
}

// needsOf tells what a choice of a key reads, in the rule for an endpoint or in another.
func (r *Rules) needsOf(choice, endpoint string, need func(string)) {
	if r.own[choice] != nil {
		need("key:" + choice)
		return
	}
	kind, name, _ := strings.Cut(choice, ":")
	name = strings.TrimSpace(name)
	switch strings.TrimSpace(kind) {
	case "user", "host":
		need(kind)
	case "path":
		if pattern, err := route.ParseRule(endpoint); err != nil || !slices.Contains(route.Parameters(pattern.Path), name) {
			need("route")
		}
	case "route":
		need(kind)
	case "bearer":
		need("header:Authorization")
	case "apikey", "header":
		need("header:" + http.CanonicalHeaderKey(name))
	case "cookie", "query":
		need(strings.TrimSpace(kind) + ":" + name)
	case "fingerprint":
		for _, header := range []string{"User-Agent", "Accept", "Accept-Language", "Accept-Encoding"} { // see keyfunc.Fingerprint
			need("header:" + header)
		}
	}
}
