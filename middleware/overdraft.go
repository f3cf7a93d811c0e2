package middleware

import (
	"context"
	"time"

	"github.com/weirgo/weir/limiter"
)

// overdraw asks again for a request that was refused: without the rules in shadow that
// refused it, and on the overdrafts of those that have one, until all charges that remain
// are taken, or a rule without either refuses. s has what each rule said, and whether the
// request passes.
func (l *RateLimit) overdraw(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge) error {
	asked := make([]attempt, len(charges))
	for i := range charges {
		asked[i] = attempt{rule: i}
	}
	for decisions := s.decisions; !s.allowed; {
		var taken []limiter.Charge
		var next []attempt
		final, moved := false, false
		var shadowed *rule // the last one that was told of
		for i, c := range asked {
			c.note(&s.decisions[c.rule], decisions[i])
		}
		for i, c := range asked {
			charge, policy, d := charges[i], s.policies[c.rule].policy, decisions[i]
			switch {
			case d.Allowed && policy.info.Shadow && s.refuses(policy.rule):
				s.policies[c.rule].spared = true // nothing is taken where another limit of the rule refuses
				continue
			case d.Allowed:
			case policy.overdraft != nil && !c.overdrawn:
				c.overdrawn, c.retryAfter, charge.Quota = true, d.RetryAfter, policy.overdraft
				moved = true
			case policy.info.Shadow:
				if policy.rule != shadowed {
					policy.rule.notes.shadowed.note(set.Logger, policy.info)
				}
				shadowed = policy.rule
				continue
			default:
				final = true
			}
			taken, next = append(taken, charge), append(next, c)
		}
		if final && !moved { // or the overdrafts were not asked yet
			return nil
		}
		charges, asked = taken, next
		decisions = make([]limiter.Decision, len(charges))
		if len(charges) > 0 {
			if err := l.ask(ctx, set, charges, decisions); err != nil {
				return err
			}
		}
		s.allowed = allAllowed(decisions)
		for i, c := range asked {
			if s.allowed {
				c.note(&s.decisions[c.rule], decisions[i])
				s.decisions[c.rule].At = decisions[i].At
				s.policies[c.rule].overdrawn = c.overdrawn
				s.decisions[c.rule].Degraded = s.decisions[c.rule].Degraded || c.overdrawn
				s.overdrawn = s.overdrawn || c.overdrawn && !s.policies[c.rule].info.Shadow
			}
		}
	}
	return nil
}

// refuses reports whether one of a rule's limits does.
func (s *decided) refuses(rule *rule) bool {
	for i := range s.policies {
		if s.policies[i].rule == rule && !s.decisions[i].Allowed {
			return true
		}
	}
	return false
}

// An attempt is what is still asked of a rule, by its place in the scope.
type attempt struct {
	rule       int
	overdrawn  bool          // its overdraft is asked
	retryAfter time.Duration // of the limit, if so
}

// note writes what was answered into the rule's decision. Of an overdrawn rule that is the
// limit's, but for whether the request passes: whichever has room first lets it.
func (c attempt) note(rule *limiter.Decision, d limiter.Decision) {
	if !c.overdrawn {
		*rule = d
		return
	}
	rule.Allowed, rule.RetryAfter = d.Allowed, min(c.retryAfter, d.RetryAfter)
}
