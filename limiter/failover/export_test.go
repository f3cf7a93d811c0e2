package failover

import "github.com/weirgo/weir/limiter"

// The tests are outside of this package. What follows they cannot see there, or not without changing it.

// Options are with their defaults.
func (s *Store) Options() Options { return s.options }

// IsDown reports whether a breaker is open: another decision would be one more failure.
func (s *Store) IsDown(charges []limiter.Charge) bool {
	for i := range charges {
		if s.serverOf(&charges[i]).down.Load() != nil {
			return true
		}
	}
	return false
}

// Local has the counters of this process, which only an outage would show, and change.
func (s *Store) Local() limiter.Store { return s.local }

// ShareOf returns what the local counters are counted against.
func (s *Store) ShareOf(q *limiter.Quota) *limiter.Quota { return s.share(q) }

// Shares and Owing are how many shares and keys in debt are remembered: a bound of memory.
func (s *Store) Shares() (n int) {
	return len(s.shares.of)
}

func (s *Store) Owing() int { return int(s.debts.count.Load()) }
