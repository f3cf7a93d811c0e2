package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// An Escalation bans a key that a rule refused After times Within so much time, first for
// Ban, and Factor times as long each time it happens again, up to Max. It needs
// Config.Bans and a Key. Only a key of the client's own is banned: not one that clients
// share, be it a rule's counter of requests without a key, nor the address of a proxy that
// does not name its client (see keyfunc.Class). Nor is a key for which the store had no room,
// as what others used up is no fault of its own (see limiter.Decision.Overflow).
type Escalation struct {
	After  int           // refusals, from 1 to 10,000
	Within time.Duration // at most 366 days
	Ban    time.Duration // at least a millisecond
	Factor float64       // from 1 to 1000. Zero: 2
	Max    time.Duration // at least Ban, at most 366 days. Zero: 24 hours, or Ban if it is longer
}

const (
	defaultFactor = 2
	defaultMaxBan = 24 * time.Hour
	mostStrikes   = 10_000 // as the log that counts them can hold
)

// Validate returns everything that is wrong with e, joined, or nil.
func (e Escalation) Validate() error {
	var errs []error
	if e.After < 1 || e.After > mostStrikes {
		errs = append(errs, fmt.Errorf("middleware: Escalate.After is %d: it must be from 1 to %d", e.After, mostStrikes))
	} else if err := e.strikes().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("middleware: Escalate.Within: %w", err))
	}
	if err := e.growth().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("middleware: Escalate: %w", err))
	}
	return errors.Join(errs...)
}

// strikes is the limit that refusals count against.
func (e Escalation) strikes() limiter.Limit {
	return limiter.Limit{Events: int64(e.After), Per: e.Within, Algorithm: limiter.SlidingLog}
}

// growth is how long bans are, with the defaults.
func (e Escalation) growth() bans.Escalation {
	return bans.Escalation{
		Ban: e.Ban, Factor: cmp.Or(e.Factor, defaultFactor), Max: cmp.Or(e.Max, max(defaultMaxBan, e.Ban)),
	}
}

// escalate counts a refusal against those rules that ban who is refused too often.
func (l *RateLimit) escalate(set *ruleset, s *scope, charges []limiter.Charge) {
	for i := range charges {
		rule, d := s.policies[i].rule, &s.decisions[i]
		if rule.strikes == nil || d.Allowed || d.Overflow || rule.Shadow || s.policies[i].class != keyfunc.Own {
			continue
		}
		// A client that hangs up at once is refused all the same.
		if until := l.strike(context.WithoutCancel(s.Context), set, rule, charges[i].Key); !until.IsZero() {
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
	ban, err := set.Bans.Escalate(inTime, key, rule.Name, rule.growth)
	err = errors.Join(err, l.store.Reset(ctx, charges)) // after the ban it begins anew
	if err != nil {
		rule.notes.escalation.warn(set.Logger, "weir-ban-failed",
			"weir: a ban could not be noted where others see it, or its count not begun anew",
			slog.String("rule", rule.Name), slog.String("error", err.Error()))
	}
	return ban.Until
}
