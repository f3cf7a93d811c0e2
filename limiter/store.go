package limiter

import (
	"context"
	"errors"
	"fmt"
)

// A Charge asks for Cost units of a quota on behalf of a key.
type Charge struct {
	Quota *Quota

	// Key says who asks. Any bytes, of any length; a Quota's keys are its own.
	Key string

	// Cost is in units of the limit's Events. Zero looks without taking.
	Cost int64

	// At is for Refund: the [Decision.At] of the decision that took the units. Zero: it is
	// not known.
	At int64
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

	// Refund returns up to Cost units to each charge's key, of those that were taken At that
	// time ([Quota.Refund]). It never leaves more than the limit, and nothing happens to a
	// key that has nothing to get back.
	Refund(ctx context.Context, charges []Charge) error

	// Reset makes each charge's key as if it had never been seen. Cost and At are ignored.
	Reset(ctx context.Context, charges []Charge) error
}

// MaxCharges is how many charges a batch can have.
const MaxCharges = 64

// ErrCharges is what every error about a batch that makes no sense wraps: a
// mistake in the calling program, not an outage of the store.
var ErrCharges = errors.New("limiter: invalid charges")

// CheckCharges is for stores to call first. It refuses a batch that is longer than
// MaxCharges, has a charge without a quota or of negative cost, or charges one
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

// checkDecisions refuses a slice for results that has no room for them.
func checkDecisions(charges []Charge, decisions []Decision) error {
	if len(decisions) != len(charges) {
		return fmt.Errorf("%w: %d charges with room for %d decisions", ErrCharges, len(charges), len(decisions))
	}
	return nil
}
