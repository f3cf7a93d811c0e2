package rules

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/internal/yamlfile"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// wrapper is a key that may stand above the whole file.
const wrapper = "rate_limits"

// sub is a path with more at its end.
var sub = yamlfile.Sub

// A checker makes Rules of a file, and records what is wrong with the file.
type checker struct {
	*Rules
	problems
	warnings problems // what can't be meant, but is no mistake
	options  Options
	keys     *keys
	names    map[string][]string                                     // of rules, and where
	readFile func(name string) (path string, text []byte, err error) // nil: no file may be named
}

// check turns the file into c.config.
func (c *checker) check() {
	if !c.doc.Has("version") && c.doc.Wrapped {
		c.warnings.at(nil, "is read as version 1: write version: 1 above %s, so that later versions of this program read it the same way", wrapper)
	}
	for i := range c.config.Rules {
		c.names[c.config.Rules[i].Name] = nil
	}
	c.config.Rules = slices.Clone(c.config.Rules)
	c.config.Shadow = c.config.Shadow || c.file.Mode == "shadow"
	c.findProxies()
	c.fileTiers()
	c.headers()
	c.scopes = c.file.scopes(c.doc)
	c.endpoints()
	for _, at := range c.scopes {
		c.scope(at)
	}
	c.checkDescriptors()
	if c.file.Refusal != nil {
		answer := c.config.Refusal.Answer
		c.config.Refusal = c.refusal([]string{"refusal"}, c.file.Refusal, false)
		c.config.Refusal.Answer = answer
	}
	c.allow()
	c.overload()
	c.ban()
	c.doubts()
	if c.nothing() && len(c.list) == 0 {
		c.at(nil, "limits nothing: it has no global, tiers, endpoints, default, descriptors, overload or ban")
	}
}

// headers makes Config.Headers.
func (c *checker) headers() {
	h := c.file.Headers
	if h == nil {
		return
	}
	made := &c.config.Headers
	if h.Limit != "" || h.Reset == "delta" || h.RetryAfter {
		*made = middleware.Headers{Send: made.Send, Prefix: h.Limit, Delta: h.Reset == "delta", RetryAfter: h.RetryAfter}
	}
	if h.Send != "" {
		made.Send = families[h.Send]
	}
	c.reject(nil, made.Validate())
}

// refusal makes the Refusal of a rule, or of the whole file.
func (c *checker) refusal(path []string, given *refusal, denies bool) (made middleware.Refusal) {
	if given == nil {
		return made
	}
	made.Type, made.Title, made.Message = given.Type, given.Title, given.Message
	if given.Status != nil && !c.noted(sub(path, "status")) {
		made.Status = int(*given.Status)
		if denies && made.Status != http.StatusForbidden && made.Status != http.StatusTooManyRequests &&
			made.Status != http.StatusServiceUnavailable {
			c.at(sub(path, "status"), "is %d: with mode: deny it must be 403, 429 or 503", made.Status)
		}
	}
	if given.Jitter != nil {
		made.Jitter = int(*given.Jitter)
		all, isOff := c.file.Refusal, made.Jitter == 0 && !c.noted(sub(path, "jitter"))
		if isOff && given != all && all != nil && all.Jitter != nil && *all.Jitter != 0 {
			c.at(sub(path, "jitter"), "is off, but the file's refusal.jitter is for all rules: set jitter in the rules that need it instead")
		}
	}
	made.Body, made.Stream = bodies[given.Body], given.Stream
	if given.Paced != nil {
		made.Paced = given.Paced.Duration
	}
	if given.StopAbove != nil && !c.noted(sub(path, "stop_above")) {
		made.StopAbove = given.StopAbove.Duration
	}
	if given.RetryAfter != nil {
		made.RetryAfter = given.RetryAfter.Duration
		if !denies {
			c.at(sub(path, "retry_after"), "is only for mode: deny: a limit computes it")
		}
	}
	c.reject(path[:len(path)-1], made.Validate())
	return made
}

func (c *checker) nothing() bool {
	f := c.file
	return len(f.Global)+len(f.Tiers)+len(f.Endpoints)+len(f.Default)+len(f.Descriptors)+len(c.config.Rules) == 0 &&
		f.Ban == nil && f.Overload == nil
}

