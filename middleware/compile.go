package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/limiter"
)

// A compiler makes a ruleset of a Config, and collects all errors.
type compiler struct {
	set    *ruleset
	before *ruleset // the ruleset that set replaces, or an empty ruleset
	errs   []error

	refusal    Refusal // of the Config
	escalating []*rule // with Escalate
}

func (c *compiler) report(at invalid.Place, reason string, args ...any) {
	c.errs = append(c.errs, invalid.At("middleware", at, reason, args...))
}

// reject reports a setting that is wrong.
func (c *compiler) reject(wrong bool, at invalid.Place, reason string, args ...any) {
	if wrong {
		c.report(at, reason, args...)
	}
}

// check reports err, if it is not nil, and returns whether it is nil.
func (c *compiler) check(at invalid.Place, err error) (ok bool) {
	c.errs = append(c.errs, invalid.Within("middleware", at, err))
	return err == nil
}

// inConfig is the place of the fields that are not of rules.
var inConfig = invalid.Place{Field: "Config"}

// compile validates config and returns its ruleset for l, or everything that is wrong with it. Rules with the names of
// rules in force go on with their notes.
func compile(config Config, l *RateLimit) (*ruleset, error) {
	set := &ruleset{
		Config: config, limiter: l, counters: map[string]string{}, tierNames: map[string]bool{},
	}
	c := &compiler{set: set, before: cmp.Or(l.rules.Load(), &ruleset{})}
	set.bansInShadow.notes = &notes{}
	c.settings()
	for i := range features {
		if config := features[i].config; config != nil && config(c) {
			set.needs = append(set.needs, i)
		}
	}
	for i, given := range config.Rules {
		set.always = append(set.always, c.rule(fmt.Sprintf("Rules[%d]", i), given, RuleInfo{}))
	}
	mostByTier, mostByRoute := 0, 0
	if len(config.ByTier) > 0 {
		set.byTier = make(map[string][]*rule, len(config.ByTier))
	}
	for _, tier := range slices.Sorted(maps.Keys(config.ByTier)) {
		c.reject(tier == "", inConfig.Of("ByTier"), "has a tier without a name; use Rules for requests in any tier")
		rules := c.rules(fmt.Sprintf("ByTier[%q]", tier), config.ByTier[tier], RuleInfo{ForTier: tier})
		set.byTier[tier] = rules
		set.tierNames[tier] = true
		mostByTier = max(mostByTier, mostOf(rules))
	}
	if len(config.ByRoute) > 0 {
		set.byRoute = &route.Tree[[]*rule]{}
	}
	for _, text := range slices.Sorted(maps.Keys(config.ByRoute)) {
		rules := c.rules(fmt.Sprintf("ByRoute[%q]", text), config.ByRoute[text], RuleInfo{Route: text})
		mostByRoute = max(mostByRoute, mostOf(rules))
		set.limitsAll = set.limitsAll || isForAll(text) && limitsAll(rules)
		pattern, err := route.ParseRule(text)
		if !pattern.IsForAll() {
			set.routed = cmp.Or(set.routed, text)
		}
		if c.check(inConfig.Of("ByRoute"), err) {
			if other, ok := set.byRoute.Add(pattern, rules); !ok && len(rules) > 0 && len(other) > 0 {
				at := invalid.Place{Rule: fmt.Sprintf("ByRoute[%q] %q", text, rules[0].Name)}
				c.report(at, "it is the same route as for %q", other[0].Name)
			}
		}
	}
	set.limitsAll = set.limitsAll || limitsAll(set.always)
	if config.Default != nil {
		set.fallback = c.rules("Default", config.Default, RuleInfo{Default: true})
	}
	if set.banKeys == nil {
		set.banKeys = c.escalating
	}
	c.reject(set.Bans.List != nil && len(set.banKeys) == 0,
		inConfig.Of("Bans"), "has a List, but no key is looked up: it needs Keys, or a rule with Escalate")
	c.checkPaced()
	c.checkStreams()
	set.addresses = set.addressKeys()
	set.Rules, set.ByTier, set.ByRoute, set.Default, set.Bans.Keys = nil, nil, nil, nil, nil // the caller may change them

	most := mostOf(set.always) + max(mostByTier+mostByRoute, mostOf(set.fallback))
	set.needsTier = set.needsTier || set.byTier != nil
	set.hasBans = set.Bans.List != nil || set.Bans.Deny != nil
	set.hasHosts = set.hasHosts || !set.Shadow && hasHost(route.PatternsOf(set.Bans.Deny)...)
	set.hasGate = set.hasBans || set.hasHosts || set.Allow != nil
	set.needsRoute = set.needsRoute || set.hasBans || set.Allow != nil || set.byRoute != nil
	c.reject(most == 0 && !set.hasBans && len(set.needs) == 0,
		inConfig.Of("Rules"), "is empty: at least one rule is needed")
	c.reject(most > limiter.MaxCharges, inConfig.Of("Rules"),
		"has %d rules: one request can meet at most %d limits, those of ByTier and ByRoute included",
		len(set.always), limiter.MaxCharges)
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	for fold := range set.gateway {
		set.gateway[fold] = sync.OnceValue(func() *route.Routes { return set.gatewayRoutes(fold == 1) })
	}
	set.named = make(map[string]*rule, len(set.all))
	for _, r := range set.all {
		set.named[r.Name] = r
	}
	return set, nil
}

