package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// A compiler makes a ruleset of a Config, and collects all errors.
type compiler struct {
	set    *ruleset
	before *ruleset // the ruleset that set replaces, or an empty ruleset
	errs   []error

	refusal    Refusal // of the Config
	escalating []*rule // with Escalate
}

// A counterKey names a counter of a rule in one tier.
type counterKey struct{ rule, tier, key string }

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

// compile validates config and returns its ruleset, or everything that is wrong with it. The ruleset goes on with
// the notes and the requests in progress of before.
func compile(config Config, before *ruleset) (*ruleset, error) {
	set := &ruleset{
		Config: config, progress: map[counterKey]*progress{}, counters: map[string]string{}, tierNames: map[string]bool{},
	}
	c := &compiler{set: set, before: cmp.Or(before, &ruleset{})}
	set.notices = cmp.Or(c.before.notices, &notices{})
	set.unrouted.Detector = &set.notices.routed
	c.settings()
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
			set.unrouted.pattern = cmp.Or(set.unrouted.pattern, text)
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
	set.addresses = set.addressKeys()
	set.Rules, set.ByTier, set.ByRoute, set.Default, set.Bans.Keys = nil, nil, nil, nil, nil // the caller may change them

	most := mostOf(set.always) + max(mostByTier+mostByRoute, mostOf(set.fallback))
	set.needsTier = set.needsTier || set.byTier != nil
	set.hasBans = set.Bans.List != nil || set.Bans.Deny != nil
	set.hasHosts = set.hasHosts || !set.Shadow && hasHost(route.PatternsOf(set.Bans.Deny)...)
	set.hasGate = set.hasBans || set.hasHosts || set.Allow != nil
	set.needsRoute = set.needsRoute || set.hasBans || set.Allow != nil || set.byRoute != nil || set.Overload != nil
	c.reject(most == 0 && !set.hasBans && set.Overload == nil,
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
		most += max(1, r.mostLimits) // a rule that denies counts as one
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
	c.reject(set.Overload != nil && !reflect.TypeOf(set.Overload).Comparable(),
		inConfig.Of("Overload"), "is a %T: its type must be comparable, such as a pointer", set.Overload)
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
	deny := given.Mode == Deny
	if deny {
		_, err := limiter.NewQuotas(given.Name, "", limiter.PerSecond(1)) // checks the name
		c.check(at, err)
		given = Rule{Name: given.Name, Match: given.Match, Mode: Deny, Refusal: given.Refusal}
	}
	c.fields(at, given)
	shadow := given.Mode == Shadow || set.Shadow
	if shadow && given.OnOutage == limiter.FailClosed {
		given.OnOutage = limiter.FailLocal // it refuses nothing
	}
	r := &rule{
		Rule: given, shadow: shadow, deny: deny, together: isGlobal(given.Key), costs: given.Cost.isGiven(),
		texts: c.texts(at, given), notes: &notes{},
	}
	if before := c.before.named[given.Name]; before != nil {
		r.notes = before.notes
	}
	info.Name, info.Mode = given.Name, given.Mode
	if shadow {
		info.Mode = Shadow
	}
	if deny {
		r.info = &info
	} else {
		info.Limit, info.OnOutage, info.Counts, info.Escalate = given.Limit, given.OnOutage, given.Counts, given.Escalate
		if r.limits = c.limitsFor(at, r, info); r.limits != nil {
			r.info = r.limits.info
			c.slotsAlone(at, r)
			c.tiers(at, r, info)
			c.overrides(at, r)
		}
		c.escalation(at, r)
	}
	set.all = append(set.all, r)
	set.needsRoute = set.needsRoute || given.Match != nil || given.Key != nil && !r.together ||
		given.Cost.of != nil || given.Distinct != nil
	set.needsTier = set.needsTier || len(r.tiers) > 0
	set.hasHosts = set.hasHosts || !shadow && (hasHost(info.Route) || hasHost(route.PatternsOf(given.Match)...))
	set.chargesAfter = set.chargesAfter || r.Counts.after
	set.hasShadow = set.hasShadow || shadow
	set.hasSoft = set.hasSoft || r.SoftAt > 0
	set.hasDistinct = set.hasDistinct || r.Distinct != nil
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
	counts, cost := given.Counts, given.Cost
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
	c.reject(counts.wrong != "", at.Of("Counts"), ": %s", counts.wrong)
	c.check(at, cost.wrong)
	c.reject(cost.settles && cost.of == nil && !counts.after,
		at.Of("Reserve"), "needs an estimate, such as fixed units, for when a request comes, or must be charged afterwards")
	c.reject(counts.after && !counts.given && !cost.settles,
		at.Of("Afterwards"), "needs counts of answers, or a cost that is settled: nothing else is known only afterwards")
	if given.Distinct != nil {
		c.reject(cost.isGiven(), at.Of("Cost"), "is set, and a new distinct value costs one unit")
		c.reject(counts.after, at.Of("Afterwards"), "is set, and distinct values are charged when requests come")
	}
}

// slotsAlone checks the fields of a rule that has AtOnce alone.
func (c *compiler) slotsAlone(at invalid.Place, r *rule) {
	if !r.limits.slot {
		return
	}
	reject := func(wrong bool, field string) {
		c.reject(wrong, at.Of(field), "needs a limit: a request always takes one slot")
	}
	reject(r.Cost.isGiven(), "Cost")
	reject(r.Counts.given, "Counts")
	reject(r.Counts.after, "Afterwards")
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
		r.tiers = make(map[string]*limit, len(r.Tiers))
	}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		if tier == "" {
			c.report(at.Of("Tiers"), "has a tier without a name; Limit is for requests in no tier")
			continue
		}
		c.set.tierNames[tier] = true
		at.Tier, info.Tier, info.Limit = tier, tier, r.Tiers[tier]
		r.tiers[tier] = c.limitsFor(at, r, info)
	}
}

