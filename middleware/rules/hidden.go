package rules

import (
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// doubtHidden warns of a limit of p that never refuses a request, because a tighter limit always refuses first.
func (c *checker) doubtHidden(p *scopedRule) {
	var others []*scopedRule // they apply to all requests of p
	for _, at := range c.scopes {
		for i := range at.rules {
			if at.section == "global" || at == p.scope || len(c.file.Tiers)+len(c.file.Endpoints) == 0 {
				others = append(others, &at.rules[i])
			}
		}
	}
	for _, tier := range slices.Sorted(maps.Keys(p.limits())) {
		path := p.path
		if tier != "" {
			path = sub(path, "tiers", tier)
		}
		if several := sub(path, "limits"); c.doc.Has(several...) {
			path = several
		}
		for _, l := range p.limitsIn(tier) {
			after := false
			for _, by := range others {
				after = after || by.rule == p.rule
				if m, ok := by.hides(l, p, tier, after); ok && c.countsAll(by, p) {
					c.warnings.at(path, "has %v, which has no effect: %v of %q is as strict, for all of these requests", l, m, by.name)
					break
				}
			}
		}
	}
}

// countsAll reports whether a rule that applies to all requests of p counts at least what p counts, on the same
// counters or on one for all, and refuses what it does not admit.
func (c *checker) countsAll(by, p *scopedRule) bool {
	isLate := func(p *scopedRule) bool { return p.When != nil && p.When.Charge == "after" }
	oneForAll := slices.Equal(by.parts, []string{"global"})
	return c.file.Mode != "shadow" && by.enforces() && p.active() &&
		(oneForAll || slices.Equal(by.parts, p.parts) && by.made.NoKey == p.made.NoKey) &&
		(!by.isConditional() || by.scope == p.scope && reflect.DeepEqual(by.When, p.When)) && !isLate(by) && !isLate(p) &&
		by.Distinct == "" && reflect.DeepEqual(by.Cost, p.Cost) && (p.Cost == nil || p.Cost.Settle == nil) &&
		(len(by.Counts) == 0 || by.made.Counts == p.made.Counts) &&
		(by.OnOutage == p.OnOutage || by.OnOutage == "closed" || p.OnOutage == "open") &&
		len(by.Overrides)+len(p.Overrides) == 0 && (p.Escalate == nil || p.Escalate.Of != "outcomes")
}

// hides returns the limit of by that admits nothing that l would refuse, where l is p's limit for a tier ("": for all
// tiers that p does not name). Of two equal limits the first hides the other; after says that by is not before p.
func (by *scopedRule) hides(l limiter.Limit, p *scopedRule, tier string, after bool) (m limiter.Limit, ok bool) {
	tiers := []string{tier}
	switch {
	case p.section == "tiers":
		tiers[0] = p.of
	case tier == "":
		for other := range by.made.Tiers {
			if p.made.Tiers[other] == nil {
				tiers = append(tiers, other)
			}
		}
	}
	for _, tier := range slices.Backward(tiers) {
		limits := by.limitsIn(tier)
		i := slices.IndexFunc(limits, func(m limiter.Limit) bool { return isTighter(m, l) && !(after && m == l) })
		if i < 0 {
			return m, false
		}
		m = limits[i]
	}
	return m, true
}

// isTighter reports whether everything that passes limit a at once also passes limit b, whatever the traffic. If that is
// uncertain, it returns false.
func isTighter(a, b limiter.Limit) bool {
	by, err := limiter.NewQuota("a", "", a)
	to, err2 := limiter.NewQuota("b", "", b)
	if err != nil || err2 != nil || to.Algorithm() == limiter.LeakyBucket { // a queue delays, too
		return false
	}
	isCalendar := func(l limiter.Limit) bool {
		return l != limiter.Limit{Events: l.Events, Per: l.Per, Burst: l.Burst, Algorithm: l.Algorithm}
	}
	alike := a
	alike.Events, alike.Burst, alike.Algorithm = b.Events, b.Burst, b.Algorithm
	switch {
	case alike == b && by.Algorithm() == to.Algorithm():
		return a.Events <= b.Events && by.Capacity() <= to.Capacity()
	case isCalendar(a): // its windows have different lengths
		return false
	case isCalendar(b):
		b.Per += time.Hour // clocks are set back
	}
	// At one moment a passes at most atOnce, and in k of its periods at most Events*k + extra.
	atOnce, extra := by.Capacity(), int64(0)
	switch by.Algorithm() {
	case limiter.SlidingCounter:
		atOnce++ // it rounds down
	case limiter.FixedWindow:
		atOnce *= 2 // at a boundary
	}
	if by.Algorithm() != limiter.SlidingLog {
		extra = atOnce
	}
	room, periods := b.Events-extra, int64((b.Per-1)/a.Per)+1
	switch to.Algorithm() {
	case limiter.SlidingCounter:
		room -= atOnce // it also counts a share of the window before
	case limiter.TokenBucket:
		rate, least := bits.Mul64(uint64(a.Events), uint64(b.Per))
		of, most := bits.Mul64(uint64(b.Events), uint64(a.Per))
		return atOnce <= to.Capacity() && (rate < of || rate == of && least <= most)
	}
	return a.Events <= room/periods
}