// mostOf returns how many limits a request can meet by rules for the same requests.
func mostOf(rules []*rule) (most int) {
	for _, r := range rules {
		most += max(1, r.most) // a rule that denies counts as one
	}
	return most
}

// settings checks the fields that are not of rules.
func (c *compiler) settings() {
	set := c.set
	c.check(inConfig, set.Headers.Validate())
	set.legacyFields = [3]string{set.Headers.name("-Limit"), set.Headers.name("-Remaining"), set.Headers.name("-Reset")}
	if set.Headers.RetryAfter {
		set.retryField = set.Headers.name("-Retry-After")
	}
	switch set.Bans.Status {
	case 0:
		set.Bans.Status = http.StatusForbidden
	case http.StatusForbidden, http.StatusTooManyRequests:
		c.reject(set.Bans.List == nil && set.Bans.Deny == nil,
			inConfig.Of("Bans.Status"), "is %d, and nothing bans: it needs List or Deny", set.Bans.Status)
	default:
		c.report(inConfig.Of("Bans.Status"), "is %d: it must be 403 or 429", set.Bans.Status)
	}
	if c.check(inConfig, set.Refusal.Validate()) {
		c.refusal = set.Refusal
		c.reject(set.Refusal.RetryAfter != 0,
			inConfig.Of("Refusal.RetryAfter"), "is %v: it is only for a rule that denies, as a limit computes it", set.Refusal.RetryAfter)
	}
	c.check(inConfig.Of("Allow"), route.Wrong(set.Allow))
	c.check(inConfig.Of("Bans.Deny"), route.Wrong(set.Bans.Deny))
	for i, key := range set.Bans.Keys {
		c.reject(key == nil, invalid.Place{Field: fmt.Sprintf("Config.Bans.Keys[%d]", i)}, "is nil")
		set.banKeys = append(set.banKeys, &rule{Rule: Rule{Key: key}})
	}
	c.reject(len(set.Bans.Keys) > 0 && set.Bans.List == nil, inConfig.Of("Bans.Keys"), "is set, and needs a List")
}

// rules compiles the rules for the same requests.
func (c *compiler) rules(in string, given []Rule, info RuleInfo) (all []*rule) {
	c.reject(len(given) == 0, invalid.Place{Field: in}, "has no rule: remove it, or add a rule")
	for _, r := range given {
		all = append(all, c.rule(in, r, info))
	}
	return all
}

// rule compiles a Rule, for the Route, ForTier or Default of info. The result must not be used if an error was
// reported.
func (c *compiler) rule(in string, given Rule, info RuleInfo) *rule {
	set, at := c.set, invalid.Place{Rule: fmt.Sprintf("%s %q", in, given.Name)}
	c.reject(given.Name != "" && set.counters[given.Name] != "",
		at, "there is another rule named %q", given.Name)
	set.counters[given.Name] = given.Name
	if given.Mode == Deny {
		_, err := limiter.NewQuotas(given.Name, "", limiter.PerSecond(1)) // checks the name
		c.check(at, err)
		given = Rule{Name: given.Name, Match: given.Match, Mode: Deny, Refusal: given.Refusal}
	}
	c.fields(at, given)
	shadow := given.Mode == Shadow || set.Shadow
	if shadow && given.OnOutage == limiter.FailClosed {
		given.OnOutage = limiter.FailLocal // it refuses nothing
	}
	r := &rule{Rule: given, shadow: shadow, together: isGlobal(given.Key), notes: &notes{}}
	r.Refusal = c.inherited(at, given)
	r.streams = c.streams(at, given, r.Refusal, info.Route)
	if given.Cost.isGiven() {
		r.cost = r.Cost.read
	}
	if before := c.before.named[given.Name]; before != nil {
		r.notes = before.notes
	}
	for i := range features {
		if check := features[i].rule; check != nil {
			check(c, at, r)
		}
	}
	info.Name, info.Mode = given.Name, given.Mode
	if shadow {
		info.Mode = Shadow
	}
	if r.info = &info; given.Mode != Deny {
		info.Limit, info.OnOutage, info.Counts, info.Escalate = given.Limit, given.OnOutage, given.Counts, given.Escalate
		if r.limits = c.familyOfTier(at, r, info); r.limits != nil {
			r.info = r.limits.info
			c.tiers(at, r, info)
			c.compileOverrides(at, r)
		}
	}
	set.all = append(set.all, r)
	set.needsRoute = set.needsRoute || given.Match != nil || given.Key != nil && !r.together || given.Cost.of != nil
	set.needsTier = set.needsTier || len(r.tiers) > 0
	set.hasHosts = set.hasHosts || !shadow && (hasHost(info.Route) || hasHost(route.PatternsOf(given.Match)...))
	set.hasSoft = set.hasSoft || r.SoftAt > 0
	return r
}

