package middleware

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// escalate counts a refusal for the rules that ban a key after too many.
func (l *RateLimit) escalate(ctx context.Context, v *visit) {
	var struck *rule // a rule counts once, also if several of its limits refuse
	limits, charges := v.applied()
	for i := range limits {
		a, d := &limits[i], &charges[i].Decision
		key := charges[i].Key
		if d.Allowed || a.rule == struck || a.rule.Escalate.Outcomes || d.Overflow || !a.bans(v.set, key) {
			continue
		}
		struck = a.rule
		// A refusal counts also if the client disconnects at once.
		if until := l.strike(context.WithoutCancel(ctx), v.set, a.rule, key); !until.IsZero() {
			d.RetryAfter = max(d.RetryAfter, until.Sub(l.now()))
		}
	}
}

// bans reports whether the rule bans a key for what its requests do: only a client's own key is banned.
func (a *applied) bans(set *ruleset, key string) bool {
	switch {
	case a.rule.strikes == nil || a.rule.shadow:
		return false
	case a.class == keyfunc.Own:
		return true
	case key != noKey && a.class != keyfunc.InDoubt:
		set.warnOnce("weir-not-banned", a.rule.Name,
			"weir: a rule with Escalate does not ban a key that is not a client's own; use a key that no other client can send",
			slog.String("class", a.class.String()))
	}
	return false
}

// banPatience is how long a refused request waits until all processes know its ban. A slower list informs
// them later.
const banPatience = 50 * time.Millisecond

// strike counts one refusal of key, or one answer that counts. If that bans the key, it returns the end of
// the ban.
func (l *RateLimit) strike(ctx context.Context, set *ruleset, rule *rule, key string) (until time.Time) {
	charges := []limiter.Charge{{Quota: rule.strikes, Key: key, Cost: 1}}
	if err := l.store.Decide(ctx, charges); err != nil {
		set.warnStoreFailure(err)
		return time.Time{}
	}
	switch d := &charges[0].Decision; {
	case d.Allowed && d.Remaining > 0, d.Overflow:
		return time.Time{}
	case d.Limit < rule.strikes.Capacity(): // the share of this process during an outage
		return time.Time{}
	}
	inTime, cancel := context.WithTimeout(ctx, banPatience)
	defer cancel()
	ban, err := set.Bans.List.Escalate(inTime, key, rule.Name, rule.Escalate)
	err = errors.Join(err, l.store.Reset(ctx, charges)) // after the ban the count begins anew
	if err != nil {
		set.warnOnce("weir-ban-failed", rule.Name,
			"weir: other processes may not see a ban, or the count of its refusals was not reset",
			slog.String("error", err.Error()))
	}
	return ban.Until
}
