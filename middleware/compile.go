package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// A compiler makes a ruleset of a Config, and collects all errors.
type compiler struct {
	set    *ruleset
	before *ruleset          // the one that set replaces; nil: none
	kept   map[string]*notes // of the rules of before
	names  map[counters]bool
	errs   []error

	refusal    Refusal  // of the Config
	escalating []banKey // keys of the rules with Escalate
}

// counters is the name of counters in a store.
type counters struct{ rule, tier string }

func (c *compiler) report(format string, args ...any) {
	c.errs = append(c.errs, invalid.New("middleware", format, args...))
}

// compile validates config and returns its ruleset, or everything that is wrong with it. It keeps what is
// the same in before.
func compile(config Config, before *ruleset) (*ruleset, error) {
	set := &ruleset{Config: config, infos: map[RuleInfo]*RuleInfo{}, families: map[family][]*limiter.Quota{}, progress: map[counters]*progress{}, tierNames: map[string]bool{}}
	c := &compiler{set: set, before: before, kept: map[string]*notes{}, names: map[counters]bool{}}
	set.notices = &notices{}
	if before != nil {
		set.notices = before.notices
		for _, r := range before.all {
			c.kept[r.Name] = r.notes
		}
	}
	c.settings()
	for i, given := range config.Rules {
		set.always = append(set.always, c.rule(fmt.Sprintf("Rules[%d]", i), given, RuleInfo{}))
	}
	set.most = mostOf(set.always)
	mostByTier, mostByRoute := 0, 0
	if len(config.ByTier) > 0 {
		set.byTier = make(map[string][]*rule, len(config.ByTier))
		for _, tier := range slices.Sorted(maps.Keys(config.ByTier)) {
			if tier == "" {
				c.report("ByTier has a tier without a name; use Rules for requests in any tier")
			}
			rules := c.rules(fmt.Sprintf("ByTier[%q]", tier), config.ByTier[tier], RuleInfo{ForTier: tier})
			set.byTier[tier] = rules
			set.tierNames[tier] = true
			mostByTier = max(mostByTier, mostOf(rules))
		}
	}
	if len(config.ByRoute) > 0 {
		set.byRoute = &byRoute{}
		for _, text := range slices.Sorted(maps.Keys(config.ByRoute)) {
			rules := c.rules(fmt.Sprintf("ByRoute[%q]", text), config.ByRoute[text], RuleInfo{Route: text})
			mostByRoute = max(mostByRoute, mostOf(rules))
			pattern, err := route.ParseRule(text)
			if !pattern.IsForAll() {
				set.byRoute.first = cmp.Or(set.byRoute.first, text)
			}
			if err != nil {
				c.report("ByRoute: %w", err)
			} else if other, ok := set.byRoute.tree.Add(pattern, rules); !ok && len(rules) > 0 && len(other) > 0 {
				c.report("ByRoute[%q] %q: it is the same route as for %q", text, rules[0].Name, other[0].Name)
			}
		}
	}
	if config.Default != nil {
		set.fallback = c.rules("Default", config.Default, RuleInfo{})
		mostByRoute = max(mostByRoute, mostOf(set.fallback))
	}
	if set.banKeys == nil {
		set.banKeys = c.escalating
	}
	if (set.Bans.List != nil || set.Bans.DenyKey != nil) && len(set.banKeys) == 0 {
		c.report("Config.Bans has a List or DenyKey, but no key is looked up: it needs Keys, or a rule with Escalate")
	}
	set.addresses = set.addressKeys()
	set.Rules, set.ByTier, set.ByRoute, set.Default, set.Bans.Keys = nil, nil, nil, nil, nil // the caller may change them

	set.most += mostByTier + mostByRoute
	set.needsTier = set.needsTier || set.byTier != nil
	set.hasBans = set.Bans.List != nil || set.Bans.DenyKey != nil || set.Bans.Deny != nil
	set.needsRoute = set.needsRoute || set.hasBans || set.Allow != nil || set.byRoute != nil || set.Overload != nil
	if set.most == 0 && !set.hasBans && set.Overload == nil {
		c.report("Config.Rules is empty: at least one rule is needed")
	}
	if set.most > limiter.MaxCharges {
		c.report("Config.Rules has %d rules: one request can meet at most %d limits, those of ByTier and ByRoute included", len(set.always), limiter.MaxCharges)
	}
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

func (c *compiler) settings() {
	set := c.set
	if err := set.Headers.Validate(); err != nil {
		c.report("Config: %w", err)
	}
	set.limitField, set.remainingField, set.resetField = set.Headers.names()
	switch set.Bans.Status {
	case 0:
		set.Bans.Status = http.StatusForbidden
	case http.StatusForbidden, http.StatusTooManyRequests:
		if set.Bans.List == nil && set.Bans.DenyKey == nil && set.Bans.Deny == nil {
			c.report("Config.Bans.Status is %d, and nothing bans: it needs List, DenyKey or Deny", set.Bans.Status)
		}
	default:
		c.report("Config.Bans.Status is %d: it must be 403 or 429", set.Bans.Status)
	}
	if set.Overload != nil && !reflect.TypeOf(set.Overload).Comparable() {
		c.report("Config.Overload is a %T: its type must be comparable, such as a pointer", set.Overload)
	}
	if err := set.Refusal.Validate(); err != nil {
		c.report("Config: %w", err)
	} else if set.Refusal.RetryAfter != 0 {
		c.report("Config.Refusal.RetryAfter is %v: it is only for a rule that denies, as a limit computes it", set.Refusal.RetryAfter)
	} else {
		c.refusal = set.Refusal
	}
	c.match("Config.Allow", set.Allow)
	c.match("Config.Bans.Deny", set.Bans.Deny)
	for i, key := range set.Bans.Keys {
		if key == nil {
			c.report("Config.Bans.Keys[%d] is nil", i)
		}
		set.banKeys = append(set.banKeys, banKey{read: key})
	}
	if len(set.Bans.Keys) > 0 && set.Bans.List == nil && set.Bans.DenyKey == nil {
		c.report("Config.Bans.Keys is set, and needs a List or DenyKey")
	}
}

func (c *compiler) match(at string, match Match) {
	if err := route.Wrong(match); err != nil {
		c.report("%s: %w", at, err)
	}
}

// rules checks the rules for the same requests.
func (c *compiler) rules(at string, given []Rule, info RuleInfo) (all []*rule) {
	if len(given) == 0 {
		c.report("%s has no rule: remove it, or add a rule", at)
	}
	for _, r := range given {
		all = append(all, c.rule(at, r, info))
	}
	return all
}

// rule compiles a Rule, for the Route or ForTier of info. The result must not be used if an error was
// reported.
func (c *compiler) rule(at string, given Rule, info RuleInfo) *rule {
	c.name(at, given.Name, "")
	at = fmt.Sprintf("%s %q", at, given.Name)
	deny := given.Mode == Deny
	if deny {
		if _, err := limiter.NewQuota(given.Name, "", limiter.PerSecond(1)); err != nil { // checks the name
			c.report("%s: %w", at, err)
		}
		given = Rule{Name: given.Name, Match: given.Match, Mode: Deny, Refusal: given.Refusal}
	}
	c.match(at+" Match", given.Match)
	if given.Mode > Deny {
		c.report("%s: Mode is %d: there is no such choice", at, given.Mode)
	}
	if given.NoKey > NoKeyUnauthorized {
		c.report("%s: NoKey is %d: there is no such choice", at, given.NoKey)
	}
	if err := given.OnOutage.Validate(); err != nil {
		c.report("%s: %w", at, err)
	}
	if given.SoftAt < 0 || given.SoftAt > 99 {
		c.report("%s: SoftAt is %d: it must be a percentage from 1 to 99, or 0 for no warning", at, given.SoftAt)
	}
	if given.SoftAt > 0 && c.set.NoResult && c.set.Headers.Send == HeadersNone {
		c.report("%s: SoftAt is %d, and with Config.NoResult and HeadersNone nobody would see the warning", at, given.SoftAt)
	}
	c.end(at, given)
	c.distinct(at, given)
	shadow := given.Mode == Shadow || c.set.Shadow
	if shadow && given.OnOutage == limiter.FailClosed {
		given.OnOutage = limiter.FailLocal // it refuses nothing
	}
	r := &rule{Rule: given, shadow: shadow, deny: deny, notes: c.notes(given.Name)}
	info.Name, info.Mode = given.Name, given.Mode
	if shadow {
		info.Mode = Shadow
	}
	r.reply = c.reply(at, given)
	if deny {
		r.info = c.info(info)
		c.set.all = append(c.set.all, r)
		c.set.needsRoute = c.set.needsRoute || given.Match != nil
		return r
	}
	info.OnOutage, info.Counts, info.Escalate = given.OnOutage, given.Counts, given.Escalate
	if r.policy = c.policy(at, r, info, given.Limit); r.policy != nil {
		r.info = r.policy.info
		if r.policy.isSlot() {
			c.withoutLimit(at, given)
		}
		c.tiers(at, r, info)
		c.own(at, r)
	}
	c.escalation(at, r)

	set := c.set
	set.all = append(set.all, r)
	set.needsRoute = set.needsRoute || given.Match != nil || given.Key != nil || given.Cost.of != nil || given.Distinct != nil
	set.needsTier = set.needsTier || len(r.tiers) > 0
	set.awaitsEnds = set.awaitsEnds || r.awaitsEnd()
	set.chargesAfter = set.chargesAfter || r.Counts.after
	set.hasShadow = set.hasShadow || shadow
	set.hasDistinct = set.hasDistinct || r.Distinct != nil
	return r
}

// end checks the fields about how requests end.
func (c *compiler) end(at string, given Rule) {
	if wrong := given.Counts.wrong; wrong != "" {
		c.report("%s: Counts: %s", at, wrong)
	}
	if given.Counts.given && c.set.NoResult {
		c.report("%s: Counts is %v, and with Config.NoResult the end of a request is unknown", at, given.Counts)
	}
	if wrong := given.Cost.wrong; wrong != "" {
		c.report("%s: %s", at, wrong)
	}
	if given.Cost.settles && c.set.NoResult {
		c.report("%s: Cost is a Reserve, and with Config.NoResult no handler can say what a request cost", at)
	}
	if given.Cost.settles && given.Cost.of == nil && !given.Counts.after {
		c.report("%s: Reserve needs a function, whose result is reserved when a request comes, or Afterwards", at)
	}
	if given.Counts.after && !given.Counts.given && !given.Cost.settles {
		c.report("%s: Afterwards needs statuses in Counts, or Reserve: nothing else is known only afterwards", at)
	}
}

// notes returns the notes of the rule that had this name before, or new ones.
func (c *compiler) notes(name string) *notes {
	if kept := c.kept[name]; kept != nil {
		return kept
	}
	return &notes{}
}

// name registers the name of counters. The tier may be empty.
func (c *compiler) name(at, name, tier string) {
	if name != "" && c.names[counters{name, tier}] {
		c.report("%s: there is another rule named %q", at, name)
	}
	c.names[counters{name, tier}] = true
}

// tiers makes r's policies for tiers.
func (c *compiler) tiers(at string, r *rule, info RuleInfo) {
	if len(r.Tiers) > 0 {
		r.tiers = make(map[string]*policy, len(r.Tiers))
	}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		if tier == "" {
			c.report("%s: Tiers has a tier without a name; Limit is for requests in no tier", at)
			continue
		}
		c.set.tierNames[tier] = true
		info.Tier = tier
		r.tiers[tier] = c.policy(fmt.Sprintf("%s tier %q", at, tier), r, info, r.Tiers[tier])
	}
}