// hasHost reports whether one of these patterns has a host.
func hasHost(texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		p, err := route.ParseRule(text)
		return err == nil && p.Host != ""
	})
}

// fields checks the fields of a rule, except for its limits, Escalate and Refusal.
func (c *compiler) fields(at invalid.Place, given Rule) {
	c.check(at.Of("Match"), route.Wrong(given.Match))
	c.reject(given.Key == nil && given.Mode != Deny,
		at.Of("Key"), "is required; keyfunc.Global counts all requests together")
	c.reject(given.Mode > Deny, at.Of("Mode"), "is %d: there is no such choice", given.Mode)
	c.reject(given.NoKey > NoKeyUnauthorized, at.Of("NoKey"), "is %d: there is no such choice", given.NoKey)
	c.check(at, given.OnOutage.Validate())
	c.reject(given.SoftAt < 0 || given.SoftAt > 99,
		at.Of("SoftAt"), "is %d: it must be a percentage from 1 to 99, or 0 for no warning", given.SoftAt)
	c.reject(given.SoftAt > 0 && !c.set.Results && c.set.Headers.Send == HeadersNone,
		at.Of("SoftAt"), "is %d, and with HeadersNone and without Config.Results nobody would see the warning", given.SoftAt)
	c.check(at, given.Cost.wrong)
}

// name registers the name of a rule's counters.
func (c *compiler) name(at invalid.Place, r *rule, name string) {
	at.Field = ""
	other := c.set.counters[name]
	c.reject(other != "" && other != r.Name, at, "there is another rule named %q", name)
	c.set.counters[name] = r.Name
}

// tiers makes r's limits for tiers.
func (c *compiler) tiers(at invalid.Place, r *rule, info RuleInfo) {
	if len(r.Tiers) > 0 {
		r.tiers = make(map[string]*family, len(r.Tiers))
	}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		if tier == "" {
			c.report(at.Of("Tiers"), "has a tier without a name; Limit is for requests in no tier")
			continue
		}
		c.set.tierNames[tier] = true
		at.Tier, info.Tier, info.Limit = tier, tier, r.Tiers[tier]
		r.tiers[tier] = c.familyOfTier(at, r, info)
	}
}

// familyOfTier returns r's limits for the tier and Allowance of info, or nil if they are wrong.
func (c *compiler) familyOfTier(at invalid.Place, r *rule, info RuleInfo) *family {
	f := c.family(at, r, info)
	if f != nil {
		r.families = append(r.families, f)
	}
	return f
}

// family returns r's limits for the Allowance of info, or nil if they are wrong.
func (c *compiler) family(at invalid.Place, r *rule, info RuleInfo) *family {
	f, err := r.newFamily(info)
	if !c.checkLimit(at, info.Limit, err) {
		return nil
	}
	all := f.all()
	for _, m := range all {
		c.set.quotas = append(c.set.quotas, m.quota)
		c.name(at, r, m.quota.Rule())
	}
	for _, m := range f.limits() {
		c.check(at, r.fits(m.quota))
	}
	r.most = max(r.most, len(all))
	return f
}

// newFamily returns the limits of r for the Allowance of info.
func (r *rule) newFamily(info RuleInfo) (*family, error) {
	quotas, err := limiter.NewQuotas(r.Name, info.Tier, info.Limit)
	if err != nil {
		return nil, err
	}
	f := &family{rule: r, info: &info}
	f.own.Most = mostOwn
	for i, quota := range quotas {
		shown := quota.Rule()
		if i == 0 {
			shown = r.Name // also if it has AtOnce alone
		}
		if m := f.newMeter(quota, shown); quota.InFlight() {
			f.slots = append(f.slots, m)
		} else {
			f.rates = append(f.rates, m)
		}
	}
	for i := range features {
		complete := features[i].family
		if complete == nil {
			continue
		}
		needed, err := complete(f)
		if err != nil {
			return nil, err
		}
		if needed {
			f.needs = append(f.needs, i)
		}
	}
	return f, nil
}

func (f *family) newMeter(quota *limiter.Quota, shown string) *meter {
	quota.OnOutage = f.rule.OnOutage
	m := &meter{
		family: f, quota: quota, capacity: strconv.FormatInt(quota.Capacity(), 10),
		name:       strconv.Quote(shown), // of printable ASCII, so it escapes only quotes and backslashes
		isCalendar: quota.Limit().Calendar() != "", hasTurns: quota.Algorithm() == limiter.LeakyBucket,
		most: math.MaxInt64, atOnce: math.MaxInt64,
	}
	m.member = memberOf(m.name, quota.Capacity(), quota.Window())
	return m
}

// fits returns why r cannot have that limit, or nil.
func (r *rule) fits(quota *limiter.Quota) error {
	var errs []error
	if !quota.InFlight() && r.Cost.units > quota.Capacity() {
		errs = append(errs, invalid.Field("middleware", "Units", "is %d: %v allows at most %d at once, so no request would ever pass",
			r.Cost.units, quota.Limit(), quota.Capacity()))
	}
	for i := range features {
		if fits := features[i].quota; fits != nil {
			errs = append(errs, fits(r, quota))
		}
	}
	return errors.Join(errs...)
}
