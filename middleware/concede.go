package middleware

import (
	"time"

	"github.com/weirgo/weir/limiter"
)

// concede is for requests that a rule refused which does not mean it: because it is in
// shadow, or has an overdraft. Such charges are left out, or moved to the overdraft, until
// all that remain are taken, or a rule refuses that means it. It returns what was taken,
// and when; s has what each rule said, and whether the request passes.
func (l *RateLimit) concede(set *ruleset, s *scope, charges []limiter.Charge) ([]limiter.Charge, error) {
	asked := make([]concession, len(charges))
	for i := range charges {
		asked[i] = concession{rule: i}
	}
	for decisions := s.decisions; !s.allowed; {
		var taken []limiter.Charge
		var next []concession
		means, moved := false, false
		for i, c := range asked {
			charge, policy, d := charges[i], s.policies[c.rule].policy, decisions[i]
			c.note(&s.decisions[c.rule], d)
			switch {
			case d.Allowed:
			case policy.overdraft != nil && !c.overdrawn:
				c.overdrawn, c.retryAfter, charge.Quota = true, d.RetryAfter, policy.overdraft
				moved = true
			case policy.shadow:
				policy.rule.notes.shadowed.note(set.Logger, policy)
				continue
			default:
				means = true
			}
			taken, next = append(taken, charge), append(next, c)
		}
		if means && !moved { // or the overdrafts have not been heard yet
			return nil, nil
		}
		charges, asked = taken, next
		decisions = make([]limiter.Decision, len(charges))
		if len(charges) > 0 {
			if err := l.ask(s, set, charges, decisions); err != nil {
				return nil, err
			}
		}
		s.allowed = allAllowed(decisions)
		for i, c := range asked {
			if s.allowed {
				charges[i].At = decisions[i].At
				c.note(&s.decisions[c.rule], decisions[i])
				s.decisions[c.rule].Degraded = s.decisions[c.rule].Degraded || c.overdrawn
				s.overdrawn = s.overdrawn || c.overdrawn && !s.policies[c.rule].shadow
			}
		}
	}
	return charges, nil
}

// A concession is what is still asked of a rule, by its place in the scope.
type concession struct {
	rule       int
	overdrawn  bool          // its overdraft is asked
	retryAfter time.Duration // of the limit, if so
}

// note writes what was answered into the rule's decision. Of an overdrawn rule that is the
// limit's, but for whether the request passes: whichever has room first lets it.
func (c concession) note(rule *limiter.Decision, d limiter.Decision) {
	if !c.overdrawn {
		*rule = d
		return
	}
	rule.Allowed, rule.RetryAfter = d.Allowed, min(c.retryAfter, d.RetryAfter)
}