// limitsFor returns r's limits for the tier and Allowance of info, or nil if they are wrong.
func (c *compiler) limitsFor(at invalid.Place, r *rule, info RuleInfo) *limit {
	of := counterKey{rule: r.Name, tier: info.Tier}
	c.set.progress[of] = cmp.Or(c.before.progress[of], &progress{})
	p := c.newLimits(at, r, info, c.set.progress[of])
	if p != nil {
		r.allLimits = append(r.allLimits, p)
	}
	return p
}

func (c *compiler) newLimits(at invalid.Place, r *rule, info RuleInfo, progress *progress) *limit {
	quotas, err := r.quotasFor(info.Tier, info.Limit)
	if !c.checkLimit(at, info.Limit, err) {
		return nil
	}
	c.set.quotas = append(c.set.quotas, quotas...)
	for _, quota := range quotas {
		c.name(at, r, quota.Rule())
		c.check(at, r.fits(quota))
	}
	p := r.newLimits(quotas, &info, progress)
	r.mostLimits = max(r.mostLimits, len(quotas))
	return p
}

// newLimits returns the limit of the first quota of an Allowance. It has all of them.
func (r *rule) newLimits(quotas []*limiter.Quota, info *RuleInfo, progress *progress) (first *limit) {
	for i, quota := range quotas {
		shown := quota.Rule()
		if i == 0 {
			shown = r.Name // also if it has AtOnce alone
		}
		p := &limit{
			info: info, rule: r, shadow: r.shadow, progress: progress, other: i > 0,
			quota: quota, capacity: strconv.FormatInt(quota.Capacity(), 10),
			name:       strconv.Quote(shown), // of printable ASCII, so it escapes only quotes and backslashes
			isCalendar: quota.Limit().Calendar() != "",
			slot:       quota.InFlight(),
			turn:       quota.Algorithm() == limiter.LeakyBucket,
		}
		p.own.Most = mostOwn
		p.member = memberOf(p.name, quota.Capacity(), quota.Window())
		p.softAt, p.looks = int64(r.SoftAt), r.Counts.after && !p.slot
		if p.slot {
			p.member += concurrentUnit
			_, p.concurrency, _ = limiter.Split(info.Limit)
			p.queued = p.concurrency.Waiting > 0 && !p.shadow
		}
		if i == 0 {
			first = p
		}
		if r.Distinct != nil && i > 0 {
			first.values, p.ofValue, p.looks = p, true, r.Counts.given
			continue
		}
		first.all = append(first.all, p)
	}
	return first
}

// fits returns why r cannot have that limit, or nil.
func (r *rule) fits(quota *limiter.Quota) error {
	const why = "a leaky-bucket cannot have it, as its requests have waited when they are answered"
	limit, leaks := quota.Limit(), quota.Algorithm() == limiter.LeakyBucket
	switch {
	case quota.InFlight() || r.Distinct != nil: // requests cost one
	case r.Cost.units > quota.Capacity():
		return invalid.Field("middleware", "Units", "is %d: %v allows at most %d at once, so no request would ever pass",
			r.Cost.units, limit, quota.Capacity())
	case leaks && r.Counts.given:
		return invalid.Field("middleware", "Counts", "is %v: %s", r.Counts, why)
	case leaks && r.Counts.after:
		return invalid.Field("middleware", "Afterwards", "is set: %s", why)
	case leaks && r.Cost.settles:
		return invalid.Field("middleware", "Reserve",
			"cannot go with a leaky-bucket: a request's turn would depend on what others reserved")
	}
	return nil
}

// strikesSuffix ends the name of the counters of a rule's refusals.
const strikesSuffix = " strikes"

// quotasFor returns the quotas of an Allowance of r.
func (r *rule) quotasFor(tier string, a limiter.Allowance) ([]*limiter.Quota, error) {
	quotas, err := limiter.NewQuotas(r.Name, tier, a)
	if err == nil && r.Distinct != nil {
		quotas, err = withValues(quotas, a)
	}
	if err != nil {
		return nil, err
	}
	for _, quota := range quotas {
		quota.OnOutage, quota.Settles = r.OnOutage, r.awaitsEnd() && !quota.InFlight()
	}
	return quotas, nil
}

// escalation checks r's Escalate.
func (c *compiler) escalation(at invalid.Place, r *rule) {
	if r.Escalate == (bans.Escalation{}) {
		return
	}
	field := at.Of("Escalate")
	if c.check(field, r.Escalate.Validate()) {
		c.name(at, r, r.Name+strikesSuffix)
		refusals := limiter.Limit{Events: int64(r.Escalate.After), Per: r.Escalate.Within, Algorithm: limiter.SlidingLog}
		if strikes, err := limiter.NewQuota(r.Name+strikesSuffix, "", refusals); c.check(field, err) {
			r.strikes = strikes
			c.set.quotas = append(c.set.quotas, strikes)
		}
	}
	c.reject(r.Escalate.Outcomes && !r.Counts.given, field.Of("Outcomes"),
		"needs counts, which say which answers lead to a ban")
	c.reject(r.together, field, "bans keys, and Key is keyfunc.Global, the key of all clients")
	c.reject(c.set.Bans.List == nil, field, "needs Config.Bans.List, which it adds to: "+
		"Bans: middleware.Bans{List: bans.Must(bans.New(bans.Options{}))}, of package middleware/bans")
	c.escalating = append(c.escalating, r)
	c.set.hasEscalation = c.set.hasEscalation || !r.shadow
}
