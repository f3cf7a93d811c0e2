package middleware

import (
	"net/http"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/bans"
)

// banned reports whether r is to be refused before any rule is looked at.
func (set *ruleset) banned(r *http.Request) (bans.Ban, bool) {
	ban, ok := set.findBan(r)
	if ok && set.Shadow {
		set.shadowedBans.noteBan(set.Logger)
	}
	return ban, ok
}

func (set *ruleset) findBan(r *http.Request) (bans.Ban, bool) {
	if set.Deny != nil && set.Deny(r) {
		return bans.Ban{}, true
	}
	if set.Bans == nil || set.Bans.Empty() {
		return bans.Ban{}, false
	}
	for _, f := range set.BanKeys {
		if key, err := f(r); err == nil && key != noKey {
			if ban, ok := set.Bans.Find(key); ok {
				ban.Key = key // of which a shared list has the digest only
				return ban, true
			}
		}
	}
	return bans.Ban{}, false
}

// bannedResult is what is told about a request that was refused for a ban.
func bannedResult(ban bans.Ban, status int) Result {
	result := Result{Rule: ban.Rule, Status: status, Banned: true}
	result.RetryAfter = limiter.Never
	if !ban.Until.IsZero() {
		result.RetryAfter = max(time.Until(ban.Until), time.Microsecond)
	}
	return result
}
