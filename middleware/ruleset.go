package middleware

import (
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/bounded"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A ruleset is a validated Config, in the form that decides requests.
type ruleset struct {
	Config
	all      []*rule
	named    map[string]*rule // all, for Allow
	always   []*rule
	byTier   map[string][]*rule
	byRoute  *route.Tree[[]*rule] // nil without Config.ByRoute
	unrouted unroutedDetector     // of byRoute
	fallback []*rule              // Config.Default

	legacyFields [3]string // limit, remaining, reset
	retryField   string    // repeats Retry-After; empty without Headers.RetryAfter

	limitsAll     bool // Rules, or ByRoute for /*, limits every request
	needsRoute    bool // something may read r.Pattern
	needsTier     bool // a rule depends on the tier
	hasHosts      bool // a rule that is not in shadow, or Bans.Deny, has a pattern with a host
	hasBans       bool // some requests may be banned
	hasGate       bool // something may refuse or exempt a request before its rules
	hasShadow     bool // a rule is in shadow
	hasSoft       bool // a rule has SoftAt
	hasDistinct   bool // a rule has Distinct
	hasEscalation bool // a rule counts its refusals
	hasEnds       bool // a rule has overrides that end
	chargesAfter  bool // a rule has Afterwards

	counters map[string]string        // by name, the rules that have them
	quotas   []*limiter.Quota         // of all limits, and of refusals
	progress map[counterKey]*progress // kept when the rules change

	banKeys   []*rule // whose keys are looked up in the list of bans
	bansNotes notes   // of bans in shadow

	check func(*limiter.Quota) error // by the store
	now   func() time.Time           // of the limiter

	addresses []keyfunc.Func // of the clients of preflights

	gateway [2]func() *route.Routes // of Gateway, with letters as they are and folded; made when first needed

	notices   *notices
	tierNames map[string]bool // of all rules
	vetting   vetting         // of routes
}

// A rule is a validated Rule.
type rule struct {
	Rule
	shadow    bool              // it refuses nothing
	deny      bool              // it refuses all
	costs     bool              // Cost is given
	together  bool              // Key is keyfunc.Global, and is not called: all requests count under noKey
	info      *RuleInfo         // for requests in no tier
	texts     *Refusal          // of its refusals
	limits    *limit            // for requests in no tier; nil with Deny
	tiers     map[string]*limit // nil without Tiers
	allLimits []*limit          // in no tier and in tiers, in order
	strikes   *limiter.Quota    // counts refusals; nil without Escalate

	mostLimits int // that it has for a key

	notes *notes
}

// A progress counts the requests in progress of a rule in one tier. It survives a change of the rules.
type progress struct{ requests, waiting atomic.Int64 }

// A limit is a quota with the texts of the header fields that never change. A rule has one for each limit and AtOnce of
// its Allowance; the first stands for all of them.
type limit struct {
	info     *RuleInfo
	quota    *limiter.Quota
	capacity string // X-RateLimit-Limit
	name     string // as clients see it, in quotes: the same in Structured Fields (RFC 9651) and in JSON
	member   string // in RateLimit-Policy: "ip";q=100;w=60

	isCalendar bool // its windows differ in length

	rule   *rule
	slot   bool  // it is the rule's AtOnce, not one of its limits
	queued bool  // requests may wait for the slot
	turn   bool  // it is a LeakyBucket
	shadow bool  // the rule's
	softAt int64 // percent, here as each response needs it
	looks  bool  // requests are charged when their answer is known

	all   []*limit // of the first: all of the rule, slots last; of the others nil
	other bool     // it is not the first

	values  *limit // of the first of a rule with Distinct: the limit that counts values
	ofValue bool   // it counts values, and is shown to nobody

	progress *progress // of slots

	base *limit // of an override that ends: the first limit of the rule then

	// Of the first limits of a rule and its tiers.
	overrides map[string]*limit                      // by key; nil without Overrides
	own       bounded.Map[limiter.Allowance, *limit] // the limits of clients

	concurrency limiter.Concurrency // of a slot

	err error // why the rule cannot have a client's own limit
}

// slots returns the limit of p that is the rule's AtOnce, or nil.
func (p *limit) slots() *limit {
	if last := p.all[len(p.all)-1]; last.slot {
		return last
	}
	return nil
}
