package failover

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A part is a server of the inner store with its circuit breaker. After Options.Failures failures
// in a row the breaker is open: the policies decide until a probe succeeds.
type part struct {
	err     error     // the last there was
	failed  time.Time // when that was
	inRow   int       // failures since the last success, if the part is in Store.failing
	probing bool
	unfit   bool // it was said last that the server is unusable
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

// outage returns the set of parts with an open breaker that hold counters of charges, and the
// last error of one of them, or nil. While no breaker is open, it is one atomic load.
func (s *Store) outage(charges []limiter.Charge) (down uint64, cause error) {
	open := s.open.Load()
	if open == 0 {
		return 0, nil
	}
	if down = open & s.partsOf(charges); down != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		cause = s.lastError(down)
	}
	return down, cause
}

// lastError returns the last error of one of these parts. It needs the lock.
func (s *Store) lastError(parts uint64) error { return s.parts[bits.Len64(parts)-1].err }

// succeeded counts a call that did not fail. If a breaker has opened since the call began, it
// stays open.
func (s *Store) succeeded(charges []limiter.Charge) {
	if failing := s.failing.Load(); failing != 0 && failing&s.partsOf(charges) != 0 {
		s.failing.And(^s.partsOf(charges))
	}
}

// failed counts a call that failed at these parts. If a breaker has opened since the call began,
// its failure is out of date. Calls that fail at the same time fail for one reason, so they count
// once.
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
		if p.inRow++; p.inRow < s.options.Failures {
			continue
		}
		if s.open.Or(bit) == 0 {
			s.since = p.failed
		}
		s.failing.And(^bit)
		s.tell(Event{Degraded: true, Part: number, Err: err}, false)
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

// probe starts the probes that are due for these parts. Each probe has the charges of its own
// part, so that errors of other parts do not count.
func (s *Store) probe(parts uint64, charges []limiter.Charge) {
	for ; parts != 0; parts &= parts - 1 {
		number := bits.TrailingZeros64(parts)
		p := &s.parts[number]
		s.mu.Lock()
		isDue := !p.probing && s.open.Load()>>number&1 == 1 && time.Since(p.failed) > s.options.ProbeEvery
		p.probing = p.probing || isDue
		s.mu.Unlock()
		if isDue {
			go s.try(number, looks(pick(s.chargesOn(1<<number, charges), charges)))
		}
	}
}

// try is a probe. It looks at keys and writes something else, because a server that can be read
// but not written is still down. It does not use the request's context, so a client that goes
// away does not end it.
func (s *Store) try(number int, looks []limiter.Charge) {
	var err error
	if panicked := survive(func() {
		err = s.timed(context.Background(), func(ctx context.Context) error {
			if err := s.inner.Decide(ctx, looks, make([]limiter.Decision, len(looks))); err != nil && !isOfOneKey(err) {
				return err
			}
			return s.servers.TryWrite(ctx, looks)
		})
	}); panicked != nil {
		err = fmt.Errorf("failover: the store panicked: %v", panicked)
	}
	if isOfOneKey(err) {
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
