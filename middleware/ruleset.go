package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// A ruleset is a Config that was checked, in the form that requests are decided by.
type ruleset struct {
	Config
	all      []*rule
	always   []*rule
	byTier   map[string]*rule
	byRoute  *byRoute // nil without
	fallback *rule    // for requests that byRoute has none for

	limitField, remainingField, resetField string // of HeadersLegacy

	most          int  // limits that one request can meet
	needsRoute    bool // some rule may look at r.Pattern
	needsTier     bool // some rule asks for the tier
	hasBans       bool // some requests are banned
	hasShadow     bool // not every refusal by a rule is one of the request
	hasEscalation bool // some rule counts its refusals
	hasPlaces     bool // some rule has Concurrency
	hasQueues     bool // and requests wait for it
	awaitsEnds    bool // some rule goes by how a request ends
	chargesAfter  bool // and some is charged only then

	// Those that stay are the same after a change of the others. The quotas are also of
	// refusals, by what they count.
	infos    map[string]*RuleInfo // by their text
	families map[string][]*limiter.Quota
	quotas   []*limiter.Quota // all of these
	progress map[counters]*progress

	banKeys       []banKey
	banKeyFailure keyFailure
	shadowedBans  shadowCount

	check     func(*limiter.Quota) error // of the store; nil: it takes all
	ownLimits ownLimits

	addresses []keyfunc.Func // that may tell the address of a client without credentials

	notices   *notices
	calendar  *calendar
	tierNames map[string]bool // of all rules
	vetted    atomic.Bool     // for names that are misspelt
}

// byRoute is the rules by route, of which one applies to a request.
type byRoute struct {
	tree     route.Tree[*rule]
	first    string // a pattern that needs a route, to name in a warning
	unrouted unroutedDetector
}

// forRoute is the one rule for the route that was chosen for r, or nil.
func (set *ruleset) forRoute(r *http.Request) *rule {
	by := set.byRoute
	if by == nil {
		return set.fallback
	}
	if r.Pattern == "" {
		by.unrouted.blank(set.Logger, by.first)
	} else {
		by.unrouted.seen()
	}
	if rule, ok := by.tree.Find(r.Method, r.Host, r.Pattern); ok {
		return rule
	}
	return set.fallback
}

// rule is a Rule that was checked.
type rule struct {
	Rule
	and     *rule              // the next one for the same requests; nil: there is none
	info    *RuleInfo          // for requests in no tier
	reply   *reply             // nil: what Weir answers by itself
	policy  *policy            // for requests in no tier; nil with Deny
	tiers   map[string]*policy // nil without
	strikes *limiter.Quota     // what refusals count against; nil without Escalate

	overrides map[string]limiter.Limit // by the key's text

	notes *notes
	owner *notices // those of the limiter, by which it is known
}

// notes are what was noticed about a rule. They outlive a change of the rules, so as not
// to tell it again.
type notes struct {
	oneKey     oneKeyDetector
	failure    keyFailure
	escalation onceWarning
	shadowed   shadowCount
	idle       onceWarning
	unlimited  onceWarning
	patience   onceWarning

	limits       limitCache // of single keys
	limitFailure onceWarning
}

// policyFor is the policy for requests in that tier.
func (r *rule) policyFor(tier string) *policy {
	if p, ok := r.tiers[tier]; ok {
		return p
	}
	return r.policy
}

// most is how many limits and places a request can meet by r and those for the same requests.
func (r *rule) most() (most int) {
	for ; r != nil; r = r.and {
		limits := max(1, len(r.Limits)) // also of one that denies, for it to be counted as a rule
		for _, of := range r.TierLimits {
			limits = max(limits, len(of))
		}
		if r.Concurrency.Max > 0 || len(r.TierConcurrency) > 0 {
			limits++
		}
		most += limits
	}
	return most
}

// A compiler makes a ruleset of a Config, and notes all that is wrong with it.
type compiler struct {
	set    *ruleset
	before *ruleset          // which the set replaces; nil: none
	kept   map[string]*notes // of before's rules
	names  map[counters]bool
	errs   []error

	refusal    Refusal  // for all rules
	escalating []banKey // keys of the rules that ban them
}

