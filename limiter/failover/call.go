package failover

import (
	"context"
	"errors"
	"time"

	"github.com/weirgo/weir/limiter"
)

// ask asks the inner store about charges. It returns why the store could not decide on a charge, or nil, for
// each charge; or no causes, and the error for the caller, if any.
func (s *Store) ask(
	ctx context.Context, charges []limiter.Charge, do func(context.Context, []limiter.Charge) error,
) (causes []error, _ error) {
	of := func(i int) *limiter.Charge { return &charges[i] }
	causes, err := s.call(ctx, len(charges), of, func(ctx context.Context) error { return do(ctx, charges) })
	if err == nil && s.ailing.Load() && len(charges) > 0 && charges[0].Decision.Receipt.By != limiter.ByMemory {
		s.count(time.Time{}, len(charges), of, nil)
	}
	if err == nil && s.debts.count.Load() != 0 {
		s.repay(ctx, charges)
	}
	return causes, err
}

// settle has the inner store settle. It returns the same as ask. Success is no answer of a server, because the
// store may settle later.
func (s *Store) settle(ctx context.Context, settlements []limiter.Settlement) (causes []error, _ error) {
	of := func(i int) *limiter.Charge { return &settlements[i].Charge }
	return s.call(ctx, len(settlements), of, func(ctx context.Context) error { return s.inner.Settle(ctx, settlements) })
}

// call makes a call of the inner store about n charges, and counts a failure, as far as its error says
// something about the servers. It returns the same as ask.
func (s *Store) call(
	ctx context.Context, n int, of func(int) *limiter.Charge, do func(context.Context) error,
) (causes []error, _ error) {
	if n == 0 {
		return nil, nil
	}
	began := time.Now()
	err := s.timed(ctx, do)
	if err == nil || errors.Is(err, limiter.ErrCharges) {
		return nil, err
	}
	// If requests have less time than Deadline, their own deadline is the only sign of a server that
	// hangs. It counts if the server had time enough.
	hadTime := time.Since(began) >= s.options.Deadline/4
	if gone := ctx.Err(); gone != nil && !(hadTime && errors.Is(gone, context.DeadlineExceeded)) {
		return nil, gone
	}
	causes = make([]error, n)
	if !attribute(err, causes) {
		for i := range causes {
			causes[i] = err
		}
	}
	s.count(began, n, of, causes)
	return causes, err
}

// timed calls do with the deadline.
func (s *Store) timed(ctx context.Context, do func(context.Context) error) error {
	if !s.keepsTime {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.options.Deadline)
		defer cancel()
	}
	return do(ctx)
}

// attribute makes err, and the errors that it wraps, the causes of the charges that they name. It reports
// whether they name any.
func attribute(err error, causes []error) (names bool) {
	switch e := err.(type) {
	case interface{ Charges() []int }:
		for _, i := range e.Charges() {
			if i >= 0 && i < len(causes) {
				causes[i], names = err, true
			}
		}
	case interface{ Unwrap() error }:
		return attribute(e.Unwrap(), causes)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			names = attribute(err, causes) || names
		}
	}
	return names
}

// isAnswer reports whether a server answered: it decided, or could not decide on a key or a batch.
func isAnswer(err error) bool {
	var one interface{ OfOneKey() bool }
	return err == nil || errors.Is(err, limiter.ErrCharges) || errors.As(err, &one) && one.OfOneKey()
}
