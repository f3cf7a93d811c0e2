package limiter

import (
	"context"
	"errors"
	"fmt"
)

// A Charge asks for Cost units of a quota on behalf of a key.
type Charge struct {
	Quota *Quota

	// Key names the client. Any bytes, of any length; a Quota's keys are its own.
	Key string

	// Cost is in units of the limit's Events. Zero looks without taking.
	Cost int64

	// Receipt is for Settle: that of the decision that took the units.
	Receipt Receipt
}

// A Store counts. [Memory] is one; package limitertest holds the suite that each
// must pass. A Store is used by many goroutines at once.
type Store interface {
	// Decide takes every charge or none, in one indivisible step, and fills in a
	// decision for each. The batch was taken if all of them are Allowed. If not,
	// nothing has changed: those not Allowed stood in the way, and the others are
	// described as looks.
	//
	// A refusal is no error. An error means that the store could not decide; then
	// it has taken nothing as far as it knows. [CheckCharges] says which batches
	// are errors in every store.
	Decide(ctx context.Context, charges []Charge, decisions []Decision) error

	// Settle corrects what charges took ([Quota.Settle]). Units that were not used are refunded, if
	// the key still has them. What was used beyond is owed, without asking for room.
	//
	// Settle may return before the counters are corrected, if the next Decide on the same key comes
	// after the correction. Its error is what is known by then. The end of ctx need not end what is
	// still to be corrected.
	Settle(ctx context.Context, settlements []Settlement) error

	// Reset makes each charge's key as if it had never been seen. Cost and Receipt are ignored.
	Reset(ctx context.Context, charges []Charge) error
}

// MaxCharges is how many charges a batch can have.
const MaxCharges = 64

// ErrCharges is what every error about a batch that makes no sense wraps: a
// mistake in the calling program, not an outage of the store.
var ErrCharges = errors.New("limiter: invalid charges")

// CheckDecide is for a store's Decide to call first: it is [CheckCharges], and refuses
// decisions that are not as many as the charges.
func CheckDecide(charges []Charge, decisions []Decision) error {
	if len(decisions) != len(charges) {
		return fmt.Errorf("%w: %d charges with room for %d decisions", ErrCharges, len(charges), len(decisions))
	}
	return CheckCharges(charges)
}

// CheckCharges is for a store's Reset to call first. It refuses a batch that is longer than MaxCharges, has a charge without a quota or of negative cost, or charges one
// key of one quota twice. Keys of different tiers of a rule are different keys.
func CheckCharges(charges []Charge) error {
	if len(charges) > MaxCharges {
		return fmt.Errorf("%w: there are %d, at most %d fit in a batch", ErrCharges, len(charges), MaxCharges)
	}
	for i := range charges {
		c := &charges[i]
		if c.Quota == nil || c.Quota.algorithm == nil { // the latter is &Quota{}
			return fmt.Errorf("%w: charge %d has no quota", ErrCharges, i)
		}
		if c.Cost < 0 {
			return fmt.Errorf("%w: charge %d, of rule %q, has cost %d", ErrCharges, i, c.Quota.rule, c.Cost)
		}
		for j := range i {
			if other := &charges[j]; other.Quota.salt == c.Quota.salt && other.Key == c.Key && other.Quota.rule == c.Quota.rule && other.Quota.tier == c.Quota.tier {
				return fmt.Errorf("%w: charges %d and %d are both for one key of rule %q", ErrCharges, j, i, c.Quota.rule)
			}
		}
	}
	return nil
}

// TakeAll decides on charges, each with its key's state beside it, at one time: it
// fills in the decisions, and reports whether all charges were taken. Then states holds the
// states after them, for the store to write where the cost is above 0; else the store writes
// nothing. It is what a store's Decide does between reading states and writing them.
func TakeAll(charges []Charge, states []State, now int64, decisions []Decision) (taken bool) {
	if len(charges) == 1 { // it is taken at once if it is
		q, cost := charges[0].Quota, charges[0].Cost
		states[0], taken = q.Take(states[0], now, cost)
		decisions[0] = q.Describe(states[0], now, cost, taken)
		return taken
	}
	taken = true
	for i := range charges {
		_, decisions[i].Allowed = charges[i].Quota.Take(states[i], now, charges[i].Cost)
		taken = taken && decisions[i].Allowed
	}
	for i := range charges {
		q, cost, allowed := charges[i].Quota, charges[i].Cost, decisions[i].Allowed
		switch {
		case taken:
			states[i], _ = q.Take(states[i], now, cost)
		case allowed:
			cost = 0 // it did not stand in the way: a look
		}
		decisions[i] = q.Describe(states[i], now, cost, allowed)
	}
	return taken
}

// A Settlement says what a charge really cost: its Cost is what was taken, and its Receipt says when.
// An Actual of 0 is a refund of all of it. A Cost of 0 is a debt of Actual units.
type Settlement struct {
	Charge
	Actual int64
}

// CheckSettlements is for a store's Settle to call first: it is [CheckCharges] for settlements, and
// refuses a negative Actual.
func CheckSettlements(settlements []Settlement) error {
	var few [4]Charge
	charges := few[:0]
	for i := range settlements {
		charges = append(charges, settlements[i].Charge)
	}
	if err := CheckCharges(charges); err != nil {
		return err
	}
	for i := range settlements {
		if s := &settlements[i]; s.Actual < 0 {
			return fmt.Errorf("%w: settlement %d, of rule %q, really cost %d", ErrCharges, i, s.Quota.rule, s.Actual)
		}
	}
	return nil
}
