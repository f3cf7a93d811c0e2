package failover

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A part is a server of the inner store with its circuit breaker.
type part struct {
	err     error     // the last error
	failed  time.Time // when err was recorded
	inRow   int       // failures since the last success, if the part is in Store.failing
	probing bool
	unfit   bool // the last announcement was that the server is unusable
}

// partOf returns what Part says, kept within bounds.
func (s *Store) partOf(c *limiter.Charge) int { return s.servers.Part(c) & 63 }

// partsOf returns the set of parts that hold the counters of charges, which are valid.
func (s *Store) partsOf(charges []limiter.Charge) (parts uint64) {
	for i := range charges {
		parts |= 1 << s.partOf(&charges[i])
	}
	return parts
}

// outage returns the parts with an open breaker that hold counters of charges, and the last error of
// one of them, or nil. While no breaker is open, it is one atomic load.
func (s *Store) outage(charges []limiter.Charge) (down uint64, cause error) {
	if open := s.open.Load(); open != 0 {
		down = open & s.partsOf(charges)
	}
	if down == 0 {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return down, s.parts[bits.Len64(down)-1].err
}

// call calls the inner store about charges and counts the result. It returns the parts that
// failed and the call's error, or the error for the caller, if any.
func (s *Store) call(ctx context.Context, charges []limiter.Charge, do func(context.Context) error) (failed uint64, _ error) {
	if len(charges) == 0 { // no server is asked
		return 0, ctx.Err()
	}
	began := time.Now()
	if err := s.timed(ctx, do); err != nil {
		return s.blame(ctx, began, s.partsOf(charges), err)
	}
	// If a breaker has opened since the call began, it stays open.
	if failing := s.failing.Load(); failing != 0 && failing&s.partsOf(charges) != 0 {
		s.failing.And(^s.partsOf(charges))
	}
	return 0, nil
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

// settleInner has the inner store settle. A nil error does not show that the server
// answers, because the store may settle later.
func (s *Store) settleInner(ctx context.Context, settlements []limiter.Settlement) error {
	if len(settlements) == 0 {
		return nil
	}
	began := time.Now()
	err := s.timed(ctx, func(ctx context.Context) error { return s.inner.Settle(ctx, settlements) })
	if err == nil {
		return nil
	}
	var parts uint64
	for i := range settlements {
		parts |= 1 << s.partOf(&settlements[i].Charge)
	}
	_, err = s.blame(ctx, began, parts, err)
	return err
}

// blame counts a call to these parts that returned err, as far as it says something about them. It
// returns the parts that failed: the parts that err names, or all of them.
func (s *Store) blame(ctx context.Context, began time.Time, parts uint64, err error) (failed uint64, _ error) {
	if errors.Is(err, limiter.ErrCharges) {
		return 0, err
	}
	// If requests have less time than Deadline, their own deadline is the only sign of a server
	// that hangs. It counts if the server had time enough.
	if gone := ctx.Err(); gone != nil && (!errors.Is(gone, context.DeadlineExceeded) || time.Since(began) < s.options.Deadline/4) {
		return 0, gone
	}
	failed = parts
	var said interface{ Parts() uint64 }
	if errors.As(err, &said) && said.Parts()&parts != 0 {
		failed = said.Parts() & parts
	}
	if !isOfOneKey(err) { // which is no reason to stop asking about the others
		s.failing.And(^parts | failed) // the other parts have answered
		s.failed(began, failed, err)
	}
	return failed, err
}

// isOfOneKey reports whether the server answered and could not decide on one key.
func isOfOneKey(err error) bool {
	var one interface{ OfOneKey() bool }
	return errors.As(err, &one) && one.OfOneKey()
}

// failed counts a call that failed at these parts. If a breaker has opened since the call began, the
// failure is out of date. Calls that fail at the same time fail for one reason, so they count once.
func (s *Store) failed(began time.Time, parts uint64, err error) {
	s.counters.failures.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for rest := parts &^ s.open.Load(); rest != 0; rest &= rest - 1 {
		number, bit := bits.TrailingZeros64(rest), rest&-rest
		p := &s.parts[number]
		if began.Before(p.failed) {
			continue
		}
		s.record(number, err)
		if s.failing.Or(bit)&bit == 0 {
			p.inRow = 0
		}
		if p.inRow++; p.inRow >= s.options.Failures {
			if s.open.Or(bit) == 0 {
				s.since = p.failed
			}
			s.failing.And(^bit)
			s.tell(Event{Degraded: true, Part: number, Err: err}, false)
		}
	}
}

// record remembers the error of a part. It announces the first failure after a time without any,
// and that the server is unusable. It needs the lock.
func (s *Store) record(number int, err error) {
	p, now := &s.parts[number], time.Now()
	isFirst := s.open.Load()>>number&1 == 0 && now.Sub(p.failed) >= quiet
	if isUnfit := isUnusable(err); isFirst || isUnfit && !p.unfit {
		p.unfit = isUnfit
		s.tell(Event{Part: number, Err: err}, true)
	}
	p.err, p.failed = err, now
}

// probe starts the probes that are due for these parts. Each has the charges of its own part, so that
// errors of other parts do not count.
func (s *Store) probe(parts uint64, charges []limiter.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for parts &= s.open.Load(); parts != 0; parts &= parts - 1 {
		number := bits.TrailingZeros64(parts)
		if p := &s.parts[number]; !p.probing && time.Since(p.failed) > s.options.ProbeEvery {
			p.probing = true
			_, own := s.split(^(1 << number), charges)
			go s.try(number, looks(own))
		}
	}
}

// try is a probe. It does not use the request's context, so a client that goes away does not end it.
func (s *Store) try(number int, looks []limiter.Charge) {
	var err error
	panicked := survive(func() {
		err = s.timed(context.Background(), func(ctx context.Context) error {
			err := s.inner.Decide(ctx, looks)
			if err == nil || isOfOneKey(err) {
				err = s.servers.TryWrite(ctx, looks)
			}
			return err
		})
	})
	switch {
	case panicked != nil:
		err = fmt.Errorf("failover: the store panicked: %v", panicked)
	case isOfOneKey(err):
		err = nil // an answer
	}
	isMistake := errors.Is(err, limiter.ErrCharges) // which says nothing about the server
	if err != nil && !isMistake {
		s.counters.failures.Add(1)
		_, err = s.examine(number, err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	p, bit := &s.parts[number], uint64(1)<<number
	p.probing = false
	switch {
	case isMistake:
	case err != nil:
		s.record(number, err)
	default:
		p.unfit = false
		s.tell(Event{Part: number, Err: p.err}, false)
		s.shares.Clear() // rules may have been read anew since they were first needed
		if s.open.And(^bit) == bit {
			s.total += time.Since(s.since)
		}
	}
}

// survive returns what f panics with. Nothing else would recover from it in a goroutine that
// serves no request.
func survive(f func()) (panicked any) {
	defer func() { panicked = recover() }()
	f()
	return nil
}
