package failover

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A part is a server of the inner store with its circuit breaker.
type part struct {
	err    error         // the last error
	failed time.Time     // when err was recorded
	inRow  int           // failures since the last success
	apart  int           // failures in recent.minute that were not at the same time as others
	probe  chan struct{} // closed when the probe in progress ends; nil: there is none
}

// recent is what the calls of the last time say about the inner store as a whole. It decides on what is
// logged and reported, and on nothing else.
type recent struct {
	failed time.Time // when a call or a probe last failed
	part   int       // that failed then

	// In the minute that began at a failure.
	minute          time.Time
	calls, failures int
	openings        int // of a breaker while no other was open

	isUnfit    bool // the last announcement of a failure was that the server is unusable
	isReported bool // an outage
	isFlaky    bool // only a minute without a failure ends the outage
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
func (s *Store) call(
	ctx context.Context, charges []limiter.Charge, do func(context.Context) error,
) (failed uint64, _ error) {
	if len(charges) == 0 { // no server is asked
		return 0, ctx.Err()
	}
	began := time.Now()
	if err := s.timed(ctx, do); err != nil {
		return s.blame(ctx, began, s.partsOf(charges), err)
	}
	if s.ailing.Load() {
		s.answered(s.partsOf(charges))
	}
	if s.debts.count.Load() != 0 {
		s.repay(ctx, charges)
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
	switch {
	case err != nil:
		_, err = s.blame(ctx, began, s.partsOf(corrections(settlements)), err)
	case s.debts.count.Load() != 0:
		s.repay(ctx, corrections(settlements))
	}
	return err
}

// corrections returns charges that cost what settlements add, or 0. How much remains is not known.
func corrections(settlements []limiter.Settlement) (charges []limiter.Charge) {
	for i := range settlements {
		c := settlements[i].Charge
		c.Cost, c.Decision = max(0, settlements[i].Actual-c.Cost), limiter.Decision{Allowed: true}
		charges = append(charges, c)
	}
	return charges
}

// blame counts a call to these parts that returned err, as far as it says something about them. It
// returns the parts that failed: the parts that err names, or all of them.
func (s *Store) blame(ctx context.Context, began time.Time, parts uint64, err error) (failed uint64, _ error) {
	if errors.Is(err, limiter.ErrCharges) {
		return 0, err
	}
	// If requests have less time than Deadline, their own deadline is the only sign of a server
	// that hangs. It counts if the server had time enough.
	hadTime := time.Since(began) >= s.options.Deadline/4
	if gone := ctx.Err(); gone != nil && !(hadTime && errors.Is(gone, context.DeadlineExceeded)) {
		return 0, gone
	}
	failed = parts
	var said interface{ Parts() uint64 }
	if errors.As(err, &said) && said.Parts()&parts != 0 {
		failed = said.Parts() & parts
	}
	if !isOfOneKey(err) { // which is no reason to stop asking about the others
		s.answered(parts &^ failed)
		s.failed(began, failed, err)
	}
	return failed, err
}

// isOfOneKey reports whether the server answered and could not decide on one key.
func isOfOneKey(err error) bool {
	var one interface{ OfOneKey() bool }
	return errors.As(err, &one) && one.OfOneKey()
}

// answered counts a call that these parts have answered. If a breaker has opened since the call began,
// it stays open. A minute without a failure ends an outage, even if a breaker is open because nobody
// asks for its part.
func (s *Store) answered(parts uint64) {
	if parts == 0 || !s.ailing.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if parts &^= s.open.Load(); parts == 0 {
		return
	}
	if time.Since(s.recent.failed) >= quiet {
		parts = ^uint64(0)
		s.ailing.Store(false)
		s.announceOutage(false, false)
	}
	s.recent.calls++
	for ; parts != 0; parts &= parts - 1 {
		s.parts[bits.TrailingZeros64(parts)].inRow = 0
	}
}

// failed counts a call that failed at these parts. If a breaker has opened since the call began, the
// failure is out of date. Calls that fail at the same time fail for one reason, so they count once.
func (s *Store) failed(began time.Time, parts uint64, err error) {
	s.counters.failures.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if parts &^= s.open.Load(); parts == 0 {
		return
	}
	r := &s.recent
	if time.Since(r.minute) >= quiet {
		r.minute, r.calls, r.failures, r.openings = time.Now(), 0, 0, 0
		for i := range s.parts {
			s.parts[i].apart = 0
		}
	}
	r.calls++
	r.failures++
	for ; parts != 0; parts &= parts - 1 {
		number, bit := bits.TrailingZeros64(parts), parts&-parts
		p := &s.parts[number]
		if began.Before(p.failed) {
			continue
		}
		s.record(number, err)
		p.inRow++
		p.apart++
		switch {
		case p.inRow >= s.options.Failures:
			if s.open.Or(bit) == 0 {
				s.since = p.failed
				r.openings++
			}
			s.announceOutage(true, r.openings > mostOpenings)
		case p.apart >= min(s.options.Failures, manyFailures) && r.failures*flakyShare >= r.calls:
			s.announceOutage(true, true)
		}
	}
}

const (
	quiet        = time.Minute // the time without a failure after which the store is well
	flakyShare   = 100         // of so many calls one fails at least, if the store is flaky
	mostOpenings = 3           // in a minute; if breakers open more often, the store is flaky
)

// announceOutage announces that an outage began, or that it ended, if that is news. It needs the lock.
func (s *Store) announceOutage(isDown, isFlaky bool) {
	r := &s.recent
	r.isFlaky = isDown && (r.isFlaky || isFlaky)
	r.isUnfit = r.isUnfit && isDown
	if r.isReported != isDown {
		r.isReported = isDown
		number := r.part
		e := Event{Degraded: isDown, At: time.Now(), Err: s.parts[number].err, Flaky: isFlaky}
		s.announce(func() { s.reportOutage(number, e) })
	}
}

// record remembers the error of a part. It announces the first failure after a time without any,
// and that the server is unusable. It needs the lock.
func (s *Store) record(number int, err error) {
	p, r, now := &s.parts[number], &s.recent, time.Now()
	s.ailing.Store(true)
	isFirst := !r.isReported && now.Sub(r.failed) >= quiet
	if isUnfit := isUnusable(err); isFirst || isUnfit && !r.isUnfit {
		r.isUnfit = isUnfit
		e := Event{At: now, Err: err}
		s.announce(func() { s.log(s.diagnose(number, e), true) })
	}
	p.err, p.failed = err, now
	r.failed, r.part = now, number
}

// probe starts the probes that are due for these parts. Each has the charges of its own part, so that
// errors of other parts do not count. A batch that would fail, because it is a reset or a rule is
// FailClosed, waits for the probes in progress. probe reports whether it has waited.
func (s *Store) probe(ctx context.Context, parts uint64, charges []limiter.Charge, isReset bool) (waited bool) {
	var inProgress []chan struct{}
	s.mu.Lock()
	for parts &= s.open.Load(); parts != 0; parts &= parts - 1 {
		number := bits.TrailingZeros64(parts)
		p := &s.parts[number]
		if p.probe == nil && time.Since(p.failed) > s.options.ProbeEvery {
			p.probe = make(chan struct{})
			_, own := s.split(^(1 << number), charges)
			go s.try(number, looks(own), p.probe)
		}
		if p.probe != nil && (isReset || s.isClosed(number, charges)) {
			inProgress = append(inProgress, p.probe)
		}
	}
	s.mu.Unlock()
	for _, done := range inProgress {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	return len(inProgress) > 0
}

// isClosed reports whether a charge on this part is of a FailClosed rule.
func (s *Store) isClosed(number int, charges []limiter.Charge) bool {
	return slices.ContainsFunc(charges, func(c limiter.Charge) bool {
		return c.Quota.OnOutage == limiter.FailClosed && s.partOf(&c) == number
	})
}

// try is a probe. It does not use the request's context, so a client that goes away does not end it.
func (s *Store) try(number int, looks []limiter.Charge, done chan struct{}) {
	var err error
	panicked := survive(func() {
		err = s.timed(context.Background(), func(ctx context.Context) error {
			err := s.inner.Decide(ctx, looks)
			if err == nil || isOfOneKey(err) || errors.Is(err, limiter.ErrCharges) { // an answer
				err = s.servers.TryWrite(ctx, looks)
			}
			return err
		})
	})
	switch {
	case panicked != nil:
		err = fmt.Errorf("failover: the store panicked: %v", panicked)
	case isOfOneKey(err):
		err = nil
	}
	if err != nil {
		close(done) // who waits needs no diagnosis
		s.counters.failures.Add(1)
		err = s.diagnose(number, Event{Err: err}).Err
	} else {
		defer close(done)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	p, bit := &s.parts[number], uint64(1)<<number
	p.probe = nil
	if err != nil {
		s.record(number, err)
		s.announceOutage(true, false)
		return
	}
	p.inRow, p.apart = 0, 0
	s.shares.Clear() // rules may have been read anew since they were first needed
	if s.open.And(^bit) != bit {
		return
	}
	s.total += time.Since(s.since)
	s.recent.calls, s.recent.failures = 0, 0
	if !s.recent.isFlaky {
		s.announceOutage(false, false)
	}
}

// survive returns what f panics with. Nothing else would recover from it in a goroutine that
// serves no request.
func survive(f func()) (panicked any) {
	defer func() { panicked = recover() }()
	f()
	return nil
}
