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

// escalate counts a refusal against those rules that ban a key that is refused too often.
func (l *RateLimit) escalate(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge) {
	for i := range charges {
		rule, d := s.policies[i].rule, &s.decisions[i]
		if rule.strikes == nil || d.Allowed || d.Overflow || rule.Shadow || s.policies[i].class != keyfunc.Own {
			continue
		}
		// A client that hangs up at once is refused all the same.
		if until := l.strike(context.WithoutCancel(ctx), set, rule, charges[i].Key); !until.IsZero() {
			d.RetryAfter = max(d.RetryAfter, time.Until(until))
		}
	}
}

// banPatience is how long a refused request waits for its ban to be known everywhere. A list
// that is not in time tells the others when it can.
const banPatience = 50 * time.Millisecond

// strike counts one refusal of key, and returns until when that bans it, if it does.
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
	ban, err := set.Bans.Escalate(inTime, key, rule.Name, rule.Escalate)
	err = errors.Join(err, l.store.Reset(ctx, charges)) // after the ban it begins anew
	if err != nil {
		rule.notes.escalation.warn(set.Logger, "weir-ban-failed",
			"weir: a ban could not be noted where others see it, or its count not begun anew",
			slog.String("rule", rule.Name), slog.String("error", err.Error()))
	}
	return ban.Until
}
