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
// matches, and refuses a request whose host cannot be told, if rules are for hosts. If a handler called Allow, it
// gave handlerKey.
func (set *ruleset) gate(r *http.Request, handlerKey string) (exempt bool, no refusal) {
	s := set.screen(r, handlerKey)
	if s.inShadow {
		set.bansNotes.logShadow(set.Logger, "weir: a ban in shadow would have refused requests")
	}
	switch {
	case s.no.status != 0:
		set.observe(r, s.no, s.ban)
	case s.exempt:
		set.observe(r, refusal{outcome: OutcomeExempt}, bans.Ban{}) // a ban in shadow refused nothing
	}
	return s.exempt, s.no
}

// A screening is what is known of a request before its rules.
type screening struct {
	ban      bans.Ban
	banned   bool // also in shadow
	inShadow bool // but for Config.Shadow, the request would be refused because of a ban
	exempt   bool
	no       refusal
}

// screen is gate without logs and observers.
func (set *ruleset) screen(r *http.Request, handlerKey string) (s screening) {
	s.ban, s.no = set.findBan(r, handlerKey)
	s.banned = s.no.status != 0 && s.no.outcome == OutcomeBanned
	if s.inShadow = s.no.status != 0 && set.Shadow; s.inShadow {
		s.no = refusal{}
	}
	switch {
	case s.no.status != 0:
	case set.Allow != nil && route.IsMethod(r.Method) && set.Allow.Matches(r): // a handler may take "get" for any method
		s.exempt = true
	case set.hasHosts && !route.IsHost(r.Host):
		s.no = refusal{outcome: OutcomeNoKey, status: http.StatusBadRequest}
	}
	return s
}

// findBan looks up r's keys, and the key that Allow was given, which is nobody's address. It also refuses a request
// if it cannot rule out a ban.
func (set *ruleset) findBan(r *http.Request, handlerKey string) (_ bans.Ban, no refusal) {
	if set.Bans.Deny != nil && set.Bans.Deny.Matches(r) { // first, as it reads no key that could fail
		return bans.Ban{}, set.banned(bans.Ban{})
	}
	if set.Bans.List == nil || set.Bans.List.Empty() {
		return bans.Ban{}, no
	}
	if key, _ := keyfunc.Classify(handlerKey); key != noKey && !isAddress(key) {
		if ban, ok := set.findKey(key); ok {
			return ban, set.banned(ban)
		}
	}
	for _, by := range set.banKeys {
		key, _, err := read(by.Key, r)
		switch {
		case err == nil:
			if ban, ok := set.findKey(key); ok {
				return ban, set.banned(ban)
			}
		case errors.Is(err, keyfunc.ErrNoKey):
		case errors.Is(err, keyfunc.ErrAmbiguous):
			no = refusal{outcome: OutcomeNoKey, status: http.StatusBadRequest}
		case by.OnOutage != limiter.FailOpen && no.status == 0:
			set.warnKeyFailure("", err)
			no = refusal{outcome: OutcomeNoKey, status: http.StatusServiceUnavailable}
		}
	}
	return bans.Ban{}, no
}

// banned returns the refusal of a banned client.
func (set *ruleset) banned(ban bans.Ban) refusal {
	no := refusal{outcome: OutcomeBanned, status: set.Bans.Status, retry: limiter.Never, ban: ban.Rule}
	if !ban.Until.IsZero() {
		no.retry = max(ban.Until.Sub(set.now()), time.Microsecond)
	}
	return no
}

// findKey looks up a key.
func (set *ruleset) findKey(key string) (ban bans.Ban, ok bool) {
	if ban, ok = set.Bans.List.Find(key); ok {
		ban.Key = key // a shared list has only its digest
	}
	return ban, ok
}
