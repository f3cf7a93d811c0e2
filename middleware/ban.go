package middleware

import (
	"errors"
	"net/http"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// A banKey is a key to look up in the list of bans. When its function fails, no rule can
// count the request instead: it is refused, unless its rule says to let such requests pass.
type banKey struct {
	read keyfunc.Func
	open bool
}

// findBan looks r's keys up before any rule is asked, and returns 200, or the status to
// refuse with: BanStatus for a ban, or another if it cannot be told that there is none.
func (set *ruleset) findBan(r *http.Request) (bans.Ban, int) {
	if set.deny != nil && set.deny(r) { // first: it reads no key, so none can fail
		return bans.Ban{}, set.BanStatus
	}
	listed := set.Bans != nil && !set.Bans.Empty()
	if !listed && set.DenyKey == nil {
		return bans.Ban{}, http.StatusOK
	}
	status := http.StatusOK
	for _, look := range set.banKeys {
		key, _, err := read(look.read, r)
		switch {
		case err == nil:
			if listed {
				if ban, ok := set.Bans.Find(key); ok {
					ban.Key = key // of which a shared list has the digest only
					return ban, set.BanStatus
				}
			}
			if set.DenyKey != nil && set.DenyKey(key) {
				return bans.Ban{}, set.BanStatus
			}
		case errors.Is(err, keyfunc.ErrNoKey):
		case errors.Is(err, keyfunc.ErrAmbiguous):
			status = http.StatusBadRequest
		case !look.open && status == http.StatusOK:
			set.banKeyFailure.warnKeyFailure(set.Logger, err, "its requests are refused while anything is banned")
			status = http.StatusServiceUnavailable
		}
	}
	return bans.Ban{}, status
}

// refusedFor is the refusal of a banned client.
func refusedFor(ban bans.Ban, status int, now time.Time) refusal {
	no := refusal{status: status, banned: true, rule: ban.Rule, retryAfter: limiter.Never}
	if !ban.Until.IsZero() {
		no.retryAfter = max(ban.Until.Sub(now), time.Microsecond)
	}
	return no
}
