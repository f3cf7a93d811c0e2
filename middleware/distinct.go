package middleware

import (
	"net/http"
	"strconv"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/limiter"
)

// A rule with Distinct has a second limit: one request in its period for each key with each value.
// Both are charged in one batch. If the second refuses, the value was seen, and costs nothing. With Counts, the value
// is charged when its request ends: until then nobody knows whether it counts, and each request costs a unit.

// valuesSuffix ends the name of the counters of a rule's values.
const valuesSuffix = " values"

// withValues appends the quota that counts each value of Distinct, in the same period.
func withValues(quotas []*limiter.Quota, a limiter.Allowance) ([]*limiter.Quota, error) {
	first := quotas[0]
	limit := first.Limit()
	if len(quotas) > 1 || first.InFlight() || limit.Algorithm == limiter.LeakyBucket {
		return nil, invalid.Field("middleware", "Distinct", "is set, and the limit is %v: it must be a single limit, and not a leaky-bucket", a)
	}
	limit.Events, limit.Burst = 1, 0
	if limit.Algorithm != limiter.FixedWindow { // whose windows are the same
		limit.Algorithm = limiter.SlidingLog
	}
	values, err := limiter.NewQuota(first.Rule()+valuesSuffix, first.Tier(), limit)
	return append(quotas, values), err
}

// pairOf returns the key of r's pair of key and value. It is empty if r costs a unit in any case: NoKey decides
// about a missing value, and if the rule counts such requests, each one is new.
func (v *visit) pairOf(r *http.Request, rule *rule, key string) (pair string, counts bool, no refusal) {
	value, _, err := read(rule.Distinct, r)
	if err == nil {
		return strconv.Itoa(len(key)) + ":" + key + value, true, no
	}
	counts, no = v.without(r, rule, err)
	return "", counts, no
}

// hasSeen reports whether the value of a rule with Distinct was counted before.
func (v *visit) hasSeen() bool {
	for i := range v.n {
		if v.isSeen(i) {
			return true
		}
	}
	return false
}

func (v *visit) isSeen(i int) bool {
	limits, charges := v.applied()
	p, d := limits[i].limit, &charges[i].Decision
	return p.ofValue && (!d.Allowed || p.looks && d.Counted() && d.Remaining <= 0)
}

// forgetSeen removes the cost of values that were seen. If the store had no room for a value, the value counts
// as new.
func (v *visit) forgetSeen() {
	limits, charges := v.applied()
	for i := range limits {
		if !v.isSeen(i) {
			continue
		}
		limits[i].cost, charges[i].Cost = 0, 0
		if !charges[i].Decision.Overflow {
			limits[i-1].cost, charges[i-1].Cost = 0, 0
		}
	}
}
