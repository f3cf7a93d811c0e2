package limiter

import "slices"

// A sliding log is the times of the events of the last Per, one for each unit.
var slidingLog = algorithm{
	name:       "sliding-log",
	aliases:    []string{"sliding-window-log"},
	mostEvents: 10_000,
	lua:        "slidinglog.lua",
	compile: func(q *Quota) {
		q.capacity, q.window = q.limit.Events, q.limit.Per.Microseconds()
	},

	advance: func(q *Quota, s State, t int64) State {
		// An event at e counts in [e, e+window).
		gone, _ := slices.BinarySearch(s.Log, t-q.window+1)
		return State{Last: t, Log: s.Log[gone:]}
	},
	take: func(q *Quota, s State, cost int64) (State, bool) {
		if int64(len(s.Log))+cost > q.capacity {
			return s, false
		}
		for range cost {
			s.Log = append(s.Log, s.Last)
		}
		return s, true
	},
	refund: func(q *Quota, s State, n, at int64) State {
		switch {
		case at == 0:
			s.Log = s.Log[:max(0, len(s.Log)-int(n))]
			return s
		case at > s.Last: // nothing was taken then; and at+1 could overflow
			return s
		}
		from, _ := slices.BinarySearch(s.Log, at)
		to, _ := slices.BinarySearch(s.Log, at+1)
		s.Log = slices.Delete(s.Log, from, min(to, from+int(n)))
		return s
	},
	look: func(q *Quota, s State) (remaining, reset int64) {
		used := len(s.Log)
		if used == 0 {
			return q.capacity, 0
		}
		return q.capacity - int64(used), s.Log[used-1] + q.window - s.Last
	},
	wait: func(q *Quota, s State, cost int64) int64 {
		tooMany := int64(len(s.Log)) + cost - q.capacity
		if tooMany <= 0 {
			return 0
		}
		return s.Log[tooMany-1] + q.window - s.Last
	},
}