// counters are named so in a store.
type counters struct{ rule, tier string }

func (c *compiler) report(format string, args ...any) {
	c.errs = append(c.errs, invalid.New("middleware", format, args...))
}

// compile checks config and returns what requests are decided by, or everything that is
// wrong with it. What is the same in before is taken over.
func compile(config Config, before *ruleset) (*ruleset, error) {
	set := &ruleset{Config: config, infos: map[string]*RuleInfo{}, families: map[string][]*limiter.Quota{}, progress: map[counters]*progress{}, tierNames: map[string]bool{}}
	c := &compiler{set: set, before: before, kept: map[string]*notes{}, names: map[counters]bool{}}
	set.notices, set.calendar = &notices{}, &calendar{}
	if before != nil {
		set.notices, set.calendar = before.notices, before.calendar
		for _, r := range before.all {
			c.kept[r.Name] = r.notes
		}
	}
	c.settings()
	for i, given := range config.Rules {
		rule := c.rules(fmt.Sprintf("Rules[%d]", i), given, RuleInfo{})
		set.always = append(set.always, rule)
		set.most += rule.most()
	}
	mostByTier, mostByRoute := 0, 0
	if len(config.ByTier) > 0 {
		set.byTier = make(map[string]*rule, len(config.ByTier))
		for _, tier := range slices.Sorted(maps.Keys(config.ByTier)) {
			if tier == "" {
				c.report("ByTier has a tier without a name; Rules are for requests in any tier")
			}
			rule := c.rules(fmt.Sprintf("ByTier[%q]", tier), config.ByTier[tier], RuleInfo{ForTier: tier})
			set.byTier[tier] = rule
			set.tierNames[tier] = true
			mostByTier = max(mostByTier, rule.most())
		}
	}
	if len(config.ByRoute) > 0 {
		set.byRoute = &byRoute{}
		for _, text := range slices.Sorted(maps.Keys(config.ByRoute)) {
			rule := c.rules(fmt.Sprintf("ByRoute[%q]", text), config.ByRoute[text], RuleInfo{Route: text})
			mostByRoute = max(mostByRoute, rule.most())
			pattern, err := route.ParseRule(text)
			if !pattern.IsForAll() {
				set.byRoute.first = cmp.Or(set.byRoute.first, text)
			}
			if err != nil {
				c.report("ByRoute: %w", err)
			} else if other, ok := set.byRoute.tree.Add(pattern, rule); !ok {
				c.report("ByRoute[%q] %q: it is the same route as that of %q", text, rule.Name, other.Name)
			}
		}
	}
	if config.Default != nil {
		set.fallback = c.rules("Default", *config.Default, RuleInfo{})
		mostByRoute = max(mostByRoute, set.fallback.most())
	}
	if set.banKeys == nil {
		set.banKeys = c.escalating
	}
	if set.Bans != nil && len(set.banKeys) == 0 {
		c.report("Config.Bans needs Config.BanKeys, or a rule with Escalate: no key is looked up in it")
	}
	if set.DenyKey != nil && len(set.banKeys) == 0 {
		c.report("Config.DenyKey needs Config.BanKeys, or a rule with Escalate: it is asked about no key")
	}
	set.addresses = set.addressKeys()
	set.Rules, set.ByTier, set.ByRoute, set.Default, set.BanKeys = nil, nil, nil, nil, nil // they are the caller's

	set.most += mostByTier + mostByRoute
	set.needsTier = set.needsTier || set.byTier != nil
	set.hasBans = set.Bans != nil || set.DenyKey != nil || set.deny != nil
	set.needsRoute = set.needsRoute || set.hasBans || set.Allow != nil || set.byRoute != nil || set.Overload != nil
	if set.most == 0 && !set.hasBans && set.Overload == nil {
		c.report("Config.Rules is empty: at least one rule is needed")
	}
	if set.most > limiter.MaxCharges {
		c.report("Config.Rules has %d rules: at most %d limits are possible for one request, with those of ByTier and ByRoute", len(set.always), limiter.MaxCharges)
	}
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	return set, nil
}

