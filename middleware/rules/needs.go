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

	// Of is user, tier, host, header:NAME, cookie:NAME, key:NAME for a key of the
	// application's own, route for routes that the file does not name, status for the answer's,
	// or settled for what the application says that a request really cost.
	Of string
}

// Needs are what the rules go by beside the method, path and address of requests: for
// whoever decides by them about requests of which less is known. They are sorted.
func (r *Rules) Needs() []Need {
	needs := map[Need]bool{}
	of := func(at string, rule *rule, fallback []string, hosted bool) {
		name := cmp.Or(rule.Name, at)
		need := func(of string) { needs[Need{name, of}] = true }
		parts := rule.Key
		if parts == nil {
			parts = fallback
		}
		for _, part := range parts {
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
		if hosted {
			need("host")
		}
		if len(rule.Counts) > 0 {
			need("status")
		}
		if rule.Cost != nil && rule.Cost.Settle {
			need("settled")
		}
	}
	f := r.file
	if f.Global != nil {
		of("global", f.Global, nil, false)
	}
	for _, tier := range slices.Sorted(maps.Keys(f.Tiers)) {
		given := f.Tiers[tier]
		name := "tier:" + tier
		of(name, &given, []string{"user", "ip"}, false)
		needs[Need{cmp.Or(given.Name, name), "tier"}] = true
	}
	for _, text := range slices.Sorted(maps.Keys(f.Endpoints)) {
		given := f.Endpoints[text]
		of(text, &given, nil, hostOf(text) != "")
	}
	if f.Default != nil {
		of("default", f.Default, nil, false)
	}
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
	case "cookie":
		need("cookie:" + name)
	case "fingerprint":
		for _, header := range []string{"User-Agent", "Accept", "Accept-Language", "Accept-Encoding"} { // see keyfunc.Fingerprint
			need("header:" + header)
		}
	}
}