// scope puts the rules of a scope into the Config.
func (c *checker) scope(at *scope) {
	if len(at.rules) == 0 && c.doc.Has(at.path...) && !c.noted(at.path) {
		c.atKey(at.path, "has no rule: write a limit such as 100/1m, or leave it out")
	}
	var made []middleware.Rule
	for i := range at.rules {
		if rule := c.rule(&at.rules[i]); at.rules[i].Mode != "off" {
			made = append(made, rule)
		}
	}
	if made == nil {
		return
	}
	set := func(rules *map[string][]middleware.Rule) {
		if *rules == nil {
			*rules = map[string][]middleware.Rule{}
		}
		(*rules)[at.of] = made
	}
	switch at.section {
	case "global":
		c.config.Rules = append(c.config.Rules, made...)
	case "tiers":
		set(&c.config.ByTier)
	case "endpoints":
		set(&c.config.ByRoute)
	case "default":
		c.config.Default = made
	}
}

// rule makes a rule. It can be used only if nothing is wrong with the file.
func (c *checker) rule(p *scopedRule) middleware.Rule {
	path, r, name := p.path, p.rule, p.name
	if r.MCP != "" {
		return c.mcp(p)
	}
	made := middleware.Rule{
		Name:     name,
		Key:      c.key(p),
		Match:    c.match(path, r),
		NoKey:    noKeys[r.NoKey],
		OnOutage: outages[r.OnOutage],
		Mode:     modes[r.Mode],
	}
	limits, atOnce := c.limits(path, &r.limitFields, r.Mode == "deny"), c.concurrency(path, &r.limitFields)
	made.Limit = limiter.Join(limits, atOnce)
	made.Distinct = c.distinct(sub(path, "distinct"), r.Distinct)
	made.Cost = c.cost(path, name, r.Cost)
	c.end(path, r, &made)
	c.name(path, made.Name)
	if soft := cmp.Or(r.Soft, c.file.Soft); soft != nil {
		made.SoftAt = int(soft.At)
	}
	if len(r.Tiers) > 0 {
		made.Tiers = middleware.Tiers{}
		for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
			given := r.Tiers[tier]
			at := sub(path, "tiers", tier)
			c.tier(at, tier)
			made.Tiers[tier] = c.allowance(at, &given, limits, atOnce)
			if _, err := limiter.NewQuota("rule", tier, limiter.PerSecond(1)); err != nil {
				c.atKey(at, "%s", inFile(err))
			}
		}
	}
	made.Overrides = c.overrides(p, limits, atOnce)
	c.parameters(p)
	c.escalate(p, &made)
	made.Refusal = c.refusal(sub(path, "refusal"), r.Refusal, r.Mode == "deny")
	p.made = made
	c.whole(p)
	if r.Mode == "deny" { // the rest is for another mode
		made = middleware.Rule{Name: name, Match: made.Match, Mode: middleware.Deny, Refusal: made.Refusal}
	}
	c.checkRule(p, made)
	return made
}

// end makes the Counts of a rule.
func (c *checker) end(path []string, r *rule, made *middleware.Rule) {
	counts := sub(path, "counts")
	if c.doc.Has(counts...) && !c.noted(counts) {
		texts := make([]string, len(r.Counts))
		for i, a := range r.Counts {
			texts[i] = a.text
		}
		var err error
		if made.Counts, err = middleware.ParseCounts(texts...); err != nil {
			c.at(counts, "%s", inFile(err))
		}
	}
	if r.When != nil && r.When.Charge == "after" {
		made.Counts = made.Counts.Afterwards()
	}
}

// name checks a rule's name and records it.
func (c *checker) name(path []string, name string) {
	at := path
	if named := sub(path, "name"); c.doc.Has(named...) {
		at = named
	}
	if other, taken := c.names[name]; taken {
		where := "among the application's own"
		if other != nil {
			where = "at " + yamlfile.Join(other)
		}
		c.atKey(at, "there is another rule named %q, %s: give one of them a name of its own", name, where)
	}
	c.names[name] = path
	if _, err := limiter.NewQuotas(name, "", limiter.PerSecond(1)); err != nil {
		c.atKey(at, "%s", inFile(err))
	}
}

