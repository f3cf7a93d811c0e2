package middleware

import (
	"context"
	"net/http"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// UsageOf is [RateLimit.Usage] for support staff: it tells of any key, which the query names, for
// requests that authorize lets see it.
//
//	staff, err := limits.UsageOf(isStaff)
//	mux.Handle("GET /staff/usage", staff) // ?key=user:42, or ?digest=FYWl7VSN0pA8BLBmYkPrjA
//
// A key is written as for the command: an address, user:42, or in quotation marks, as a string
// of Go, if it is of the application's own making. A digest is that of logs and of the page, and
// finds counters that are kept under digests, in Redis. Credentials do not belong into a URL,
// which is logged: ask for their digest.
//
// It tells of all rules with a Key, in each of their tiers, those in shadow too. A key that has
// used nothing of a rule cannot be told from one that the rule never has, so such rules are
// listed apart, as unused. Nothing is kept for a second.
//
// Authorize checks credentials, and is asked for every request. Nil is an error, as the handler
// would be open to all.
func (l *RateLimit) UsageOf(authorize func(*http.Request) bool) (http.Handler, error) {
	if authorize == nil {
		return nil, invalid.New("middleware", "UsageOf needs a function that says which requests may see the usage of any key")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !isLook(w, r):
		case !authorize(r):
			tellProblem(w, r, http.StatusForbidden, "The service decides which requests may see this.")
		default:
			l.tellUsageOf(w, r)
		}
	}), nil
}

func (l *RateLimit) tellUsageOf(w http.ResponseWriter, r *http.Request) {
	key, wrong := l.keyAsked(r)
	if wrong != "" {
		tellProblem(w, r, http.StatusBadRequest, wrong)
		return
	}
	set := l.rules.Load()
	var questions []question
	for _, p := range set.policies() {
		if p.rule.Key != nil {
			questions = append(questions, question{rule: p.rule, policy: p, key: key})
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), limitPatience)
	defer cancel()
	told, err := l.describe(ctx, set, questions)
	if err != nil {
		if r.Context().Err() == nil {
			tellUnknown(w, r)
		}
		return
	}
	view := usageView{Rules: []usageRule{}}
	view.Ban, view.BanUnknown = set.banOf(key)
	for _, rule := range told {
		rule.Key = "" // only requests tell its class
		if rule.isUnused() {
			view.Unused = append(view.Unused, rule)
		} else {
			view.Rules = append(view.Rules, rule)
		}
	}
	tellView(w, r, view)
}

// isUnused reports whether it is known that nothing is counted.
func (u *usageRule) isUnused() bool {
	if u.Unknown != "" {
		return false
	}
	for i := range u.Limits {
		if u.Limits[i].Used > 0 {
			return false
		}
	}
	return u.Concurrency == nil || *u.Concurrency.InProgress == 0
}

// banOf is the ban of a key, or nil, and whether that is not known: DenyKey knows no digests.
func (set *ruleset) banOf(key string) (ban *usageBan, unknown bool) {
	if set.Bans != nil {
		if ban, ok := set.Bans.Find(key); ok {
			return &usageBan{Rule: ban.Rule, Reset: untilLifted(ban)}, false
		}
	}
	_, isDigest := keyfunc.DigestOf(key)
	switch {
	case set.DenyKey == nil:
		return nil, false
	case isDigest:
		return nil, true
	case set.DenyKey(key):
		return &usageBan{}, false
	}
	return nil, false
}

// keyAsked is the key that r's query names, or what is wrong with it, in which the key is not.
func (l *RateLimit) keyAsked(r *http.Request) (key, wrong string) {
	query := r.URL.Query()
	keys, digests := query["key"], query["digest"]
	if len(keys)+len(digests) != 1 {
		return "", "The query has to name one key, or one digest: ?key=user:42"
	}
	if len(keys) == 1 {
		key, err := operate.Key(keys[0])
		switch {
		case err != nil:
			return "", "The key cannot be read: " + err.Error() + "."
		case key == noKey:
			return "", "The key is empty."
		}
		return key, ""
	}
	digest, ok := keyfunc.ParseDigest(digests[0])
	if !ok {
		return "", "This is no digest: one has 22 characters of base64url."
	}
	if store, ok := limiter.As[limiter.Kind](l.store); !ok || store.Kind() != "redis" {
		return "", "Here keys are counted under themselves, and not under digests: name the key."
	}
	return digest.Key(), ""
}
