package rules

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A Need is a piece of data that a rule needs, and that a request, a log or a program may lack.
type Need struct {
	Rule string // the rule's name; or ban or allow, whose keys need it

	// Of is user, tier, host, header:NAME, cookie:NAME, query:NAME, json:PATH or form:NAME (a field of the body),
	// key:NAME (one of Options.Keys), route (a route that the file does not name), status (the
	// answer's), settled (the cost that the application settles), usage (of tokens, in the answer), or answer:NAME (a
	// field of the answer with the cost).
	Of string
}

// Needs returns what the rules need to know of a request besides its method, path and address, sorted.
func (r *Rules) Needs() []Need {
	needs := map[Need]bool{}
	for _, p := range r.rules() {
		r.needsOfRule(p, func(of string) { needs[Need{p.name, of}] = true })
	}
	for key := range r.listed {
		r.needsOf(key.Of, &scopedRule{}, func(of string) { needs[Need{key.Rule, of}] = true })
	}
	return slices.SortedFunc(maps.Keys(needs), func(a, b Need) int {
		return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Rule, b.Rule))
	})
}

// ReadsField reports whether the rules read the header field of that canonical name, or a field that servers may take
// for it: CGI takes X_Key for X-Key.
func (r *Rules) ReadsField(name string) (reads, similar bool) {
	r.fieldsOnce.Do(func() {
		r.fields, r.plainFields = map[string]bool{}, map[string]bool{}
		add := func(of string) {
			kind, field, _ := strings.Cut(of, ":")
			switch kind {
			case "cookie":
				field = "Cookie"
			case "header":
			default:
				return
			}
			r.fields[field], r.plainFields[route.PlainField(field)] = true, true
		}
		for _, need := range r.Needs() {
			add(need.Of)
		}
		if field := r.proxies.Header(); field != "" {
			add("header:" + field)
		}
	})
	return r.fields[name], r.plainFields[route.PlainField(name)]
}

// needsOfRule calls need for each input of a rule.
func (r *Rules) needsOfRule(p *scopedRule, need func(of string)) {
	for _, part := range p.parts {
		for _, choice := range choices(part) {
			r.needsOf(choice, p, need)
		}
	}
	if name, isJSON := strings.CutPrefix(p.Distinct, jsonKind); isJSON {
		need(jsonKind + name)
	} else if p.Distinct != "" {
		for _, choice := range choices(p.Distinct) {
			r.needsOf(choice, p, need)
		}
	}
	if len(p.Tiers) > 0 || p.section == "tiers" {
		need("tier")
	}
	if p.pattern != nil && p.pattern.Host != "" {
		need("host")
	}
	if p.Cost != nil {
		r.needsOfCost(p, need)
	}
	if p.MCP != "" {
		need("header:Mcp-Protocol-Version")
	}
	if p.isConditional() {
		if p.When.Tool != "" {
			r.needsOf("tool", p, need)
		}
		for name := range p.When.Header {
			need("header:" + http.CanonicalHeaderKey(name))
		}
		for name := range p.When.Query {
			need("query:" + name)
		}
	}
	if len(p.Counts) > 0 {
		need("status")
	}
}

// needsOfCost calls need for each input of a rule's cost.
func (r *Rules) needsOfCost(p *scopedRule, need func(of string)) {
	if p.Cost.Param != "" {
		r.needsOf("param:"+p.Cost.Param, p, need)
	}
	if p.Cost.Header != "" {
		need("header:" + http.CanonicalHeaderKey(p.Cost.Header))
	}
	if p.Cost.JSON != "" {
		need(jsonKind + p.Cost.JSON)
	}
	if of := p.Cost.Reserve; of != nil {
		for _, field := range of.JSON {
			need(jsonKind + field)
		}
		if of.Input != nil {
			need("header:Content-Length")
		}
	}
	switch s := p.Cost.Settle; {
	case s == nil:
	case s.Header != "":
		need("answer:" + http.CanonicalHeaderKey(s.Header))
	case s.By == "usage":
		need(s.By)
	case s.By == "true":
		need("settled")
	}
}

// lacking records the rules with needs that the program does not meet. See Options.Lacks.
func (c *checker) lacking() {
	if c.options.Lacks == nil {
		return
	}
	lacks := func(at []string, rule, of string) {
		if why := c.options.Lacks(&c.proxies, Need{rule, of}); why != "" {
			c.atKey(at, "%s", why)
		}
	}
	for _, p := range c.rules() {
		if p.Mode == "off" {
			continue
		}
		if p.pattern != nil && !p.pattern.IsWhole() {
			lacks(p.path, p.name, "router")
		}
		if p.Refusal != nil && p.Refusal.Stream {
			lacks(sub(p.path, "refusal", "stream"), p.name, "stream")
		}
		listed := map[string]bool{}
		need := func(of string) {
			if !listed[of] {
				listed[of] = true
				lacks(p.path, p.name, of)
			}
		}
		c.needsOfRule(p, need)
		allowances := slices.Collect(maps.Values(p.limits()))
		for _, own := range p.made.Overrides {
			allowances = append(allowances, own.Limit)
		}
		for _, a := range allowances {
			limits, atOnce, _ := limiter.Split(a)
			if atOnce != (limiter.Concurrency{}) {
				need("concurrency")
			}
			if slices.ContainsFunc(limits, func(l limiter.Limit) bool { return l.Algorithm == limiter.LeakyBucket }) {
				need("queue")
			}
		}
	}
	if a := c.file.Allow; a != nil {
		for i, text := range a.Routes {
			if pattern, err := route.ParseRule(text); err == nil && !pattern.IsWhole() {
				lacks(c.doc.Element([]string{"allow", "routes"}, i), "allow", "router")
			}
		}
	}
	if p := c.file.Proxies; p != nil && p.UnixSocket {
		lacks([]string{"proxies", "unix_socket"}, "proxies", "unix_socket")
	}
	if a := c.file.Refusal; a != nil && a.Stream {
		lacks([]string{"refusal", "stream"}, "refusal", "stream")
	}
	if o := c.file.Overload; o != nil {
		lacks([]string{"overload"}, "overload", "overload")
		if len(o.Priority) > 0 {
			lacks([]string{"overload", "priority"}, "overload", "tier")
		}
	}
}

// needsOf calls need for each input of a choice of a rule's key.
func (r *Rules) needsOf(choice string, p *scopedRule, need func(string)) {
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
		if p.pattern == nil || !slices.Contains(route.Parameters(p.pattern.Path), name) {
			need("route")
		}
	case "route":
		need(kind)
	case "bearer":
		need("header:Authorization")
	case "apikey", "header":
		need("header:" + http.CanonicalHeaderKey(name))
	case "cookie", "query", "json", "form":
		need(strings.TrimSpace(kind) + ":" + name)
	case "tool":
		need("header:Mcp-Method")
		need("header:Mcp-Name")
	case "param":
		need("header:Mcp-Method")
		need("header:" + http.CanonicalHeaderKey(keyfunc.ParamField+name))
	case "fingerprint":
		for _, header := range []string{"User-Agent", "Accept", "Accept-Language", "Accept-Encoding"} { // see keyfunc.Fingerprint
			need("header:" + header)
		}
	}
}
