package leasestore

import "time"

const (
	longestPause = time.Second            // between settlements that fail
	sweepEvery   = 250 * time.Millisecond // how often entries are looked at that are not asked for
)

// loop is the Store's goroutine: it settles leases, and nothing else does while it runs. Without
// requests it sleeps.
func (s *Store) loop() {
	defer close(s.ended)
	pause := tick // between settlements; longer while they fail
	for {
		var sweep <-chan time.Time
		if s.table.keys() > 0 {
			sweep = time.After(sweepEvery)
		}
		select {
		case <-s.stop:
			return
		case <-sweep:
		case <-s.wake: // an entry is listed, and others may follow that can go along
		}
		select {
		case <-s.stop:
			return
		case <-time.After(pause):
		}
		if _, err := s.settle(patience, false); err != nil {
			pause = min(2*pause, longestPause)
		} else {
			pause = tick
		}
	}
}

// wakeLoop has the loop settle soon.
func (s *Store) wakeLoop() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
