package limiter

// A fixed window counts from one multiple of the period since 1970 to the next. What is owed
// above the limit is the first that the next window counts.
var fixedWindow = algorithm{
	name:    "fixed-window",
	aliases: []string{"fixed-window-counter"},
	lua:     "fixedwindow.lua",
	compile: func(q *Quota) {
		q.capacity, q.window = q.limit.Events, q.limit.Per.Microseconds()
	},

	advance: func(q *Quota, s State, t int64) State {
		switch t/q.window - s.Last/q.window {
		case 0:
			return State{Last: t, Level: s.Level}
		case 1:
			return State{Last: t, Level: max(0, s.Level-q.capacity)}
		default:
			return State{Last: t}
		}
	},
	take: func(q *Quota, s State, cost int64) (State, bool) {
		if s.Level+cost > q.capacity {
			return s, false
		}
		s.Level += cost
		return s, true
	},
	owe: oweCount,
	refund: func(q *Quota, s State, n, at int64) State {
		if at == 0 || at/q.window == s.Last/q.window {
			s.Level = max(0, s.Level-n)
		}
		return s
	},
	look: func(q *Quota, s State) (used, reset int64) {
		reset = q.windowRest(s)
		if s.Level > q.capacity {
			reset += q.window
		}
		return s.Level, reset
	},
	wait: func(q *Quota, s State, cost int64) int64 {
		switch {
		case s.Level+cost <= q.capacity:
			return 0
		case s.Level+cost <= 2*q.capacity:
			return q.windowRest(s)
		}
		return q.windowRest(s) + q.window
	},
}

// oweCount is owe of a window.
func oweCount(q *Quota, s State, n int64) State {
	s.Level = min(s.Level+n, 2*q.capacity)
	return s
}

// windowRest is how long the window of s.Last still lasts.
func (q *Quota) windowRest(s State) int64 { return q.window - s.Last%q.window }
