package limiter

// A fixed window counts from one multiple of the period since 1970 to the next.
var fixedWindow = algorithm{
	name:    "fixed-window",
	aliases: []string{"fixed-window-counter"},
	layout:  windowLayout,
	lua:     "fixedwindow.lua",
	compile: func(q *Quota) {
		q.capacity, q.window = q.limit.Events, q.limit.Per.Microseconds()
	},

	advance: func(q *Quota, s State, t int64) State {
		if t/q.window != s.Last/q.window {
			s.Level = 0
		}
		return State{Last: t, Level: s.Level}
	},
	take: func(q *Quota, s State, cost int64) (State, bool) {
		if s.Level+cost > q.capacity {
			return s, false
		}
		s.Level += cost
		return s, true
	},
	refund: func(q *Quota, s State, n, at int64) State {
		if at == 0 || at/q.window == s.Last/q.window {
			s.Level = max(0, s.Level-n)
		}
		return s
	},
	look: func(q *Quota, s State) (remaining, reset int64) {
		return q.capacity - s.Level, q.windowRest(s)
	},
	wait: func(q *Quota, s State, cost int64) int64 {
		if s.Level+cost <= q.capacity {
			return 0
		}
		return q.windowRest(s)
	},
}

// windowRest is how long the window of s.Last still lasts.
func (q *Quota) windowRest(s State) int64 { return q.window - s.Last%q.window }
