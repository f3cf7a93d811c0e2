package middleware

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/weirgo/weir/keyfunc"
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
	v := l.visit(r, l.vet)
	defer v.close()
	exempt, no := false, (*refusal)(nil)
	if v.set.hasGate {
		exempt, no = v.gate(r, key)
	}
	if no == nil && !exempt {
		no = v.matchNamed(rule, key)
	}
	if no == nil && !exempt {
		exempt, no = v.charge()
	}
	v.conclude(exempt, no)
	if no != nil {
		v.done = true
		v.answer(w, r, no, nil)
		return false
	}
	v.setPassed(w.Header())
	v.done = true
	return true
}

// matchNamed is match for one rule, with the key that a handler knows.
func (v *visit) matchNamed(name, key string) (no *refusal) {
	const because = "it has AtOnce, Counts or Reserve, which go by how a request ends"
	r, rule, why := v.request, v.set.named[name], ""
	isOpen := func(m *meter) bool { return m.open }
	switch {
	case rule == nil:
		why = "it does not exist"
	case rule.Mode != Deny && slices.ContainsFunc(rule.inTier(Tier(r.Context())).all(), isOpen):
		why = because
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
		v.given = v.set.limitsInContext(r.Context())
		if no = v.meet(r, rule, Tier(r.Context()), key, class, err); no != nil {
			no = v.unlessShadow(rule, no)
		}
		if slices.ContainsFunc(v.met, func(m met) bool { return m.open }) {
			why = because
		}
	}
	if why == "" {
		return no
	}
	v.set.warnOnce("weir-allow-rule", "", "weir: RateLimit.Allow cannot decide by a rule, so it answers 503",
		slog.String("rule", name), slog.String("reason", why))
	v.met, v.charges, v.shown, v.limits = v.met[:0], v.charges[:0], 0, 0
	if v.set.Shadow {
		return nil
	}
	return v.refuse(refusal{outcome: OutcomeUndecided, status: http.StatusServiceUnavailable})
}
