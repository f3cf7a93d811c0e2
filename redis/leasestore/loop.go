package leasestore

import "time"

// A pace is when the loop last did what.
type pace struct {
	settled time.Time
	pause   time.Duration // between settlements; longer while they fail
	sweep   time.Duration // until idle entries are looked at again
}

const (
	longestPause = time.Second            // between settlements that fail
	sweepEvery   = 250 * time.Millisecond // at first, when requests have stopped
	longestSweep = time.Second            // while units are held
	longestRest  = 10 * time.Minute       // while none are
)

// loop is the Store's goroutine: it settles leases, and nothing else does while it runs. Without
// requests it sleeps, and a request wakes it.
func (s *Store) loop() {
	defer close(s.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	p := pace{pause: tick, sweep: sweepEvery}
	for {
		wait, isForever := s.idle(&p)
		timer.Reset(wait)
		if isForever {
			timer.Stop()
		}
		select {
		case <-s.stop:
			return
		case <-s.wake:
			// Other requests may follow that can go along.
			p.sweep = sweepEvery
			timer.Reset(tick)
			select {
			case <-s.stop:
				return
			case <-timer.C:
			}
		case <-timer.C:
		}
		s.dozing.Store(false)
		s.turn(&p)
	}
}

// turn settles if it is time to.
func (s *Store) turn(p *pace) {
	if time.Since(p.settled) < p.pause {
		return
	}
	if err := s.settle(); err != nil {
		p.pause = min(2*p.pause, longestPause)
	} else {
		p.pause = tick
	}
	p.settled = time.Now()
}

// idle is for how long there is nothing to do. Where nothing is listed, listing something
// wakes the loop.
func (s *Store) idle(p *pace) (wait time.Duration, isForever bool) {
	s.dozing.Store(true)
	isListed, keys := s.listed()
	switch {
	case isListed:
		s.dozing.Store(false)
		p.sweep = sweepEvery
		return max(time.Until(p.settled.Add(p.pause)), time.Millisecond), false
	case keys > 0:
		wait = p.sweep
		if p.sweep *= 2; s.holding {
			p.sweep = min(p.sweep, longestSweep)
		}
		p.sweep = min(p.sweep, longestRest)
		return wait, false
	default:
		return time.Hour, true
	}
}

// listed reports whether an entry is on a list, and how many entries there are.
func (s *Store) listed() (isListed bool, keys int) {
	for sh := range s.table.occupied() {
		sh.mu.Lock()
		isListed = isListed || len(sh.listed) > 0
		keys += len(sh.index)
		sh.mu.Unlock()
	}
	return isListed, keys
}
