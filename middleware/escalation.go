package middleware

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// A rule with Escalate bans a key after too many refusals, or too many answers that count.

var escalation = feature{
	rule: func(c *compiler, at invalid.Place, r *rule) {
		if r.Escalate == (bans.Escalation{}) {
			return
		}
		field := at.Of("Escalate")
		if c.check(field, r.Escalate.Validate()) {
			c.name(at, r, r.Name+strikesSuffix)
			refusals := limiter.Limit{Events: int64(r.Escalate.After), Per: r.Escalate.Within, Algorithm: limiter.SlidingLog}
			if strikes, err := limiter.NewQuota(r.Name+strikesSuffix, "", refusals); c.check(field, err) {
				r.strikes = strikes
				c.set.quotas = append(c.set.quotas, strikes)
			}
		}
		c.reject(r.Escalate.Outcomes && !r.Counts.given, field.Of("Outcomes"),
			"needs counts, which say which answers lead to a ban")
		c.reject(r.together, field, "bans keys, and Key is keyfunc.Global, the key of all clients")
		c.reject(c.set.Bans.List == nil, field, "needs Config.Bans.List, which it adds to: "+
			"Bans: middleware.Bans{List: bans.Must(bans.New(bans.Options{}))}, of package middleware/bans")
		c.escalating = append(c.escalating, r)
	},
	family: func(f *family) (needed bool, err error) {
		return f.rule.Escalate != (bans.Escalation{}) && !f.rule.shadow, nil
	},
	begin: func(v *visit) (needed bool) {
		v.asks = withoutClient
		return true
	},
	after: strikeRefusals,
	end:   strikeAnswers, // an answer that counts is one of a rule with Counts, which awaits the end
}

// strikesSuffix ends the name of the counters of a rule's refusals.
const strikesSuffix = " strikes"

// withoutClient returns a context for the store that ends at the request's deadline, and not when the client leaves: a
// client that disconnects at once must be counted too, or it would never be banned.
func withoutClient(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if ctx = context.WithoutCancel(ctx); !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// strikeRefusals counts a refusal for the rules that ban a key after too many.
func strikeRefusals(v *visit) (again bool, no *refusal) {
	if v.outcome != OutcomeRefused {
		return false, nil
	}
	var struck *rule // a rule counts once, also if several of its limits refuse
	for i := range v.limits {
		m := &v.met[i]
		d := &m.Decision
		if d.Allowed || m.rule == struck || m.rule.Escalate.Outcomes || d.Overflow || !v.bans(m) {
			continue
		}
		struck = m.rule
		// A refusal counts also if the client disconnects at once.
		if until := v.limiter.strike(context.WithoutCancel(v.request.Context()), v.set, m.rule, m.Key); !until.IsZero() {
			d.RetryAfter = max(d.RetryAfter, until.Sub(v.limiter.now()))
		}
	}
	return false, nil
}

// strikeAnswers counts an answer for the rules that ban a key after too many answers that count.
func strikeAnswers(v *visit, status int) int {
	if status == unknownStatus {
		return status
	}
	for i := range v.limits {
		m := &v.met[i]
		if !m.isFirst() || !m.rule.Escalate.Outcomes || !m.rule.Counts.counts(status) || !v.bans(m) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(v.Context), settlePatience)
		v.limiter.strike(ctx, v.set, m.rule, m.Key)
		cancel()
	}
	return status
}

// bans reports whether the rule bans the key of m for what its requests do: only a client's own key is banned.
func (v *visit) bans(m *met) bool {
	switch {
	case m.rule.strikes == nil || m.Optional:
		return false
	case m.class == keyfunc.Own:
		return true
	case m.Key != noKey && m.class != keyfunc.InDoubt:
		v.set.warnOnce("weir-not-banned", m.rule.Name,
			"weir: a rule with Escalate does not ban a key that is not a client's own; use a key that no other client can send",
			slog.String("class", m.class.String()))
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