// policy returns r's policy for the tier of info, with the allowance a, or nil if a is wrong.
func (c *compiler) policy(at string, r *rule, info RuleInfo, a limiter.Allowance) *policy {
	if err := r.countable(a); err != nil {
		c.report("%s: %w", at, err)
		return nil
	}
	quotas := c.quotas(at, r.family(info.Tier, a))
	if quotas == nil {
		return nil
	}
	info.Limit = a
	_, atOnce, _ := limiter.Split(a)
	for i, quota := range quotas {
		if name := quota.Rule(); name != r.Name || info.Tier != "" { // the rule's own name is registered
			c.name(at, name, info.Tier)
		}
		switch {
		case quota.InFlight():
			c.set.hasSlots = true
			c.set.hasQueues = c.set.hasQueues || atOnce.Waiting > 0 && !r.shadow
		case r.Distinct != nil && i > 0: // it counts values
		default:
			if err := r.fits(quota.Limit()); err != nil {
				c.report("%s: %w", at, err)
			}
		}
	}
	r.parts = max(r.parts, len(quotas))
	return r.newPolicy(quotas, c.info(info), c.progress(counters{r.Name, info.Tier}))
}

// newPolicy returns the policy of the first quota of an Allowance. Its parts are the policies of all.
func (r *rule) newPolicy(quotas []*limiter.Quota, info *RuleInfo, progress *progress) (first *policy) {
	for i, quota := range quotas {
		shown := quota.Rule()
		if i == 0 {
			shown = r.Name // also if it has AtOnce alone
		}
		p := newPolicy(quota, shown)
		p.info, p.rule, p.shadow, p.progress, p.other = info, r, r.shadow, progress, i > 0
		p.looks = r.Counts.after && !p.isSlot()
		if p.isSlot() {
			_, p.concurrency, _ = limiter.Split(info.Limit)
		}
		if i == 0 {
			first = p
		}
		if r.Distinct != nil && i > 0 {
			first.values, p.ofValue = p, true
			continue
		}
		first.parts = append(first.parts, p)
	}
	return first
}