func (c *compiler) settings() {
	set := c.set
	if set.Headers > HeadersNone {
		c.report("Config.Headers is %d: there is no such choice", set.Headers)
	}
	if err := set.Legacy.Validate(); err != nil {
		c.report("Config: %w", err)
	}
	if set.Legacy != (LegacyFields{}) && (set.Headers == HeadersDraft11 || set.Headers == HeadersNone) {
		c.report("Config.Legacy is set, and Config.Headers sends none of these fields")
	}
	set.limitField, set.remainingField, set.resetField = set.Legacy.names()
	switch set.BanStatus {
	case 0:
		set.BanStatus = http.StatusForbidden
	case http.StatusForbidden, http.StatusTooManyRequests:
	default:
		c.report("Config.BanStatus is %d: it must be 403 or 429", set.BanStatus)
	}
	if set.Overload != nil && !reflect.TypeOf(set.Overload).Comparable() {
		c.report("Config.Overload is a %T: it must be of a type that can be compared, such as a pointer", set.Overload)
	}
	if err := set.Refusal.Validate(); err != nil {
		c.report("Config: %w", err)
	} else if set.Refusal.RetryAfter != 0 {
		c.report("Config.Refusal.RetryAfter is %v: it is for a rule that denies, as a limit knows by itself", set.Refusal.RetryAfter)
	} else {
		c.refusal = set.Refusal
	}
	c.match("Config.Allow", set.Allow)
	for i, key := range set.BanKeys {
		if key == nil {
			c.report("Config.BanKeys[%d] is nil", i)
		}
		set.banKeys = append(set.banKeys, banKey{read: key})
	}
	if len(set.BanKeys) > 0 && set.Bans == nil && set.DenyKey == nil {
		c.report("Config.BanKeys needs Config.Bans or DenyKey, a list to look the keys up in")
	}
}

// match checks a function that may be what Route returned.
func (c *compiler) match(at string, match func(*http.Request) bool) {
	if err := route.WrongMatch(match); err != nil {
		c.report("%s: %w", at, err)
	}
}

// rules checks a Rule and those in its And.
func (c *compiler) rules(at string, given Rule, info RuleInfo) *rule {
	first := c.rule(at, given, info)
	last := first
	for i, other := range given.And {
		at := fmt.Sprintf("%s %q And[%d]", at, given.Name, i)
		if len(other.And) > 0 {
			c.report("%s %q: And is set: put its rules beside this one", at, other.Name)
		}
		last.and = c.rule(at, other, info)
		last = last.and
	}
	return first
}

// rule checks a Rule, which is for the info's Route or ForTier. What it returns is only good
// for use if nothing was reported.
func (c *compiler) rule(at string, given Rule, info RuleInfo) *rule {
	c.name(at, given.Name, "")
	at = fmt.Sprintf("%s %q", at, given.Name)
	if given.Deny {
		if _, err := limiter.NewQuota(given.Name, "", limiter.PerSecond(1)); err != nil { // for its name
			c.report("%s: %w", at, err)
		}
		given = Rule{Name: given.Name, Match: given.Match, Shadow: given.Shadow, Deny: true, Refusal: given.Refusal}
	}
	c.match(at+" Match", given.Match)
	if given.NoKey > NoKeyUnauthorized {
		c.report("%s: NoKey is %d: there is no such choice", at, given.NoKey)
	}
	if err := given.OnOutage.Validate(); err != nil {
		c.report("%s: %w", at, err)
	}
	if given.SoftAt < 0 || given.SoftAt > 99 {
		c.report("%s: SoftAt is %d: it must be a percentage from 1 to 99, or 0 for no warning", at, given.SoftAt)
	}
	if given.SoftAt > 0 && c.set.NoResult && c.set.Headers == HeadersNone {
		c.report("%s: SoftAt is %d, and with Config.NoResult and HeadersNone nothing would tell of it", at, given.SoftAt)
	}
	if given.Units < 0 {
		c.report("%s: Units is %d: it must not be negative", at, given.Units)
	}
	if given.Units != 0 && given.Cost != nil {
		c.report("%s: Units is %d, and there is a Cost: keep one", at, given.Units)
	}
	c.end(at, given)
	given.Shadow = given.Shadow || c.set.Shadow
	if given.Shadow && given.OnOutage == limiter.FailClosed {
		given.OnOutage = limiter.FailLocal // it refuses nothing
	}
	r := &rule{Rule: given, notes: c.notes(given.Name), owner: c.set.notices}
	info.Name, info.Shadow, info.Deny = given.Name, given.Shadow, given.Deny
	r.reply = c.reply(at, given)
	if given.Deny {
		r.info = c.info(info)
		c.set.all = append(c.set.all, r)
		c.set.needsRoute = c.set.needsRoute || given.Match != nil
		return r
	}
	info.OnOutage = given.OnOutage
	info.Counts, info.Settles, info.ChargeAfter, info.Escalate = given.Counts, given.Settles, given.ChargeAfter, given.Escalate
	limits := c.limits(at, given)
	if limits == nil {
		c.withoutLimit(at, given)
	}
	info.Concurrency = given.Concurrency
	if r.policy = c.policy(at, r, info, limits); r.policy != nil {
		r.info = r.policy.info
		c.tiers(at, r, info, limits)
		c.overrides(at, r)
	}
	c.escalation(at, r)

	set := c.set
	set.all = append(set.all, r)
	set.needsRoute = set.needsRoute || given.Match != nil || given.Key != nil || given.Cost != nil
	set.needsTier = set.needsTier || len(r.tiers) > 0
	set.awaitsEnds = set.awaitsEnds || r.awaitsEnd()
	set.chargesAfter = set.chargesAfter || r.ChargeAfter
	set.hasShadow = set.hasShadow || given.Shadow
	return r
}

