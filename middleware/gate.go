package middleware

import (
	"errors"
	"net/http"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// gate is the first phase of a request. It refuses a banned client, and exempts the requests that
// Config.Allow matches.
func (set *ruleset) gate(r *http.Request, one *oneRule, now func() time.Time) (exempt bool, no *refusal) {
	if set.hasBans {
		switch f := set.findBan(r, one); {
		case f.status == 0:
		case set.Shadow:
			set.shadowedBans.noteBan(set.Logger)
		case f.banned:
			set.observe(r, OutcomeBanned, f.ban, nil)
			return false, refusedFor(&f, now())
		default:
			set.observe(r, OutcomeNoKey, bans.Ban{}, nil)
			return false, &refusal{status: f.status}
		}
	}
	if set.Allow != nil && set.Allow.Matches(r) {
		set.observe(r, OutcomeExempt, bans.Ban{}, nil)
		return true, nil
	}
	return false, nil
}

// A banKey is a key to look up in the list of bans. If its function fails, the request is refused, unless
// its rule is FailOpen.
type banKey struct {
	read keyfunc.Func
	open bool
}

// A banFinding is the result of looking up a request's bans.
type banFinding struct {
	status int // of the refusal: Bans.Status, or another if a ban cannot be ruled out; 0: not banned
	banned bool
	ban    bans.Ban
}

// findBan looks up r's keys, and the key that Allow was given.
func (set *ruleset) findBan(r *http.Request, one *oneRule) (f banFinding) {
	if set.Bans.Deny != nil && set.Bans.Deny.Matches(r) { // first, as it reads no key that could fail
		return banFinding{status: set.Bans.Status, banned: true}
	}
	listed := set.Bans.List != nil && !set.Bans.List.Empty()
	if !listed && set.Bans.DenyKey == nil {
		return f
	}
	if one != nil && one.key != noKey {
		key, _ := keyfunc.Classify(one.key)
		if f = set.findKey(key, listed); f.banned {
			return f
		}
	}
	for _, look := range set.banKeys {
		key, _, err := read(look.read, r)
		switch {
		case err == nil:
			if found := set.findKey(key, listed); found.banned {
				return found
			}
		case errors.Is(err, keyfunc.ErrNoKey):
		case errors.Is(err, keyfunc.ErrAmbiguous):
			f.status = http.StatusBadRequest
		case !look.open && f.status == 0:
			set.banKeyFailure.warnKeyFailure(set.Logger, err, "its requests are refused while anything is banned")
			f.status = http.StatusServiceUnavailable
		}
	}
	return f
}

// findKey looks up a key. Listed says that the list is not empty.
func (set *ruleset) findKey(key string, listed bool) (f banFinding) {
	if listed {
		if ban, ok := set.Bans.List.Find(key); ok {
			ban.Key = key // a shared list has only its digest
			return banFinding{set.Bans.Status, true, ban}
		}
	}
	if set.Bans.DenyKey != nil && set.Bans.DenyKey(key) {
		return banFinding{status: set.Bans.Status, banned: true}
	}
	return f
}

// refusedFor returns the refusal of a banned client.
func refusedFor(f *banFinding, now time.Time) *refusal {
	no := &refusal{status: f.status, banned: true, rule: f.ban.Rule, retryAfter: limiter.Never}
	if !f.ban.Until.IsZero() {
		no.retryAfter = max(f.ban.Until.Sub(now), time.Microsecond)
	}
	return no
}
