package leasestore

import "time"

const (
	longestPause = time.Second            // between settlements that fail
	sweepEvery   = 250 * time.Millisecond // how often entries are looked at that are not asked for
)

// loop is the Store's goroutine: it settles leases, and nothing else does while it runs. Without
// requests it sleeps, and a request wakes it.
func (s *Store) loop() {
	defer close(s.ended)
	pause := tick // between settlements; longer while they fail
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		// Where nothing is listed, listing something wakes the loop.
		s.dozing.Store(true)
		isListed, keys := s.listed()
		switch {
		case isListed:
			s.dozing.Store(false)
			timer.Reset(pause)
		case keys > 0:
			timer.Reset(max(pause, sweepEvery))
		default:
			timer.Stop()
		}
		select {
		case <-s.stop:
			return
		case <-s.wake:
			timer.Reset(pause) // as other requests may follow that can go along
			select {
			case <-s.stop:
				return
			case <-timer.C:
			}
		case <-timer.C:
		}
		s.dozing.Store(false)
		if _, err := s.settle(patience, false); err != nil {
			pause = min(2*pause, longestPause)
		} else {
			pause = tick
		}
	}
}

// listed reports whether an entry is on a list, and how many entries there are.
func (s *Store) listed() (isListed bool, keys int) {
	for i := range s.table.shards {
		sh := &s.table.shards[i]
		sh.mu.Lock()
		isListed = isListed || len(sh.listed) > 0
		keys += len(sh.index)
		sh.mu.Unlock()
	}
	return isListed, keys
}