// end checks what is said of how requests end.
func (c *compiler) end(at string, given Rule) {
	if wrong := given.Counts.wrong; wrong != "" {
		c.report("%s: Counts: %s", at, wrong)
	}
	if given.Counts.given && c.set.NoResult {
		c.report("%s: Counts is %v, and with Config.NoResult a request's end is not known", at, given.Counts)
	}
	if given.Settles && c.set.NoResult {
		c.report("%s: Settles is set, and with Config.NoResult no handler could say what a request cost", at)
	}
	if given.Settles && given.Cost == nil && given.Units == 0 && !given.ChargeAfter {
		c.report("%s: Settles needs a Cost or Units, which are reserved when a request comes, or ChargeAfter", at)
	}
	if given.ChargeAfter && !given.Counts.given && !given.Settles {
		c.report("%s: ChargeAfter needs Counts or Settles: nothing else is known only afterwards", at)
	}
}

// notes are those of the rule that had this name before, or new ones.
func (c *compiler) notes(name string) *notes {
	if kept := c.kept[name]; kept != nil {
		return kept
	}
	return &notes{}
}

// name notes the name of counters, which are for a tier or for requests in none.
func (c *compiler) name(at, name, tier string) {
	if name != "" && c.names[counters{name, tier}] {
		c.report("%s: there is another rule named %q", at, name)
	}
	c.names[counters{name, tier}] = true
}

// limits are those of a rule, for requests in no tier.
func (c *compiler) limits(at string, given Rule) []limiter.Limit {
	switch {
	case given.Limits == nil && given.Limit == (limiter.Limit{}) && given.Concurrency != (limiter.Concurrency{}):
		return nil // it has nothing else
	case given.Limits == nil:
		return []limiter.Limit{given.Limit}
	case len(given.Limits) == 0:
		c.report("%s: Limits is empty: leave it out, or name some", at)
	case given.Limit != (limiter.Limit{}):
		c.report("%s: Limit is %v, and there are Limits: keep one of the two", at, given.Limit)
	}
	return slices.Clone(given.Limits)
}