// fits returns why r cannot have that limit, or nil.
func (r *rule) fits(l limiter.Limit) error {
	const why = "a leaky-bucket cannot have it, as its requests have waited when they are answered"
	quota, err := limiter.NewQuota(r.Name, "", l)
	switch {
	case err != nil:
		return err
	case r.Cost.units > quota.Capacity():
		return fmt.Errorf("%s is %d: %v allows at most %d at once, so no request would ever pass", invalid.Name("Units"), r.Cost.units, l, quota.Capacity())
	case l.Algorithm == limiter.LeakyBucket && r.Counts.given:
		return fmt.Errorf("%s is %v: %s", invalid.Name("Counts"), r.Counts, why)
	case l.Algorithm == limiter.LeakyBucket && r.Counts.after:
		return fmt.Errorf("%s is set: %s", invalid.Name("Afterwards"), why)
	}
	return nil
}

// own checks the limits of single keys. No message contains a key.
func (c *compiler) own(at string, r *rule) {
	if r.LimitFor == nil {
		return
	}
	if r.Key == nil {
		c.report("%s: LimitFor needs a Key, as it has the limits of single keys", at)
	}
	var known LimitMap
	switch of := r.LimitFor.(type) {
	case LimitMap:
		known = maps.Clone(of)
		r.LimitFor = known
		for _, a := range known {
			r.parts = max(r.parts, partsOf(a))
		}
	case LimitFunc:
		if of == nil {
			c.report("%s: LimitFor is a nil LimitFunc", at)
		}
		c.set.hasSlots, c.set.hasQueues = true, true // a key may have AtOnce
		r.parts = max(r.parts, mostOwnParts)
	default:
		c.report("%s: LimitFor is a %T: it must be a LimitMap or a LimitFunc", at, of)
	}
	for key, a := range known {
		if _, ok := keyfunc.DigestOf(key); ok {
			c.report("%s: LimitFor has the digest of a key: it must be the key itself", at)
		}
		if key == noKey {
			c.report("%s: LimitFor has an empty key", at)
		}
		if err := r.takes(a); err != nil {
			c.report("%s: LimitFor: %w", at, err)
			continue
		}
		if !c.set.notices.isPossible(a) {
			c.report("%s: LimitFor: the keys of a limiter's rules can have at most %d different limits", at, mostOwn)
			return
		}
		own, err := c.set.own(r.policy, a)
		if err != nil {
			c.report("%s: LimitFor: %w", at, err)
			continue
		}
		if slots := own.slots(); slots != nil {
			c.set.hasSlots = true
			c.set.hasQueues = c.set.hasQueues || slots.concurrency.Waiting > 0 && !r.shadow
		}
	}
}

