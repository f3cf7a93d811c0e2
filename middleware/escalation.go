package middleware

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// strikes is the limit that refusals count against.
func strikes(e bans.Escalation) limiter.Limit {
	return limiter.Limit{Events: int64(e.After), Per: e.Within, Algorithm: limiter.SlidingLog}
}

// escalate counts a refusal against those rules that ban a key for too many.
func (l *RateLimit) escalate(ctx context.Context, set *ruleset, s *decided) {
	var struck *rule // once, also where several of its limits refuse
	for i := range s.policies {
		p, d := &s.policies[i], &s.decisions[i]
		if d.Allowed || p.rule == struck || p.rule.Escalate.Outcomes || d.Overflow || !p.mayBeBanned() {
			continue
		}
		struck = p.rule
		// A client that hangs up at once is refused all the same.
		if until := l.strike(context.WithoutCancel(ctx), set, p.rule, p.key); !until.IsZero() {
			d.RetryAfter = max(d.RetryAfter, until.Sub(l.now()))
		}
	}
}

// mayBeBanned reports whether what the key does counts toward a ban.
func (a *applied) mayBeBanned() bool {
	return a.rule.strikes != nil && !a.rule.shadow && a.class == keyfunc.Own
}

// banPatience is how long a refused request waits for its ban to be known everywhere. A list
// that is not in time tells the others when it can.
const banPatience = 50 * time.Millisecond

// strike counts one refusal of key, or one of its answers that count, and returns until when
// that bans it, if it does.
func (l *RateLimit) strike(ctx context.Context, set *ruleset, rule *rule, key string) (until time.Time) {
	charges := []limiter.Charge{{Quota: rule.strikes, Key: key, Cost: 1}}
	decisions := make([]limiter.Decision, 1)
	if err := l.store.Decide(ctx, charges, decisions); err != nil {
		l.warnStoreFailure(set, err)
		return time.Time{}
	}
	switch d := &decisions[0]; {
	case d.Allowed && d.Remaining > 0, d.Overflow:
		return time.Time{}
	case d.Limit < rule.strikes.Capacity(): // this process's share of it, during an outage
		return time.Time{}
	}
	inTime, cancel := context.WithTimeout(ctx, banPatience)
	defer cancel()
	ban, err := set.Bans.List.Escalate(inTime, key, rule.Name, rule.Escalate)
	err = errors.Join(err, l.store.Reset(ctx, charges)) // after the ban it begins anew
	if err != nil {
		rule.notes.escalation.warn(set.Logger, "weir-ban-failed",
			"weir: a ban could not be noted where others see it, or its count not begun anew",
			slog.String("rule", rule.Name), slog.String("error", err.Error()))
	}
	return ban.Until
}
