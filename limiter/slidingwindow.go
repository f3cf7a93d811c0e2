package limiter

// A sliding window is the count of the current window, aligned as FixedWindow's,
// plus the share of the previous one that the last Per still overlaps. The share
// fades in steps, of a microsecond unless Events*Per is above 2^53, and is compared
// without rounding; where a step is longer, its beginning counts, which never admits
// too much.
var slidingWindow = algorithm{
	name:    "sliding-window",
	aliases: []string{"sliding-window-counter", "sliding-counter"},
	compile: func(q *Quota) {
		q.capacity, q.window = q.limit.Events, q.limit.Per.Microseconds()
		q.step = divUp(q.window, (1<<53)/q.capacity)
		q.steps = divUp(q.window, q.step)
	},

	advance: func(q *Quota, s State, t int64) State {
		switch t/q.window - s.Last/q.window {
		case 0:
			return State{Last: t, Level: s.Level, Prev: s.Prev}
		case 1:
			return State{Last: t, Prev: s.Level}
		default:
			return State{Last: t}
		}
	},
	take: func(q *Quota, s State, cost int64) (State, bool) {
		room := q.capacity - s.Level - cost
		if room < 0 || s.Prev*q.fade(s) > room*q.steps {
			return s, false
		}
		s.Level += cost
		return s, true
	},
	giveBack: func(q *Quota, s State, n int64) State {
		current := min(n, s.Level)
		s.Level -= current
		s.Prev = max(0, s.Prev-(n-current))
		return s
	},
	look: func(q *Quota, s State) (remaining, reset int64) {
		remaining = max(0, q.capacity-s.Level-divUp(s.Prev*q.fade(s), q.steps))
		reset = q.windowRest(s)
		if s.Level > 0 {
			reset += q.window
		}
		return remaining, reset
	},
	wait: func(q *Quota, s State, cost int64) int64 {
		if room := q.capacity - s.Level - cost; room >= 0 {
			if s.Prev*q.fade(s) <= room*q.steps {
				return 0
			}
			return q.windowRest(s) - q.window + q.faded(s.Prev, room)
		}
		// The next window has to begin, and what is now current has to fade in it.
		return q.windowRest(s) + q.faded(s.Level, q.capacity-cost)
	},
}

// fade is how many of q.steps the previous window still counts for at s.Last.
func (q *Quota) fade(s State) int64 { return q.steps - s.Last%q.window/q.step }

// faded is how far into a window a previous count has faded to room.
func (q *Quota) faded(prev, room int64) int64 {
	return min((q.steps-room*q.steps/prev)*q.step, q.window)
}
