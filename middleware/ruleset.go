package middleware

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/internal/bounded"
	"github.com/weirgo/weir/internal/missing"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/internal/seldom"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A ruleset is a validated Config, in the form that decides requests.
type ruleset struct {
	Config
	limiter  *RateLimit
	all      []*rule
	named    map[string]*rule // all, for Allow
	always   []*rule
	byTier   map[string][]*rule
	byRoute  *route.Tree[[]*rule] // nil without Config.ByRoute
	routed   string               // a pattern of byRoute that needs a route; empty: none does
	fallback []*rule              // Config.Default

	legacyFields [3]string // limit, remaining, reset
	retryField   string    // repeats Retry-After; empty without Headers.RetryAfter

	limitsAll  bool // Rules, or ByRoute for /*, limits every request
	needsRoute bool // something may read r.Pattern
	needsTier  bool // a rule depends on the tier
	hasHosts   bool // a rule that is not in shadow, or Bans.Deny, has a pattern with a host
	hasBans    bool // some requests may be banned
	hasGate    bool // something may refuse or exempt a request before its rules
	hasSoft    bool // a rule has SoftAt

	needs []int // the features whose parts all requests need

	counters map[string]string // by name, the rules that have them
	quotas   []*limiter.Quota  // of all limits, and of refusals

	banKeys      []*rule // whose keys are looked up in the list of bans
	bansInShadow rule    // stands for a ban in visit.shadowed

	addresses []keyfunc.Func // of the clients of preflights

	gateway [2]func() *route.Routes // of Gateway, with letters as they are and folded; made when first needed

	tierNames map[string]bool // of all rules
	vetting   vetting         // of routes
}

// A rule is a validated Rule.
type rule struct {
	Rule                         // with the Refusal that it inherits
	shadow    bool               // it refuses nothing
	together  bool               // Key is keyfunc.Global, and is not called: all requests count under noKey
	isPartial bool               // requests that it matches may cost nothing
	info      *RuleInfo          // for requests in no tier
	limits    *family            // for requests in no tier; nil with Deny
	tiers     map[string]*family // nil without Tiers
	families  []*family          // in no tier and in tiers, in order
	strikes   *limiter.Quota     // counts refusals; nil without Escalate
	streams   Match              // on which routes Refusal.Stream applies; nil: on none

	cost func(*http.Request) (int64, error) // of a request; nil: 1

	// reads reads what the rule counts by beside the key. Nil: nothing else.
	reads func(v *visit, r *http.Request, f *family, key string, class keyfunc.Class) (counts bool, no *refusal)

	most  int // limits of a request
	notes *notes
}

// notes are what a rule keeps when the rules change.
type notes struct {
	refused seldom.Log // requests that would have been refused

	keys missing.Detector // of clients; found by any request, also before a change of the rules

	progress sync.Map // *progress of slots, by tier

	reserved, settled, unsettled atomic.Uint64 // units; see Reservations
	lines                        sync.Map      // *line of Refusal.Paced, by tier

	// A quota for each name and tier that the rule and its own limits have used lately, for Reset.
	mu            sync.Mutex
	quotas, older map[counterKey]*limiter.Quota
}

// A family has the limits that a rule has for the requests of one tier, or of one client.
type family struct {
	rule  *rule
	info  *RuleInfo
	rates []*meter // the limits
	slots []*meter // its AtOnce, if it has one

	needs    []int               // the features that its requests need
	values   []*meter            // of Distinct: counts each value
	queue    limiter.Concurrency // of slots: how many requests may wait, and how long
	progress *progress           // of slots
	line     *line               // of Refusal.Paced; nil: none
	ofTier   *family             // of an override that ends: the limits of the rule then

	// Of the limits of a tier.
	overrides map[string]*family                      // by key; nil without Overrides
	own       bounded.Map[limiter.Allowance, *family] // the limits of clients
	err       error                                   // why the rule cannot have a client's own limit
}

// A meter is a quota with the texts of the header fields that never change.
type meter struct {
	*family
	quota    *limiter.Quota
	capacity string // X-RateLimit-Limit
	name     string // as clients see it, in quotes: the same in Structured Fields (RFC 9651) and in JSON
	member   string // in RateLimit-Policy: "ip";q=100;w=60
	unit     string // ends the member; empty: requests in a period

	most   int64 // that a request costs
	atOnce int64 // the most that a request is charged when it comes; the rest when it ends

	isCalendar bool // its windows differ in length
	hasTurns   bool // it is a LeakyBucket
	open       bool // the end of a request may change its charge
}

// limits returns what requests count by, slots last.
func (f *family) limits() []*meter { return slices.Concat(f.rates, f.slots) }

// all returns all meters.
func (f *family) all() []*meter { return slices.Concat(f.rates, f.slots, f.values) }

// isSlot reports whether m counts requests in progress.
func (m *meter) isSlot() bool { return m.unit != "" }

// isFirst reports whether m is the first limit of its rule, which stands for the rule where rules are listed.
func (m *meter) isFirst() bool { return m == m.family.first() }

func (f *family) first() *meter {
	if len(f.rates) > 0 {
		return f.rates[0]
	}
	return f.slots[0]
}
