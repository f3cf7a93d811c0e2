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

// gate is the first phase of a request. It refuses a banned client, exempts the requests that Config.Allow
// matches, and refuses a request whose host cannot be told, if rules are for hosts. handlerKey is
// the key that a handler gave Allow, or noKey.
func (v *visit) gate(r *http.Request, handlerKey string) (exempt bool, no *refusal) {
	no = v.findBan(r, handlerKey)
	if no != nil && v.set.Shadow {
		v.shadowed, no, v.ban = append(v.shadowed, &v.set.bansInShadow), nil, bans.Ban{}
	}
	switch set := v.set; {
	case no != nil:
		return false, no
	case set.Allow != nil && route.IsMethod(r.Method) && set.Allow.Matches(r): // a handler may take "get" for any method
		return true, nil
	case set.hasHosts && !route.IsHost(r.Host):
		return false, v.refuseKey(http.StatusBadRequest, nil)
	}
	return false, nil
}

// findBan looks up r's keys, and the key that Allow was given, which is nobody's address. It also refuses a request
// if it cannot rule out a ban.
func (v *visit) findBan(r *http.Request, handlerKey string) *refusal {
	set := v.set
	if set.Bans.Deny != nil && set.Bans.Deny.Matches(r) { // first, as it reads no key that could fail
		return v.banned(bans.Ban{})
	}
	if set.Bans.List == nil || set.Bans.List.Empty() {
		return nil
	}
	if key, _ := keyfunc.Classify(handlerKey); key != noKey && !isAddress(key) {
		if ban, ok := set.findKey(key); ok {
			return v.banned(ban)
		}
	}
	status := 0
	for _, by := range set.banKeys {
		key, _, err := read(by.Key, r)
		switch {
		case err == nil:
			if ban, ok := set.findKey(key); ok {
				return v.banned(ban)
			}
		case errors.Is(err, keyfunc.ErrNoKey):
		case errors.Is(err, keyfunc.ErrAmbiguous):
			status = http.StatusBadRequest
		case by.OnOutage != limiter.FailOpen && status == 0:
			set.warnKeyFailure("", err)
			status = http.StatusServiceUnavailable
		}
	}
	if status == 0 {
		return nil
	}
	return v.refuseKey(status, nil)
}

// banned returns the refusal of a banned client.
func (v *visit) banned(ban bans.Ban) *refusal {
	v.ban = ban
	retry := limiter.Never
	if !ban.Until.IsZero() {
		retry = max(ban.Until.Sub(v.limiter.now()), time.Microsecond)
	}
	return v.refuse(refusal{outcome: OutcomeBanned, status: v.set.Bans.Status, retry: retry})
}

// findKey looks up a key.
func (set *ruleset) findKey(key string) (ban bans.Ban, ok bool) {
	if ban, ok = set.Bans.List.Find(key); ok {
		ban.Key = key // a shared list has only its digest
	}
	return ban, ok
}
