package limiter

// A sliding counter adds the count of the current window, aligned like FixedWindow's, and a share of the
// previous window's count: the part of that window which the last Per overlaps. The share is rounded down.
// Otherwise the last unit would be unavailable until the previous window is over, and "1 per minute"
// would admit one event in two minutes.
//
// The share shrinks in steps. A step is a microsecond unless Events*Per is above 2^53. Within a longer
// step, the share at its start counts, so no more is admitted.
//
// Debts above the limit move to the next window. So the previous count is at most the limit, and debts do
// not fade.
var slidingCounter = algorithm{
	name:    "sliding-window-counter",
	aliases: []string{"sliding-counter"},
	lua:     "slidingcounter.lua",
	compile: func(q *Quota) {
		q.capacity, q.window = q.limit.Events, q.limit.Per.Microseconds()
		q.step = divUp(q.window, (1<<53)/q.capacity)
		q.steps = divUp(q.window, q.step)
	},

	advance: func(q *Quota, s State, t int64) State {
		c := q.countsIn(s)
		q.advanceCounts(t, &c)
		return State{Last: t, Level: c.level, Prev: c.prev}
	},
	take: func(q *Quota, s State, cost int64) (State, bool) {
		if q.countsUsed(s)+cost > q.capacity {
			return s, false
		}
		s.Level += cost
		return s, true
	},
	owe: oweCount,
	refund: func(q *Quota, s State, n, at int64) State {
		switch age := s.Last/q.window - at/q.window; {
		case at == 0:
			current := min(n, s.Level)
			s.Level -= current
			s.Prev = max(0, s.Prev-(n-current))
		case age == 0:
			s.Level = max(0, s.Level-n)
		case age == 1:
			s.Prev = max(0, s.Prev-n)
		}
		return s
	},
	look: func(q *Quota, s State) (used, reset int64) {
		c := q.countsIn(s)
		return q.countsUsed(s), q.resetCounts(&c, s.Last%q.window)
	},
	wait: func(q *Quota, s State, cost int64) int64 {
		if q.countsUsed(s)+cost <= q.capacity {
			return 0
		}
		c := q.countsIn(s)
		return q.waitCounts(&c, s.Last%q.window, cost)
	},
}

func (q *Quota) countsIn(s State) counts {
	return counts{q.byWindow.down(s.Last), s.Level, s.Prev}
}

// countsUsed returns how many units of s are used or owed.
func (q *Quota) countsUsed(s State) int64 {
	c := q.countsIn(s)
	return s.Level + q.shareOf(&c, s.Last%q.window)
}
