package middleware

import (
	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/limiter"
)

// A rule with Afterwards charges a request when its answer is known. When the request comes, it takes nothing, and
// passes if a unit is left.

var afterwards = feature{
	rule: func(c *compiler, at invalid.Place, r *rule) {
		c.reject(r.Counts.after && !r.Counts.given && !r.Cost.settles,
			at.Of("Afterwards"), "needs counts of answers, or a cost that is settled: nothing else is known only afterwards")
	},
	family: func(f *family) (needed bool, err error) {
		if f.rule.Counts.after {
			for _, m := range f.rates {
				m.atOnce = 0
			}
		}
		return f.rule.Counts.after, nil
	},
	looked: func(v *visit) {
		if v.isUsedUp() {
			v.outcome = OutcomeRefused
		}
	},
	after: func(v *visit) (again bool, no *refusal) {
		if v.err == nil && v.isUsedUp() { // the store admits looks
			v.refund((*met).took)
		}
		return false, nil
	},
}

// isUsedUp makes refusals of the looks that find no unit left. It reports whether one is of a rule that is not in
// shadow.
func (v *visit) isUsedUp() (refuses bool) {
	for i := range v.limits {
		m := &v.met[i]
		d := &m.Decision
		if m.atOnce > 0 || !d.Counted() || !m.lacks() {
			continue
		}
		refuseLook(d)
		if m.units > m.quota.Capacity() {
			d.RetryAfter = limiter.Never
		}
		refuses = refuses || !m.Optional
	}
	return refuses
}
