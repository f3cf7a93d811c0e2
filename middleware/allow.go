package middleware

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// Allow limits r by one rule from within a handler, for a key that only the handler knows:
//
//	if !limits.Allow(w, r, "login", name) {
//		return
//	}
//
// The key has the same counter as if the rule's key function had returned it. Each call charges the
// rule, even if [RateLimit.Handler] has charged it for r. No other rule is charged, and Rule.Match has
// no effect. Config.Allow and bans apply, to r and to the key. Allow adds the rule to the header fields
// of the limiters that r has passed. For a LeakyBucket it waits for r's turn. If it returns false, it has
// answered r.
//
// The key may be what a client wrote, so it is no client's address and no user: if Rule.Escalate bans the
// name "203.0.113.7", only later calls of Allow with that name are refused. The list of bans has the key
// with "handler:" in front. With Escalate any client that can send a name can lock it out of Allow.
//
// Allow does not know how r ends, so it answers 503 for a rule with AtOnce, Counts or Reserve. It also
// answers 503 if no rule has the name. Both log a warning with code weir-allow-rule.
func (l *RateLimit) Allow(w http.ResponseWriter, r *http.Request, rule, key string) bool {
	// With another URL and no request line it is a request that a handler made: the limiters that r has
	// passed do not take it for r.
	own := *r
	if r.URL != nil {
		u := *r.URL
		own.URL = &u
	}
	own.RequestURI = ""
	defer func() { r.Body, r.MultipartForm = own.Body, own.MultipartForm }() // a key of Config.Bans may have read them
	passed, _ := l.begin(l.rules.Load(), w, &own, nil, &oneRule{rule, key}, nil)
	return passed != nil
}

// handlerKey returns what a key that Allow was given is banned under. It differs from all keys of
// requests.
func handlerKey(key string) string { return "handler:" + key }

// A oneRule is the rule and the key that Allow was given.
type oneRule struct{ name, key string }

// matchOne is match for one rule, with its key.
func (set *ruleset) matchOne(r *http.Request, one *oneRule, policies []applied, charges []limiter.Charge) (_ []applied, _ []limiter.Charge, skipped *rule, _ *refusal) {
	why := "it does not exist"
	if named := set.named[one.name]; named != nil {
		rule := *named
		rule.Match = nil
		key, _ := keyfunc.Classify(one.key)
		if rule.together = rule.together && rule.counterOf(key) == noKey; !rule.together {
			rule.Key = func(*http.Request) (string, error) { return one.key, nil }
		}
		m := matching{set: set, request: r, tier: Tier(r.Context()), given: set.givenLimits(r.Context())}
		policies, charges = m.add(policies, charges, &rule)
		for i := range policies {
			a := &policies[i]
			if a.ofHandler = true; a.class == keyfunc.Own {
				a.class = keyfunc.Claimed
			}
		}
		if !slices.ContainsFunc(policies, func(a applied) bool { return a.isSlot() || a.rule.awaitsEnd() }) {
			return policies, charges, nil, m.no
		}
		why = "it has AtOnce, Counts or Reserve, which go by how a request ends"
	}
	set.notices.allow.warn(set.Logger, "weir-allow-rule", "weir: RateLimit.Allow cannot decide by a rule, so it answers 503",
		slog.String("rule", one.name), slog.String("reason", why))
	if set.Shadow {
		return nil, nil, nil, nil
	}
	return nil, nil, nil, &refusal{status: http.StatusServiceUnavailable, outcome: OutcomeUndecided}
}
