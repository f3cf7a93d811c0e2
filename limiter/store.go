package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Charge asks for Cost units of a quota for one key.
type Charge struct {
	Quota *Quota

	// Key names the client. It may hold any bytes and have any length. Each Quota has keys of
	// its own.
	Key string

	// Cost is how many units to take, in units of the limit's Events. Cost 0 reads the counter and
	// takes nothing.
	Cost int64

	// Optional says that the charge refuses nobody: if it does not fit, the batch is taken without it.
	Optional bool

	// Within is the longest Delay that the event can wait for, 0 for any. If a LeakyBucket's queue is longer, the
	// charge has no room, and its RetryAfter ends when the queue is short enough. Other algorithms ignore it.
	Within time.Duration

	// Decision is the answer of [Store].Decide, which ignores what it holds before. Settle needs its
	// Receipt: it says when and where the units were taken.
	Decision Decision
}

// A Store counts. [Memory] is one. Package store is for authors of others, and package limitertest tests what
// every Store promises. Many goroutines use a Store at once.
type Store interface {
	// Decide takes every charge or none, in one atomic step, and sets the Decision of each. It took them if
	// all that are not Optional are Allowed. If not, nothing has changed: the charges that are not Allowed had no
	// room, and every other charge gets the decision of a charge with Cost 0. Decide changes nothing else
	// of a charge, and nothing at all after it has returned.
	//
	// An Optional charge that has no room does not count: the batch is taken without it, and its Decision
	// is the refusal that it would have been.
	//
	// A refusal is no error. An error means that the store could not decide, and as far as it knows it
	// has taken nothing. The decisions then mean nothing. An invalid batch is an error in every store
	// ([ErrCharges]).
	Decide(ctx context.Context, charges []Charge) error

	// Settle corrects what charges took ([Quota.Settle]). Units that were not used are refunded, if the
	// key still holds them. Units that were used beyond the Cost become a debt, even if there is no
	// room.
	//
	// A store may correct the counters after Settle has returned, but must do it before this process's
	// next Decide on the same key. Settle returns the errors that are known when it returns. The
	// correction may go on after ctx has ended. If the store's server gives no answer in time, the
	// correction may be lost, or may come once, after later decisions.
	Settle(ctx context.Context, settlements []Settlement) error

	// Reset makes each charge's key as if it had never been seen. It ignores Cost and Decision, and
	// releases no slots: events in flight hold them until they end.
	Reset(ctx context.Context, charges []Charge) error
}

// MaxCharges is the most charges in a batch.
const MaxCharges = 64

// ErrCharges is wrapped by every error about an invalid batch: one with more than MaxCharges charges, with a
// charge that has no Quota or a negative Cost or Within, or with two charges for one key of one quota. Keys of different
// tiers of a rule are different keys. Such a batch is a mistake in the calling program, not an outage of the
// store.
var ErrCharges = errors.New("limiter: invalid charges")

// CheckCharges returns an error for an invalid batch, as [ErrCharges] says. A store's Decide and Reset call it first.
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
		if c.Within < 0 {
			return fmt.Errorf("%w: charge %d, of rule %q, has Within %v", ErrCharges, i, c.Quota.rule, c.Within)
		}
		for j := range i {
			q, other := c.Quota, charges[j].Quota
			if q.salt == other.salt && c.Key == charges[j].Key && q.rule == other.rule && q.tier == other.tier {
				return fmt.Errorf("%w: charges %d and %d are both for one key of rule %q", ErrCharges, j, i, q.rule)
			}
		}
	}
	return nil
}

// A Settlement says what a charge really cost. Its Cost is what was taken, and the Receipt of its Decision
// says when. If Actual is 0, all of it is refunded. If Cost is 0, Actual units are a debt.
type Settlement struct {
	Charge
	Actual int64
}

// CheckSettlements is [CheckCharges] for settlements. An error is also a negative Actual. A store's Settle calls it
// first.
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
			return fmt.Errorf("%w: settlement %d, of rule %q, has Actual %d", ErrCharges, i, s.Quota.rule, s.Actual)
		}
	}
	return nil
}