func (c *checker) escalate(p *scopedRule, made *middleware.Rule) {
	e, parts := p.Escalate, p.parts
	if e == nil {
		return
	}
	path := sub(p.path, "escalate")
	if e.Within == nil || e.Ban == nil {
		return // noted as missing
	}
	made.Escalate = bans.Escalation{After: int(e.After), Within: e.Within.Duration, Ban: e.Ban.Duration, Outcomes: e.Of == "outcomes"}
	if e.Factor != nil {
		made.Escalate.Factor = e.Factor.float64
	}
	if e.Max != nil {
		made.Escalate.Max = e.Max.Duration
	}
	switch all := keyText(" and ", parts); {
	case c.areAlways(parts, sharedKinds):
		c.at(path, "needs a key that tells clients apart: %s is shared by many clients", all)
	case c.areAlways(parts, unownedKinds):
		c.at(path, "needs a key of a single client, such as ip, user or bearer: %s is never banned, as neighbors share a network, and any client can send another client's header, cookie, path or query", all)
	default:
		for _, part := range parts {
			for _, choice := range choices(part) {
				if families := c.networks(choice); len(families) > 0 {
					c.warnings.at(path, "never bans the %s network of %s, which neighbors share", strings.Join(families, " or "), choice)
				}
			}
		}
	}
	if c.file.Proxies == nil && c.canBe(parts, []string{"ip"}) != "" {
		c.warnings.at(path, "behind a proxy, all clients have its address and are banned together: name your proxies in proxies, or write proxies: {} if there is none")
	}
}

// fileTiers sets the tiers that exist.
func (c *checker) fileTiers() {
	c.tiers = c.options.Tiers
	for _, tier := range slices.Sorted(maps.Keys(c.file.Tiers)) {
		c.tier([]string{"tiers", tier}, tier)
	}
	if c.tiers == nil && len(c.file.Tiers) > 0 {
		c.tiers = slices.Sorted(maps.Keys(c.file.Tiers))
	}
}

// tier reports a tier that no request is ever in.
func (c *checker) tier(path []string, tier string) {
	switch {
	case tier == "":
		c.atKey(path, "a tier has no name")
	case c.tiers != nil && !slices.Contains(c.tiers, tier):
		c.atKey(path, "the tier %q is never used: %s", tier, yamlfile.Suggest(tier, c.tiers))
	}
}

// allow makes Config.Allow, and reports endpoints that it makes useless.
func (c *checker) allow() {
	a := c.file.Allow
	if a == nil {
		return
	}
	var preflight middleware.Match
	if a.Preflights {
		preflight = middleware.IsPreflight
	}
	exempt, from := c.allowed(a)
	c.exempt = exempt
	routes := c.routes([]string{"allow", "routes"}, a.Routes, ", or the clients in cidrs", "so nothing is limited: name some routes, or write mode: shadow")
	var allowed route.Tree[string]
	for _, text := range routes {
		pattern, _ := route.ParseRule(text)
		allowed.Add(pattern, text)
	}
	for _, at := range c.patterns() {
		text, _ := allowed.Find(at.pattern.Method, "", at.of)
		if pattern, err := route.ParseRule(text); err == nil && pattern.Covers(at.pattern) {
			c.atKey(at.path, "is never limited, as %q is in allow.routes: keep one", text)
		}
	}
	var onRoute middleware.Match
	if len(routes) > 0 {
		onRoute = middleware.Route(routes...)
	}
	c.config.Allow = union(c.config.Allow, preflight, c.inNetworks(exempt), exempt.hasKey(from), onRoute)
}

// routes returns the valid routes of a list. A route with a host is a problem, whose message ends with
// instead. A route for every request is a warning, which ends with follows.
func (c *checker) routes(list, texts []string, instead, follows string) (good []string) {
	for i, text := range texts {
		at := c.doc.Element(list, i)
		pattern, ok := c.pattern(at, text)
		switch {
		case !ok:
		case pattern.Host != "":
			c.at(at, "has a host, and clients can send any host: write the route without it%s", instead)
		default:
			good = append(good, text)
			if pattern.Covers(&everything) {
				c.warnings.atKey(at, "is for every request, %s", follows)
			}
		}
	}
	return good
}

// union matches what one of matches does. It is nil if all of them are.
func union(matches ...middleware.Match) middleware.Match {
	all := slices.DeleteFunc(anyOf(matches), func(match middleware.Match) bool { return match == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

// anyOf matches what one of its elements does.
type anyOf []middleware.Match

// Patterns are those of all; see [route.PatternsOf].
func (all anyOf) Patterns() (texts []string) {
	for _, match := range all {
		texts = append(texts, route.PatternsOf(match)...)
	}
	return texts
}

func (all anyOf) Matches(r *http.Request) bool {
	return slices.ContainsFunc(all, func(match middleware.Match) bool { return match.Matches(r) })
}
