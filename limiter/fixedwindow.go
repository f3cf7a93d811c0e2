package limiter

// A fixed window counts from one multiple of the period since 1970 to the next, or in a day, week, month
// or year of a calendar. Debts above the limit move to the next window.
var fixedWindow = algorithm{
	name:    "fixed-window",
	aliases: []string{"fixed-window-counter"},
	lua:     "fixedwindow.lua",
	compile: func(q *Quota) {
		q.capacity, q.window = q.limit.Events, q.limit.Per.Microseconds()
		if c := q.limit.calendar; c.unit != noUnit {
			q.calendar = newCalendarWindows(c)
		}
	},

	advance: func(q *Quota, s State, t int64) State {
		began, start, _, _ := q.windowsAround(t)
		switch {
		case s.Last >= start:
			return State{Last: t, Level: s.Level}
		case s.Last >= began:
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
		if _, start, end, _ := q.windowsAround(s.Last); at == 0 || start <= at && at < end {
			s.Level = max(0, s.Level-n)
		}
		return s
	},
	look: func(q *Quota, s State) (used, reset int64) {
		_, _, end, followedTo := q.windowsAround(s.Last)
		if s.Level > q.capacity {
			end = followedTo
		}
		return s.Level, end - s.Last
	},
	wait: func(q *Quota, s State, cost int64) int64 {
		_, _, end, followedTo := q.windowsAround(s.Last)
		switch {
		case s.Level+cost <= q.capacity:
			return 0
		case s.Level+cost <= 2*q.capacity:
			return end - s.Last
		}
		return followedTo - s.Last
	},
}

// oweCount is owe for windows.
func oweCount(q *Quota, s State, n int64) State {
	s.Level = min(s.Level+n, 2*q.capacity)
	return s
}

// windowsAround returns the start of the window before a time's window, the start and the end of that
// window, and the end of the next one.
func (q *Quota) windowsAround(t int64) (began, start, end, followedTo int64) {
	if q.calendar != nil {
		w := q.calendar.at(t)
		return w.began, w.start, w.end, w.followedTo
	}
	start = t - t%q.window
	return start - q.window, start, start + q.window, start + 2*q.window
}
