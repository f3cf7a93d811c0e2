package middleware

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"
)

const shadowLogEvery = time.Minute

// A rule in shadow decides and counts, and refuses nothing. Its charges are Optional, and come after those that clients
// see.

// unlessShadow returns the refusal of a request before its decision, or nil if the rule is in shadow.
func (v *visit) unlessShadow(rule *rule, no *refusal) *refusal {
	if rule.shadow {
		v.shadowed = append(v.shadowed, rule)
		return nil
	}
	return no
}

// noteShadows counts the rules in shadow that would have refused the request.
func (v *visit) noteShadows() {
	for _, rule := range v.shadowed {
		rule.notes.wouldRefuse(v.set.Logger, rule.info)
	}
	if v.outcome == 0 || v.err != nil {
		return
	}
	var noted *rule // a rule counts once, also if several of its limits refuse
	for i := v.shown; i < v.limits; i++ {
		if m := &v.met[i]; !m.Decision.Allowed && m.rule != noted {
			m.rule.notes.wouldRefuse(v.set.Logger, m.info)
			noted = m.rule
		}
	}
}

// enforced returns the rules that are not in shadow.
func enforced(rules []*rule) []*rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r *rule) bool { return r.shadow })
}

func (n *notes) wouldRefuse(logger *slog.Logger, rule *RuleInfo) {
	if rule == nil {
		n.logShadow(logger, "weir: a ban in shadow would have refused requests")
		return
	}
	n.logShadow(logger, "weir: a rule in shadow would have refused requests",
		slog.String("rule", rule.Name), slog.String("tier", rule.Tier))
}

func (n *notes) logShadow(logger *slog.Logger, message string, attrs ...slog.Attr) {
	if requests := n.refused.Add(shadowLogEvery); requests > 0 {
		attrs = append(attrs, slog.String("code", "weir-shadow"), slog.Uint64("requests", requests))
		cmp.Or(logger, slog.Default()).LogAttrs(context.Background(), slog.LevelInfo, message, attrs...)
	}
}
