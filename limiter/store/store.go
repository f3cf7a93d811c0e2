// Package store is for authors of stores: the decision on a whole batch, and the algorithms in Lua.
//
// To write a store, hold a [limiter.State] for each counter. A rule, a tier and a key identify a counter.
// Decide calls [limiter.CheckCharges]. Then, in one step, it reads the time and the states, calls [TakeAll], which sets
// the decisions, and writes the states if TakeAll took the charges. Settle calls
// [limiter.CheckSettlements] and [limiter.Quota.Settle]. Reset calls CheckCharges. A State may expire when it is free
// under all of its limits ([limiter.State.FreeAfter]). Package limitertest tests the store. [Map] is the simplest
// store, and the example of limitertest one for many goroutines.
//
// A store may implement [limiter.Claimer], [limiter.Checker] and, if it is around another store, [limiter.Wrapper].
// Package failover says what it asks of stores.
package store

import "github.com/weirgo/weir/limiter"

// Taken reports whether a store has taken a batch that it decided on: all charges that are not Optional are
// Allowed.
func Taken(charges []limiter.Charge) bool {
	for i := range charges {
		if c := &charges[i]; !c.Decision.Allowed && !c.Optional {
			return false
		}
	}
	return true
}

// TakeAll decides on all charges as of now, in microseconds since 1970. states[i] is the state of the key of
// charges[i]. TakeAll sets the decisions and reports whether all charges were taken. If they were, states holds
// the new states, and the store writes those whose charge has a cost above 0. Otherwise the store writes
// nothing. A store's Decide calls TakeAll between reading states and writing them.
func TakeAll(charges []limiter.Charge, states []limiter.State, now int64) (taken bool) {
	if len(charges) == 1 { // no other charge can refuse it
		c := &charges[0]
		states[0], taken = Take(c, states[0], now)
		c.Decision = Describe(c, states[0], now, c.Cost, taken)
		return taken || c.Optional
	}
	for i := range charges {
		c := &charges[i]
		_, c.Decision.Allowed = Take(c, states[i], now)
	}
	taken = Taken(charges)
	for i := range charges {
		c := &charges[i]
		cost, allowed := c.Cost, c.Decision.Allowed
		switch {
		case taken:
			states[i], _ = Take(c, states[i], now)
		case allowed:
			cost = 0 // it did not stand in the way: a look
		}
		c.Decision = Describe(c, states[i], now, cost, allowed)
	}
	return taken
}

// Take is [limiter.Quota.Take] for the cost of c, but refuses c if its Delay would be longer than its Within.
func Take(c *limiter.Charge, s limiter.State, now int64) (limiter.State, bool) {
	if c.Cost > 0 && c.Quota.Late(s, now, c.Within) > 0 {
		return s, false
	}
	return c.Quota.Take(s, now, c.Cost)
}

// Describe is [limiter.Quota.Describe], where s and allowed are the results of Take. cost is the Cost of c, or 0 for
// a look.
func Describe(c *limiter.Charge, s limiter.State, now, cost int64, allowed bool) limiter.Decision {
	d := c.Quota.Describe(s, now, cost, allowed)
	if !allowed {
		d.RetryAfter = max(d.RetryAfter, c.Quota.Late(s, now, c.Within))
	}
	return d
}
