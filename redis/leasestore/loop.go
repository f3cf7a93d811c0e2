package leasestore

import "time"

const (
	longestPause = time.Second            // between settlements that fail
	sweepEvery   = 250 * time.Millisecond // how often entries are looked at that are not asked for
)

// loop is the Store's goroutine: it settles leases, and nothing else does while it runs. While no key
// is known it sleeps, until a request wakes it.
func (s *Store) loop() {
	defer close(s.ended)
	pause := tick // between settlements; longer while they fail
	for {
		if s.table.keys() == 0 {
			select {
			case <-s.stop:
				return
			case <-s.wake:
			}
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
