package rules

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// cost is what a request costs: a number of units, or what a function says. Zero and nil
// are one unit.
func (c *checker) cost(path []string, given *cost) (fixed int64, of func(*http.Request) int64) {
	if given == nil {
		return 0, nil
	}
	path = sub(path, "cost")
	positive := func(name string, n *int64) int64 {
		if n == nil {
			return 0
		}
		if *n < 1 {
			at := sub(path, name)
			if !c.doc.Has(at...) {
				at = path
			}
			c.at(at, "is %d: it must be at least 1", *n)
		}
		return *n
	}
	units, missing, most := positive("units", given.Units), positive("missing", given.Missing), positive("max", given.Max)
	switch {
	case given.Settle && given.Units == nil && given.Header == "" && given.Per == nil && given.Missing == nil && given.Max == nil:
		return 0, nil // what end makes of it
	case given.Units != nil && (given.Header != "" || given.Per != nil || given.Missing != nil || given.Max != nil):
		c.at(path, "has units and a header: a cost is either fixed or read from a header")
		return 0, nil
	case given.Units != nil:
		return max(0, units), nil
	case given.Header == "" && c.noted(path):
		return 0, nil // which may be why there is none
	case given.Header == "":
		c.at(path, "has neither units nor a header to read them from")
		return 0, nil
	}
	if _, err := keyfunc.Parse("header:"+given.Header, nil); err != nil {
		c.at(sub(path, "header"), "is not the name of a header")
		return 0, nil
	}
	per := int64(1)
	if given.Per != nil {
		per = given.Per.n
	}
	name := http.CanonicalHeaderKey(given.Header)
	c.doubtCost(path, given, name)
	if name == contentLength && missing == 0 {
		c.warnings.at(path, "a body that is sent in chunks has no Content-Length, and costs 1 whatever its length: say what it costs with missing")
	}
	missing, most = cmp.Or(missing, 1), cmp.Or(most, math.MaxInt64)
	return 0, func(r *http.Request) int64 {
		n, ok := amount(r, name)
		if !ok {
			return min(missing, most)
		}
		units := n / per
		if n%per > 0 {
			units++
		}
		return min(max(1, units), most)
	}
}

// neverPasses notes a cost that the limits of a rule never allow: one that every request has
// is a mistake, one of requests without the header may be meant.
func (c *checker) neverPasses(path []string, given *cost, made *middleware.Rule) {
	path = sub(path, "cost")
	if given == nil || given.Settle || c.noted(path) { // one that settles reserves no more than there is
		return
	}
	at, units, which, note := path, made.Units, "no request", c.at
	switch {
	case given.Units != nil:
		if fixed := sub(path, "units"); c.doc.Has(fixed...) {
			at = fixed
		}
	case given.Missing != nil:
		at, units, which, note = sub(path, "missing"), *given.Missing, "no request without that header", c.warnings.at
		if given.Max != nil {
			units = min(units, *given.Max)
		}
	}
	compare := func(l limiter.Limit, of string) {
		if l == (limiter.Limit{}) {
			return
		}
		quota, err := limiter.NewQuota("rule", "", l)
		if err == nil && units > quota.Capacity() { // an error is noted
			note(at, "is %d: %v%s allows at most %d at once, so %s would ever pass", units, l, of, quota.Capacity(), which)
		}
	}
	if made.Limits == nil {
		compare(made.Limit, "")
	}
	for _, l := range made.Limits {
		compare(l, "")
	}
	for _, tier := range slices.Sorted(maps.Keys(made.Tiers)) {
		compare(made.Tiers[tier], ", the limit of tier "+tier+",")
	}
	for _, tier := range slices.Sorted(maps.Keys(made.TierLimits)) {
		for _, l := range made.TierLimits[tier] {
			compare(l, ", a limit of tier "+tier+",")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(made.Overrides)) {
		compare(made.Overrides[key], ", the limit of a key in overrides,")
	}
}

const contentLength = "Content-Length"

// amount is the number in a header of r; the largest, should there be several.
func amount(r *http.Request, name string) (int64, bool) {
	if name == contentLength { // which net/http has checked; -1 if the body is chunked
		return r.ContentLength, r.ContentLength >= 0
	}
	most := int64(-1)
	for _, value := range r.Header[name] {
		value = strings.TrimSpace(value)
		n, err := strconv.ParseInt(value, 10, 64)
		if value == "" || strings.Trim(value, "0123456789") != "" {
			return 0, false
		}
		if err != nil {
			n = math.MaxInt64 // digits, and too many of them
		}
		most = max(most, n)
	}
	return most, most >= 0
}
