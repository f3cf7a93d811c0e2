package limiter

// A sliding counter is the count of the current window, aligned as FixedWindow's,
// plus the whole units in the share of the previous one that the last Per still
// overlaps. Were the share not rounded down, the last unit would be out of reach until
// the previous window is forgotten, and "1 per minute" would be one in two minutes.
//
// The share fades in steps, of a microsecond unless Events*Per is above 2^53; where a
// step is longer, its beginning counts, which never admits too much.
//
// What is owed above the limit is the first that the next window counts, so the previous count
// is at most the limit, and nothing that is owed fades.
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
		within, owed := min(s.Level, q.capacity), max(0, s.Level-q.capacity)
		switch age := t - s.Last + q.elapsed(s); { // of the window of s.Last
		case age < q.window:
			return State{Last: t, Level: s.Level, Prev: s.Prev}
		case age < 2*q.window:
			return State{Last: t, Level: owed, Prev: within}
		case age < 3*q.window:
			return State{Last: t, Prev: owed}
		default:
			return State{Last: t}
		}
	},
	take: func(q *Quota, s State, cost int64) (State, bool) {
		if s.Level+q.share(s)+cost > q.capacity {
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
		used = s.Level + q.share(s)
		switch owed := s.Level - q.capacity; {
		case owed > 0:
			return used, q.windowRest(s) + q.window + q.faded(owed, 0)
		case s.Level > 0:
			return used, q.windowRest(s) + q.faded(s.Level, 0)
		}
		return used, q.faded(s.Prev, 0) - q.elapsed(s)
	},
	wait: func(q *Quota, s State, cost int64) int64 {
		if room := q.capacity - s.Level - cost; room >= 0 {
			if q.share(s) <= room {
				return 0
			}
			return q.faded(s.Prev, room) - q.elapsed(s)
		}
		// The next window has to begin, and what is now current has to fade in it.
		within, owed := min(s.Level, q.capacity), max(0, s.Level-q.capacity)
		if room := q.capacity - owed - cost; room >= 0 {
			return q.windowRest(s) + q.faded(within, room)
		}
		return q.windowRest(s) + q.window + q.faded(owed, q.capacity-cost)
	},
}

// elapsed is how far s.Last is into its window.
func (q *Quota) elapsed(s State) int64 { return s.Last % q.window }

// share is how much of the previous window still counts, in whole units.
func (q *Quota) share(s State) int64 {
	if s.Prev == 0 {
		return 0
	}
	return s.Prev * (q.steps - q.elapsed(s)/q.step) / q.steps
}

// faded is how far into a window the share of a previous count is down to room units.
func (q *Quota) faded(prev, room int64) int64 {
	if prev <= room {
		return 0
	}
	return min((q.steps-((room+1)*q.steps-1)/prev)*q.step, q.window)
}

// windowRest is how long the window of s.Last still lasts.
func (q *Quota) windowRest(s State) int64 { return q.window - s.Last%q.window }
