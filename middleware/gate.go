package middleware

import (
	"errors"
	"net/http"
	"time"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// gate is the first phase of a request. It refuses a banned client and, if rules are for hosts, a request whose
// host cannot be told. It exempts the requests that Config.Allow matches.
func (set *ruleset) gate(r *http.Request, one *oneRule, now func() time.Time) (exempt bool, no *refusal) {
	if !set.hasBans && set.Allow == nil && !set.hasHosts {
		return false, nil
	}
	f := set.inspect(r, one)
	if f.spared {
		set.shadowedBans.log(set.Logger, "weir: a ban in shadow would have refused requests")
	}
	if f.outcome == OutcomeAllowed {
		return false, nil
	}
	set.observe(r, f.outcome, f.ban, nil)
	if f.outcome == OutcomeExempt {
		return true, nil
	}
	return false, f.refusal(now())
}

// A finding says what the gate does with a request.
type finding struct {
	outcome Outcome  // OutcomeBanned, OutcomeNoKey if a ban or a rule cannot be ruled out, OutcomeExempt, or OutcomeAllowed
	status  int      // of the refusal
	banned  bool     // in shadow too
	ban     bans.Ban // zero if Bans.DenyKey or Bans.Deny matched
	spared  bool     // only Config.Shadow lets the request pass
}

// inspect is gate without a refusal, for all who ask whether a request passes.
func (set *ruleset) inspect(r *http.Request, one *oneRule) finding {
	f := finding{outcome: OutcomeAllowed}
	if set.hasBans {
		f = set.findBan(r, one)
	}
	if f.outcome != OutcomeAllowed && set.Shadow {
		f.outcome, f.spared = OutcomeAllowed, true
	}
	switch {
	case f.outcome != OutcomeAllowed:
	case set.Allow != nil && route.IsMethod(r.Method) && set.Allow.Matches(r): // a handler may take get for any method
		f.outcome = OutcomeExempt
	case set.hasHosts && one == nil && !route.IsHost(r.Host):
		f.outcome, f.status = OutcomeNoKey, http.StatusBadRequest
	}
	return f
}

// A banKey is a key to look up in the list of bans. If its function fails, the request is refused, unless
// its rule is FailOpen.
type banKey struct {
	read keyfunc.Func
	open bool
}

// findBan looks up r's keys, and the key that Allow was given.
func (set *ruleset) findBan(r *http.Request, one *oneRule) finding {
	f := finding{outcome: OutcomeAllowed}
	if set.Bans.Deny != nil && set.Bans.Deny.Matches(r) { // first, as it reads no key that could fail
		return set.banned(bans.Ban{})
	}
	listed := set.Bans.List != nil && !set.Bans.List.Empty()
	if !listed && set.Bans.DenyKey == nil {
		return f
	}
	if one != nil && one.key != noKey {
		key, _ := keyfunc.Classify(one.key)
		ban, ok := set.findKey(handlerKey(key), listed)
		if !ok && !isAddress(key) {
			ban, ok = set.findKey(key, listed) // banned by hand
		}
		if ok {
			return set.banned(ban)
		}
	}
	for _, look := range set.banKeys {
		key, _, err := read(look.read, r)
		switch {
		case err == nil:
			if ban, ok := set.findKey(key, listed); ok {
				return set.banned(ban)
			}
		case errors.Is(err, keyfunc.ErrNoKey):
		case errors.Is(err, keyfunc.ErrAmbiguous):
			f.outcome, f.status = OutcomeNoKey, http.StatusBadRequest
		case !look.open && f.outcome == OutcomeAllowed:
			set.banKeyFailure.warnKeyFailure(set.Logger, err, "its requests are refused while anything is banned")
			f.outcome, f.status = OutcomeNoKey, http.StatusServiceUnavailable
		}
	}
	return f
}

func (set *ruleset) banned(ban bans.Ban) finding {
	return finding{outcome: OutcomeBanned, status: set.Bans.Status, banned: true, ban: ban}
}

// findKey looks up a key. Listed says that the list is not empty.
func (set *ruleset) findKey(key string, listed bool) (ban bans.Ban, ok bool) {
	if listed {
		if ban, ok = set.Bans.List.Find(key); ok {
			ban.Key = key // a shared list has only its digest
			return ban, true
		}
	}
	return bans.Ban{}, set.Bans.DenyKey != nil && set.Bans.DenyKey(key)
}

// refusal returns the refusal of a request that does not pass.
func (f *finding) refusal(now time.Time) *refusal {
	no := &refusal{status: f.status, outcome: f.outcome}
	if f.banned {
		no.rule, no.retryAfter = f.ban.Rule, limiter.Never
		if !f.ban.Until.IsZero() {
			no.retryAfter = max(f.ban.Until.Sub(now), time.Microsecond)
		}
	}
	return no
}
