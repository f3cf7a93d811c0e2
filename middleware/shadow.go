package middleware

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A shadowCount counts the requests that would have been refused, and logs the count at most once a
// minute.
type shadowCount struct {
	refused atomic.Uint64 // since the last log
	next    atomic.Int64  // time of the next log, in nanoseconds since 1970
}

const shadowLogEvery = time.Minute

func (c *shadowCount) note(logger *slog.Logger, rule *RuleInfo) {
	c.log(logger, "weir: a rule in shadow would have refused requests",
		slog.String("rule", rule.Name), slog.String("tier", rule.Tier))
}

func (c *shadowCount) log(logger *slog.Logger, message string, attrs ...slog.Attr) {
	c.refused.Add(1)
	now, next := time.Now().UnixNano(), c.next.Load()
	isEarly := now < next && next-now <= int64(shadowLogEvery) // otherwise the clock was set back
	if isEarly || !c.next.CompareAndSwap(next, now+int64(shadowLogEvery)) {
		return
	}
	if logger == nil {
		logger = slog.Default()
	}
	attrs = append(attrs, slog.String("code", "weir-shadow"), slog.Uint64("requests", c.refused.Swap(0)))
	logger.LogAttrs(context.Background(), slog.LevelInfo, message, attrs...)
}

// passShadows asks the store again for a refused request, without the rules in shadow that refused it,
// until the remaining charges are taken or a rule in force refuses. It puts the decisions into s.
func (l *RateLimit) passShadows(ctx context.Context, set *ruleset, s *decided, charges []limiter.Charge) error {
	asked := make([]int, len(charges)) // indexes in s
	for i := range asked {
		asked[i] = i
	}
	for decisions := s.decisions; !s.isAllowed(); {
		var taken []limiter.Charge
		var next []int
		var shadowed *rule // the last one that was logged
		for i, at := range asked {
			s.decisions[at] = decisions[i]
		}
		refused := false
		for i, at := range asked {
			switch p, allowed := &s.policies[at], decisions[i].Allowed; {
			case allowed && p.shadow && s.refuses(p.rule):
				p.spared = true // another limit of the rule refuses, so it takes nothing
			case allowed:
				taken, next = append(taken, charges[i]), append(next, at)
			case p.shadow:
				if p.rule != shadowed {
					p.rule.notes.shadowed.note(set.Logger, p.info)
				}
				shadowed = p.rule
			default:
				refused = true
			}
		}
		if refused {
			return nil
		}
		charges, asked = taken, next
		decisions = make([]limiter.Decision, len(charges))
		if len(charges) > 0 {
			if err := l.ask(ctx, set, charges, decisions); err != nil {
				return err
			}
		}
		if s.outcome = outcomeOf(decisions); s.isAllowed() {
			for i, at := range asked {
				s.decisions[at] = decisions[i]
			}
		}
	}
	return nil
}

// refuses reports whether one of a rule's limits refuses.
func (s *decided) refuses(rule *rule) bool {
	for i := range s.policies {
		if s.policies[i].rule == rule && !s.decisions[i].Allowed {
			return true
		}
	}
	return false
}