// info returns an equal RuleInfo of before, or a new one.
func (c *compiler) info(info RuleInfo) *RuleInfo {
	kept := &info
	if c.before != nil && c.before.infos[info] != nil {
		kept = c.before.infos[info]
	}
	c.set.infos[info] = kept
	return kept
}

// strikesSuffix ends the name of the counters of a rule's refusals.
const strikesSuffix = " strikes"

// A family identifies the quotas of one rule in one tier.
type family struct {
	rule, tier string
	allows     limiter.Allowance
	onOutage   limiter.Outage
	settles    bool
	distinct   bool
}

func (r *rule) family(tier string, a limiter.Allowance) family {
	return family{r.Name, tier, a, r.OnOutage, r.awaitsEnd(), r.Distinct != nil}
}

// quotas returns the quotas of before, or new ones, or nil if f is wrong.
func (c *compiler) quotas(at string, f family) []*limiter.Quota {
	var quotas []*limiter.Quota
	if _, _, err := limiter.Split(f.allows); c.before != nil && err == nil { // a wrong one may be no key of a map
		quotas = c.before.families[f]
	}
	if quotas == nil {
		var err error
		if quotas, err = f.make(); err != nil {
			c.report("%s: %w", at, err)
			return nil
		}
	}
	c.set.families[f] = quotas
	c.set.quotas = append(c.set.quotas, quotas...)
	return quotas
}