// tiers makes r's policies for requests in tiers. What is not said of one is what the rule has
// for others: those limits, and the info's Concurrency.
func (c *compiler) tiers(at string, r *rule, info RuleInfo, others []limiter.Limit) {
	limits := make(map[string][]limiter.Limit, len(r.Tiers)+len(r.TierLimits)+len(r.TierConcurrency))
	for tier := range r.TierConcurrency {
		limits[tier] = others
	}
	for tier, l := range r.Tiers {
		limits[tier] = []limiter.Limit{l}
	}
	for tier, several := range r.TierLimits {
		if _, both := r.Tiers[tier]; both {
			c.report("%s: tier %q is in Tiers and in TierLimits: keep one of the two", at, tier)
		}
		if len(several) == 0 {
			c.report("%s: TierLimits[%q] is empty: leave it out, or name some", at, tier)
		}
		limits[tier] = slices.Clone(several)
	}
	if len(limits) > 0 {
		r.tiers = make(map[string]*policy, len(limits))
	}
	for _, tier := range slices.Sorted(maps.Keys(limits)) {
		if tier == "" {
			c.report("%s: Tiers has a tier without a name; Limit is for requests in no tier", at)
			continue
		}
		c.set.tierNames[tier] = true
		info.Tier, info.Concurrency = tier, r.Concurrency
		if of, ok := r.TierConcurrency[tier]; ok {
			info.Concurrency = of
			if of == (limiter.Concurrency{}) {
				c.report("%s: TierConcurrency[%q]: %w", at, tier, of.Validate())
			}
		}
		r.tiers[tier] = c.policy(fmt.Sprintf("%s tier %q", at, tier), r, info, limits[tier])
	}
}

// policy is the one of r's that info tells of, with these limits, or nil if something is wrong
// with it.
func (c *compiler) policy(at string, r *rule, info RuleInfo, limits []limiter.Limit) *policy {
	concurrent := info.Concurrency != (limiter.Concurrency{})
	if len(limits) == 0 && !concurrent {
		return nil
	}
	var quotas []*limiter.Quota
	if len(limits) > 0 {
		quotas = c.quotas(at, family{rule: r.Name, tier: info.Tier, limits: limits, onOutage: r.OnOutage, settles: r.awaitsEnd()})
		if quotas == nil {
			return nil
		}
		info.Limit = limits[0]
	}
	if len(limits) > 1 {
		info.Limits = limits
	}
	shared := c.info(info)
	var place *policy
	if concurrent {
		if place = c.place(at, r, info, len(limits) == 0); place == nil {
			return nil
		}
		place.info, place.rule, place.softAt = shared, r, int64(r.SoftAt)
		if len(limits) == 0 {
			return place
		}
	}
	policies := make([]*policy, len(quotas))
	for i, quota := range quotas {
		p := newPolicy(quota, quota.Rule())
		p.info, p.rule, p.softAt, p.other = shared, r, int64(r.SoftAt), i > 0
		policies[i] = p
		if p.other || info.Tier != "" { // else it is the rule's own
			c.name(at, quota.Rule(), info.Tier)
		}
		if most := quota.Capacity(); r.Units > most && !r.Settles {
			c.report("%s: Units is %d: %v allows at most %d at once, so that no request would ever pass", at, r.Units, quota.Limit(), most)
		}
		if quota.Algorithm() == limiter.LeakyBucket {
			const why = "a leaky-bucket has none, as its requests have waited when they are answered"
			if r.Counts.given {
				c.report("%s: Counts is %v: %s", at, r.Counts, why)
			}
			if r.ChargeAfter {
				c.report("%s: ChargeAfter is set: %s", at, why)
			}
		}
	}
	p := policies[0]
	p.others, p.place = policies[1:], place
	c.idle(r, info, limits)
	return p
}

// overrides checks the limits of single keys. No message has a key in it.
func (c *compiler) overrides(at string, r *rule) {
	if r.hasOwn() && r.Key == nil {
		c.report("%s: Overrides and LimitFor need a Key, as they are for single keys", at)
	}
	if r.hasOwn() && r.policy.isPlace() {
		c.report("%s: Overrides and LimitFor need a Limit, which others have", at)
		return
	}
	r.overrides = maps.Clone(r.Overrides)
	for key, l := range r.overrides {
		if _, ok := keyfunc.DigestOf(key); ok {
			c.report("%s: Overrides has the digest of a key: it has to be the key, as no request has a digest", at)
		}
		if key == noKey {
			c.report("%s: Overrides has an empty key", at)
		}
		if err := r.takes(l); err != nil {
			c.report("%s: Overrides: %w", at, err)
			continue
		}
		if !c.set.notices.isPossible(l) {
			c.report("%s: Overrides: the keys of a limiter's rules can have %d different limits", at, mostOwn)
			return
		}
		own, err := c.set.own(r.policy, l)
		if err != nil {
			c.report("%s: Overrides: %w", at, err)
			continue
		}
		c.set.quotas = append(c.set.quotas, own.quota)
		if most := own.quota.Capacity(); r.Units > most && !r.Settles {
			c.report("%s: Overrides: Units is %d: %v allows at most %d at once, so that no request of its key would ever pass", at, r.Units, l, most)
		}
	}
}

