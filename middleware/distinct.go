package middleware

import (
	"net/http"
	"strconv"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A rule with Distinct has a second limit: one request in its period for each key with each value.
// Both are charged in one batch. If the second refuses, the value was seen, and costs nothing. With Counts, the value
// is charged when its request ends: until then nobody knows whether it counts, and each request costs a unit.

var distinct = feature{
	rule: func(c *compiler, at invalid.Place, r *rule) {
		if r.Distinct != nil {
			c.reject(r.Cost.isGiven() && !r.Cost.settles, at.Of("Cost"), "is set, and a new distinct value costs one unit")
			r.cost = nil
			c.reject(r.Counts.after, at.Of("Afterwards"), "is set, and distinct values are charged when requests come")
			c.set.needsRoute, r.isPartial, r.reads = true, true, countsValue
		}
	},
	family: func(f *family) (needed bool, err error) {
		if f.rule.Distinct == nil {
			return false, nil
		}
		values, err := valuesQuota(f)
		if err != nil {
			return true, err
		}
		m := f.newMeter(values, "")
		if f.rule.Counts.given {
			m.atOnce = 0
		}
		f.values = append(f.values, m)
		return true, nil
	},
	before: func(v *visit) (again bool, no *refusal) {
		if v.forgot { // just now
			v.forgot = false
			return false, nil
		}
		for _, m := range v.seen { // the request has waited: the value may have expired
			m.units, m.Cost = 1, min(1, m.atOnce)
		}
		v.seen = v.seen[:0]
		return false, nil
	},
	looked: func(v *visit) {
		v.forgetSeen(func(m *met) bool { return m.Decision.Counted() && m.Decision.Remaining <= 0 })
	},
	after: func(v *visit) (again bool, no *refusal) {
		v.forgot = v.err == nil && v.forgetSeen(func(m *met) bool {
			return !m.Decision.Allowed || m.Cost == 0 && m.Decision.Counted() && m.Decision.Remaining <= 0
		})
		return v.forgot, nil
	},
}

// valuesSuffix ends the name of the counters of a rule's values.
const valuesSuffix = " values"

// valuesQuota returns the quota that counts each value of Distinct, in the same period as the rule's limit.
func valuesQuota(f *family) (*limiter.Quota, error) {
	if len(f.rates) != 1 || len(f.slots) > 0 || f.rates[0].quota.Limit().Algorithm == limiter.LeakyBucket {
		return nil, invalid.Field("middleware", "Distinct",
			"is set, and the limit is %v: it must be a single limit, and not a leaky-bucket", f.info.Limit)
	}
	first := f.rates[0].quota
	limit := first.Limit()
	limit.Events, limit.Burst = 1, 0
	if limit.Algorithm != limiter.FixedWindow { // whose windows are the same
		limit.Algorithm = limiter.SlidingLog
	}
	return limiter.NewQuota(first.Rule()+valuesSuffix, first.Tier(), limit)
}

// countsValue adds the charge of r's pair of key and value. Without a charge, r costs a unit in any case: NoKey decides
// about a missing value, and if the rule counts such requests, each one is new.
func countsValue(v *visit, r *http.Request, f *family, key string, class keyfunc.Class) (counts bool, no *refusal) {
	value, _, err := read(f.rule.Distinct, r)
	if v.wantsBody() {
		return false, nil
	}
	if err != nil {
		return v.without(r, f.rule, err)
	}
	for _, m := range f.values {
		v.insert(len(v.met), m, strconv.Itoa(len(key))+":"+key+value, class, 1)
	}
	return true, nil
}

// forgetSeen removes the cost of values that were seen, and reports whether there are any. If the store had no room
// for a value, the value counts as new.
func (v *visit) forgetSeen(isSeen func(*met) bool) (found bool) {
	for i := v.limits; i < len(v.met); i++ {
		m := &v.met[i]
		if m.units == 0 || !isSeen(m) {
			continue
		}
		v.refund((*met).took)
		found = true
		m.units, m.Cost = 0, 0
		v.seen = append(v.seen, m)
		for j := range v.limits {
			if of := &v.met[j]; of.family == m.family && !m.Decision.Overflow {
				of.units, of.Cost = 0, 0
				v.seen = append(v.seen, of)
			}
		}
	}
	return found
}
