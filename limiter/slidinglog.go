package limiter

import (
	"slices"
	"sort"
)

// A sliding log has one entry for each event of the last Per. Level is the number of units taken and owed.
// Prev is the number of units owed: while it is above 0, the entries have as many units as the limit, and
// units that expire pay back the debt first.
var slidingLog = algorithm{
	name:       "sliding-log",
	aliases:    []string{"sliding-window-log"},
	mostEvents: 10_000,
	lua:        "slidinglog.lua",
	compile: func(q *Quota) {
		q.capacity, q.window = q.limit.Events, q.limit.Per.Microseconds()
	},

	advance: advanceLog,
	take: func(q *Quota, s State, cost int64) (State, bool) {
		if s.Level+cost > q.capacity {
			return s, false
		}
		s.Level += cost
		s.Log = append(s.Log, Entry{s.Last, cost})
		return s, true
	},
	owe:    oweLog,
	refund: refundLog,
	look: func(q *Quota, s State) (used, reset int64) {
		if n := len(s.Log); n > 0 && s.Prev == 0 {
			return s.Level, s.Log[n-1].At + q.window - s.Last
		}
		return s.Level, q.roomFor(s, s.Level)
	},
	wait: func(q *Quota, s State, cost int64) int64 {
		return q.roomFor(s, s.Level+cost-q.capacity)
	},
}

func advanceLog(q *Quota, s State, t int64) State {
	s.Last = t
	if len(s.Log) == 0 || s.Log[0].At > t-q.window {
		return s
	}
	return expireLog(q, s, t)
}

// expireLog returns s without the events that have expired at t: an event at e counts in [e,
// e+window).
func expireLog(q *Quota, s State, t int64) State {
	for len(s.Log) > 0 && s.Log[0].At <= t-q.window {
		gone := s.Log[0]
		s.Log = s.Log[1:]
		s.Level -= gone.N
		s = payBack(s, gone.At+q.window, gone.N)
	}
	return s
}

func oweLog(q *Quota, s State, n int64) State {
	n = min(n, 2*q.capacity-s.Level)
	s.Level += n
	s.Prev += n
	return payBack(s, s.Last, q.capacity-(s.Level-s.Prev))
}

func refundLog(q *Quota, s State, n, at int64) State {
	left := n
	if at == 0 {
		owed := min(left, s.Prev)
		s.Prev -= owed
		left -= owed
	}
	i := len(s.Log)
	if at != 0 {
		i = entriesUpTo(s.Log, at)
	}
	for i--; i >= 0 && left > 0 && (at == 0 || s.Log[i].At == at); i-- {
		back := min(left, s.Log[i].N)
		left -= back
		if s.Log[i].N -= back; s.Log[i].N == 0 {
			s.Log = slices.Delete(s.Log, i, i+1)
		}
	}
	s.Level -= n - left
	return payBack(s, s.Last, q.capacity-(s.Level-s.Prev))
}

// payBack turns up to n owed units of s into an entry of time t, which is not before any other
// entry.
func payBack(s State, t, n int64) State {
	if n = min(n, s.Prev); n > 0 {
		s.Prev -= n
		s.Log = append(s.Log, Entry{t, n})
	}
	return s
}

// roomFor returns how long it takes until that many units of the level have expired.
func (q *Quota) roomFor(s State, units int64) int64 {
	rounds := int64(1)
	if entries := s.Level - s.Prev; units > entries {
		units -= entries // owed units take the room of expired entries, and last another period
		rounds = 2
	}
	for i := 0; units > 0; i++ {
		if units -= s.Log[i].N; units <= 0 {
			return s.Log[i].At + rounds*q.window - s.Last
		}
	}
	return 0
}

// entriesUpTo returns how many entries are no later than t.
func entriesUpTo(log []Entry, t int64) int {
	return sort.Search(len(log), func(i int) bool { return log[i].At > t })
}
