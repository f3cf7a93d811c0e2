package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// Config is what [New] takes.
type Config struct {
	// Rules are checked together on every request: all of those that match are
	// charged, or none is. At least one is required, at most 64 can be given.
	Rules []Rule

	// Store holds the counters. Nil: a [limiter.Memory] of this limiter's own.
	Store limiter.Store

	// Headers says which header fields responses carry. Zero: HeadersBoth.
	Headers Headers

	// OnRefused answers in place of Weir when a request is refused. The header
	// fields, Retry-After among them, are set already; the status is not, so call
	// w.WriteHeader(result.Status). Nil: a short body in the format that the client
	// accepts.
	OnRefused func(w http.ResponseWriter, r *http.Request, result Result)

	// CountPreflights makes CORS preflights count like other requests. Left false,
	// a preflight (OPTIONS with Origin and Access-Control-Request-Method) passes
	// uncounted, because a refused one would break the call that it asks for. Any
	// other OPTIONS request counts in either case.
	CountPreflights bool

	// Logger receives this limiter's warnings about misconfiguration. Nil:
	// slog.Default(), where keyfunc and Route log theirs in any case.
	Logger *slog.Logger
}

// A Rule is one limit on some requests, counted for each key apart.
type Rule struct {
	// Name is required and unique in a Config. Clients see it in the RateLimit
	// fields: 1 to 128 characters of printable ASCII.
	Name string

	// Key says who is asking. Nil: one counter for all requests that match.
	Key keyfunc.Func

	// Limit is required. With Tiers, it is for requests in none of them.
	Limit limiter.Limit

	// Tiers are limits for some callers, by the name given to [WithTier].
	Tiers Tiers

	// Match says which requests the rule is for; see [Route]. Nil: all.
	Match func(*http.Request) bool

	// Cost is how many units a request takes. Nil: 1. A result below 1 counts as 1,
	// and one above what the limit allows at once is refused without a Retry-After,
	// so bound what a client can influence.
	Cost func(*http.Request) int64

	// NoKey says what happens to a request that has no key, or whose key function
	// fails. Zero: NoKeyShare.
	NoKey NoKey

	// OnOutage says what happens while the store's server gives no answer: count in this
	// process (Local), let pass (Open), or answer 503 (Closed). Where the rules of a
	// request differ, Closed goes before the others. It is the store that does this:
	// package redisstore's does, and package failover makes any other. Zero: Local.
	OnOutage limiter.Outage
}

// Tiers are limits by tier name. A request that [WithTier] puts in one of them is
// counted against that limit instead of the rule's own, in a counter apart.
type Tiers map[string]limiter.Limit

// NoKey says what a rule does with a request for which its key function has no key.
// None of the choices lets a request pass uncounted by accident.
type NoKey uint8

const (
	// NoKeyShare counts all requests without a key on one shared counter.
	NoKeyShare NoKey = iota

	// NoKeySkip leaves requests that have no key to the other rules. A key function
	// that fails with another error than keyfunc.ErrNoKey still shares a counter.
	NoKeySkip

	// NoKeyBadRequest answers 400. No rule is charged for such a request.
	NoKeyBadRequest

	// NoKeyUnauthorized answers 401, with a WWW-Authenticate field that names the
	// Bearer scheme unless one is set already. No rule is charged for it either.
	NoKeyUnauthorized
)

// rule is a Rule that was checked.
type rule struct {
	Rule
	policy  *policy            // for requests in no tier
	tiers   map[string]*policy // nil without
	oneKey  oneKeyDetector
	failure onceWarning
}

// policyFor is the policy for requests in that tier.
func (r *rule) policyFor(tier string) *policy {
	if p, ok := r.tiers[tier]; ok {
		return p
	}
	return r.policy
}

// compile checks c and returns its rules, or everything that is wrong with it.
func (c *Config) compile() ([]*rule, error) {
	var errs []error
	report := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("middleware: "+format, args...))
	}
	if len(c.Rules) == 0 {
		report("Config.Rules is empty: at least one rule is needed")
	}
	if len(c.Rules) > limiter.MaxCharges {
		report("Config.Rules has %d rules: at most %d are possible", len(c.Rules), limiter.MaxCharges)
	}
	if c.Headers > HeadersNone {
		report("Config.Headers is %d: there is no such choice", c.Headers)
	}
	rules := make([]*rule, 0, len(c.Rules))
	names := map[string]bool{}
	for i, given := range c.Rules {
		if given.Name != "" && names[given.Name] {
			report("Rules[%d]: there is another rule named %q", i, given.Name)
		}
		names[given.Name] = true
		if given.NoKey > NoKeyUnauthorized {
			report("Rules[%d] %q: NoKey is %d: there is no such choice", i, given.Name, given.NoKey)
		}
		if err := given.OnOutage.Validate(); err != nil {
			report("Rules[%d] %q: %w", i, given.Name, err)
		}
		compiled := &rule{Rule: given}
		compile := func(what, tier string, l limiter.Limit) *policy {
			quota, err := limiter.NewQuota(given.Name, tier, l)
			if err != nil {
				report("Rules[%d] %q%s: %w", i, given.Name, what, err)
				return nil
			}
			quota.OnOutage = given.OnOutage
			return newPolicy(quota)
		}
		compiled.policy = compile("", "", given.Limit)
		if compiled.policy != nil && len(given.Tiers) > 0 {
			compiled.tiers = make(map[string]*policy, len(given.Tiers))
			for tier, l := range given.Tiers {
				if tier == "" {
					report("Rules[%d] %q: Tiers has a tier without a name; Limit is for requests in no tier", i, given.Name)
					continue
				}
				compiled.tiers[tier] = compile(fmt.Sprintf(" tier %q", tier), tier, l)
			}
		}
		rules = append(rules, compiled)
	}
	return rules, errors.Join(errs...)
}