// idle warns of a limit that has no effect beside a stricter one.
func (c *compiler) idle(r *rule, info RuleInfo, limits []limiter.Limit) {
	for _, l := range limits {
		for _, by := range limits {
			if l == by || !by.Implies(l) {
				continue
			}
			r.notes.idle.warn(c.set.Logger, "weir-idle-limit",
				"weir: a limit has no effect, as another one of its rule is stricter in any period",
				slog.String("rule", r.Name), slog.String("tier", info.Tier),
				slog.String("limit", l.String()), slog.String("by", by.String()))
			return
		}
	}
}

// info is an equal one that was there before, or a new one.
func (c *compiler) info(info RuleInfo) *RuleInfo {
	kept, text := &info, fmt.Sprintf("%#v", info)
	if c.before != nil && c.before.infos[text] != nil {
		kept = c.before.infos[text]
	}
	c.set.infos[text] = kept
	return kept
}

// strikesSuffix is what the counters of a rule's refusals are called, after the rule.
const strikesSuffix = " strikes"

// A family is what the quotas of one rule in one tier are for.
type family struct {
	rule, tier string
	limits     []limiter.Limit
	places     int64 // in place of limits
	onOutage   limiter.Outage
	settles    bool
}

// quotas are those that were there before, or new ones, or nil if something is wrong with them.
func (c *compiler) quotas(at string, f family) []*limiter.Quota {
	text := fmt.Sprintf("%#v", f)
	var quotas []*limiter.Quota
	if c.before != nil {
		quotas = c.before.families[text]
	}
	if quotas == nil {
		var err error
		if quotas, err = f.make(); err != nil {
			c.report("%s: %w", at, err)
			return nil
		}
		for _, quota := range quotas {
			quota.OnOutage, quota.Settles = f.onOutage, f.settles
		}
	}
	c.set.families[text] = quotas
	c.set.quotas = append(c.set.quotas, quotas...)
	return quotas
}

func (f *family) make() ([]*limiter.Quota, error) {
	if f.places == 0 {
		return limiter.NewQuotas(f.rule, f.tier, f.limits)
	}
	q, err := limiter.NewConcurrency(f.rule, f.tier, f.places)
	return []*limiter.Quota{q}, err
}

// quota is quotas for a single limit.
func (c *compiler) quota(at string, f family) *limiter.Quota {
	if quotas := c.quotas(at, f); quotas != nil {
		return quotas[0]
	}
	return nil
}

// escalation checks what r's refusals lead to.
func (c *compiler) escalation(at string, r *rule) {
	if r.Escalate == (bans.Escalation{}) {
		return
	}
	if err := r.Escalate.Validate(); err != nil {
		c.report("%s: Escalate: %w", at, err)
	} else {
		c.name(at, r.Name+strikesSuffix, "")
		r.strikes = c.quota(at+" Escalate", family{rule: r.Name + strikesSuffix, limits: []limiter.Limit{strikes(r.Escalate)}})
	}
	if r.Escalate.Outcomes && !r.Counts.given {
		c.report("%s: Escalate.Outcomes needs Counts, which says which answers lead to a ban", at)
	}
	if r.Key == nil {
		c.report("%s: Escalate needs a Key, as it is keys that are banned", at)
	}
	c.escalating = append(c.escalating, banKey{r.Key, r.OnOutage == limiter.FailOpen})
	if c.set.Bans == nil {
		c.report("%s: Escalate needs Config.Bans, a list to add to", at)
	}
	c.set.hasEscalation = c.set.hasEscalation || !r.Shadow
}