func (f *family) make() ([]*limiter.Quota, error) {
	quotas, err := limiter.NewQuotas(f.rule, f.tier, f.allows)
	if f.distinct && err == nil {
		var values *limiter.Quota
		values, err = limiter.NewQuota(f.rule+valuesSuffix, f.tier, oneOf(quotas[0].Limit()))
		quotas = append(quotas, values)
	}
	if err != nil {
		return nil, err
	}
	for _, quota := range quotas {
		quota.OnOutage, quota.Settles = f.onOutage, f.settles && !quota.InFlight()
	}
	return quotas, nil
}

// escalation checks r's Escalate.
func (c *compiler) escalation(at string, r *rule) {
	if r.Escalate == (bans.Escalation{}) {
		return
	}
	if err := r.Escalate.Validate(); err != nil {
		c.report("%s: Escalate: %w", at, err)
	} else {
		c.name(at, r.Name+strikesSuffix, "")
		if quotas := c.quotas(at+" Escalate", family{rule: r.Name + strikesSuffix, allows: strikes(r.Escalate)}); quotas != nil {
			r.strikes = quotas[0]
		}
	}
	if r.Escalate.Outcomes && !r.Counts.given {
		c.report("%s: Escalate.Outcomes needs Counts, which says which answers lead to a ban", at)
	}
	if r.Key == nil {
		c.report("%s: Escalate needs a Key, as it bans keys", at)
	}
	c.escalating = append(c.escalating, banKey{r.Key, r.OnOutage == limiter.FailOpen})
	if c.set.Bans.List == nil {
		c.report("%s: Escalate needs Config.Bans.List, which it adds to", at)
	}
	c.set.hasEscalation = c.set.hasEscalation || !r.shadow
}

func (c *compiler) progress(of counters) *progress {
	p := &progress{}
	if c.before != nil && c.before.progress[of] != nil {
		p = c.before.progress[of]
	}
	c.set.progress[of] = p
	return p
}

// withoutLimit checks the fields of a rule that has AtOnce alone.
func (c *compiler) withoutLimit(at string, given Rule) {
	for _, field := range []struct {
		name  string
		given bool
	}{
		{"Cost", given.Cost.isGiven()},
		{"Counts", given.Counts.given},
		{"Afterwards", given.Counts.after},
	} {
		if field.given {
			c.report("%s: %s needs a Limit: a request always takes one slot of AtOnce", at, field.name)
		}
	}
}

// distinct checks the fields beside Distinct.
func (c *compiler) distinct(at string, given Rule) {
	switch {
	case given.Distinct == nil:
	case given.Cost.isGiven():
		c.report("%s: Cost is set, and with Distinct a new value costs one unit", at)
	case given.Counts.after:
		c.report("%s: Afterwards is set, and with Distinct requests are charged when they come", at)
	}
}

// mostOf returns how many policies a request can meet by rules for the same requests.
func mostOf(rules []*rule) (most int) {
	for _, r := range rules {
		most += max(1, r.parts) // a rule that denies counts as one
	}
	return most
}
