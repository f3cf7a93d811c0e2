package middleware

import (
	"log/slog"
	"net/http"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
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
// The key may be what a client wrote, so it is no client's address and no user, and Rule.Escalate does not
// ban it: any client that can send a name could lock it out.
//
// Allow does not know how r ends, so it answers 503 for a rule with AtOnce, Counts or Reserve. It also
// answers 503 if no rule has the name. Both log a warning with code weir-allow-rule.
func (l *RateLimit) Allow(w http.ResponseWriter, r *http.Request, rule, key string) bool {
	v := visit{set: l.rules.Load()}
	if l.requests.Load() < 2 {
		l.noteRequest(v.set)
	}
	exempt, no := v.set.gate(r, key)
	if exempt {
		return true
	}
	if no.status == 0 {
		no = l.allow(r, &v, rule, key)
	}
	if no.status != 0 {
		v.refuse(w, r, no, nil)
		return false
	}
	v.report(w.Header())
	return true
}

// allow decides by one rule.
func (l *RateLimit) allow(r *http.Request, v *visit, name, key string) (no refusal) {
	rule, why := v.set.named[name], ""
	switch {
	case rule == nil:
		why = "it does not exist"
	case rule.awaitsEnd():
		why = "it has Counts or Reserve, which go by how a request ends"
	default:
		key, class := keyfunc.Classify(key)
		key = rule.counterOf(key)
		var err error
		switch {
		case key == noKey && rule.together:
			class = keyfunc.Shared
		case key == noKey:
			err = keyfunc.ErrNoKey
		case class == keyfunc.Own:
			class = keyfunc.Claimed
		}
		v.given = v.set.givenLimits(r.Context())
		if no = v.meet(r, rule, Tier(r.Context()), key, class, err); v.slots {
			why = "it has AtOnce, which goes by how a request ends"
		}
	}
	v.noteShadowed()
	if why != "" {
		v.set.warnOnce("weir-allow-rule", "", "weir: RateLimit.Allow cannot decide by a rule, so it answers 503",
			slog.String("rule", name), slog.String("reason", why))
		if *v = (visit{set: v.set}); v.set.Shadow {
			return refusal{}
		}
		return refusal{outcome: OutcomeUndecided, status: http.StatusServiceUnavailable}
	}
	if no.status != 0 {
		v.set.observe(r, no, bans.Ban{})
		return no
	}
	passed := false
	defer func() {
		if !passed { // an observer panics
			v.keepCharges()
			l.giveBack(r.Context(), v)
		}
	}()
	no, _ = l.charge(r, v, nil, l.vet)
	passed = true
	return no
}
