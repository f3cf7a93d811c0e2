// Package store is for authors of stores: the decision on a whole batch, the algorithms in Lua, and the interfaces
// that a store may implement besides.
//
// To write a store, hold a [limiter.State] for each counter. A rule, a tier and a key identify a counter.
// Decide calls [limiter.CheckCharges]. Then, in one step, it reads the time and the states, calls [TakeAll], which sets
// the decisions, and writes the states if TakeAll took the charges. Settle calls
// [limiter.CheckSettlements] and [limiter.Quota.Settle]. Reset calls CheckCharges. A State may expire when it is free
// under all of its limits ([limiter.State.FreeAfter]). Package limitertest tests the store. Its example is a whole
// store.
//
// A store may implement [Claimer], [Checker] and, if it is around another store, [Wrapper]. Package failover
// says what it asks of stores.
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
		states[0], taken = c.Quota.Take(states[0], now, c.Cost)
		c.Decision = c.Quota.Describe(states[0], now, c.Cost, taken)
		return taken || c.Optional
	}
	for i := range charges {
		c := &charges[i]
		_, c.Decision.Allowed = c.Quota.Take(states[i], now, c.Cost)
	}
	taken = Taken(charges)
	for i := range charges {
		c := &charges[i]
		q, cost, allowed := c.Quota, c.Cost, c.Decision.Allowed
		switch {
		case taken:
			states[i], _ = q.Take(states[i], now, cost)
		case allowed:
			cost = 0 // it did not stand in the way: a look
		}
		c.Decision = q.Describe(states[i], now, cost, allowed)
	}
	return taken
}
