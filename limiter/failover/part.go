package failover

import (
	"errors"
	"iter"
	"math/bits"
	"sync"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A part is a server of the inner store that has failed before, with its circuit breaker. After
// Options.Failures failures in a row the breaker is open: the policies decide until a probe
// succeeds.
type part struct {
	store  *Store
	number int

	mu      sync.Mutex
	err     error     // the last there was
	failed  time.Time // when that was
	inRow   int       // failures since the last success
	since   time.Time // when the policies came into force; zero: they are not
	probing bool
	unfit   bool // it was said last that the server is unusable
}

// note counts the result of a call that was made while the breaker was closed. If the breaker
// has opened since, the result is out of date. Calls that fail at the same time fail for one
// reason, so they count once.
func (p *part) note(began time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() && (err == nil || !began.Before(p.failed)) {
		p.book(err)
	}
}

// announce logs the first failure after a time without any, or that the server is unusable. It
// needs the lock.
func (p *part) announce(err error) {
	isUnfit := isUnusable(err)
	isFirst := p.since.IsZero() && (p.failed.IsZero() || time.Since(p.failed) >= quiet)
	if isFirst || isUnfit && !p.unfit {
		p.unfit = isUnfit
		p.store.news.tell(notice{Event: Event{Part: p.number, Err: err}, part: p, isFirst: true})
	}
}

// learn replaces the last error by what a diagnosis found out about it.
func (p *part) learn(found error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		p.err = found
	}
}

// isUnusable reports whether err says that the server cannot do what the store needs.
func isUnusable(err error) bool {
	var wrong interface{ Unusable() bool }
	return errors.As(err, &wrong) && wrong.Unusable()
}

// book counts a result, and opens or closes the breaker. It needs the lock.
func (p *part) book(err error) {
	isOpen := !p.since.IsZero()
	bit := uint64(1) << p.number
	if err != nil {
		p.announce(err)
		p.err, p.failed = err, time.Now()
		p.store.trouble.Or(bit)
		if p.inRow++; p.inRow >= p.store.options.Failures && !isOpen {
			p.since = p.failed
			p.store.outages.began(bit, p.since)
			p.tell(true)
		}
		return
	}
	p.inRow = 0
	if isOpen {
		p.tell(false)
		p.store.outages.ended(bit)
		p.since, p.unfit = time.Time{}, false
		p.store.shares.Clear() // rules may have been read anew since they were first needed
	}
	p.store.trouble.And(^bit)
}

func (p *part) tell(degraded bool) {
	p.store.news.tell(notice{Event: Event{Degraded: degraded, Part: p.number, Err: p.err}, part: p})
}

// outage returns the last error of the server or the network while the breaker is open, or nil.
func (p *part) outage() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return nil
	}
	return p.err
}

// beginProbe reports whether a probe is due. If it is, the caller must make it.
func (p *part) beginProbe() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probing || p.since.IsZero() || time.Since(p.failed) <= p.store.options.ProbeEvery {
		return false
	}
	p.probing = true
	return true
}

// endProbe counts the result of a probe, if it is known.
func (p *part) endProbe(known bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probing = false
	if known {
		p.book(err)
	}
}

// partsOf returns the set of parts that hold the counters of charges, which are valid.
func (s *Store) partsOf(charges []limiter.Charge) uint64 {
	var set uint64
	for i := range charges {
		set |= 1 << s.partOf(&charges[i])
	}
	return set
}

// partOf returns what Part says, kept within bounds.
func (s *Store) partOf(c *limiter.Charge) int { return s.servers.Part(c) & 63 }

// inTrouble yields the parts of a set that have failed.
func (s *Store) inTrouble(set uint64) iter.Seq[*part] {
	return func(yield func(*part) bool) {
		for rest := set & s.trouble.Load(); rest != 0; rest &= rest - 1 {
			if !yield(s.parts[bits.TrailingZeros64(rest)].Load()) {
				return
			}
		}
	}
}

// outage returns the set of parts with an open breaker that hold counters of charges, and the
// last error of one of them, or nil. While no part has failed, it is one atomic load.
func (s *Store) outage(charges []limiter.Charge) (down uint64, cause error) {
	if s.trouble.Load() == 0 {
		return 0, nil
	}
	for p := range s.inTrouble(s.partsOf(charges)) {
		if said := p.outage(); said != nil {
			down |= 1 << p.number
			cause = said
		}
	}
	return down, cause
}

func (s *Store) succeeded(charges []limiter.Charge) {
	if s.trouble.Load() == 0 {
		return
	}
	for p := range s.inTrouble(s.partsOf(charges)) {
		p.note(time.Time{}, nil)
	}
}

// failed counts a failure against the parts of a batch that failed, as far as the inner store
// says which. The other parts have answered.
func (s *Store) failed(began time.Time, charges []limiter.Charge, err error) {
	s.counters.failures.Add(1)
	at := s.failedParts(charges, err)
	for p := range s.inTrouble(s.partsOf(charges) &^ at) {
		p.note(time.Time{}, nil)
	}
	for rest := at; rest != 0; rest &= rest - 1 {
		number := bits.TrailingZeros64(rest)
		if s.parts[number].Load() == nil {
			s.parts[number].CompareAndSwap(nil, &part{store: s, number: number})
		}
		s.parts[number].Load().note(began, err)
	}
}
