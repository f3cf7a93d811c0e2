package limiter

// A fixed window counts from one multiple of the period since 1970 to the next, or in a day, week, month
// or year of a calendar. Debts above the limit move to the next window.
var fixedWindow = algorithm{
	name:    "fixed-window",
	aliases: []string{"fixed-window-counter"},
	compile: func(q *Quota) {
		q.capacity, q.window = q.limit.Events, q.limit.Per.Microseconds()
		if c := q.limit.calendar; c.unit != noUnit {
			q.calendar = newCalendarWindows(c)
		}
	},
	arithmetic: windows,
}

// windows is the arithmetic of fixed windows and of the sliding counter. A usage has the count of its
// window, and if the previous window fades, that window's count.
var windows = arithmetic{
	advance: advanceWindow,
	owe: func(q *Quota, u usage, _ []Entry, n int64) (usage, []Entry) {
		u.n = min(u.n+n, 2*q.capacity)
		return u, nil
	},
	refund: func(q *Quota, u usage, _ []Entry, n, at int64) (usage, []Entry) {
		switch began, start, end, _ := q.windowsAround(u); {
		case at == 0:
			current := min(n, u.n)
			u.n -= current
			u.prev = max(0, u.prev-(n-current))
		case start <= at && at < end:
			u.n = max(0, u.n-n)
		case began <= at && at < start:
			u.prev = max(0, u.prev-n)
		}
		return u, nil
	},
	wait: waitWindow,
}

// advanceWindow moves the counts to the previous window as often as a window has ended.
func advanceWindow(q *Quota, u usage, _ []Entry, t int64) (_ usage, _ []Entry, used int64) {
	passed := int64(0)
	if q.calendar == nil {
		index := q.byWindow.down(t)
		u.index, passed = index, index-u.index
	} else if w := q.calendar.at(t); u.at < w.began {
		passed = 2
	} else if u.at < w.start {
		passed = 1
	}
	u.at = t
	switch {
	case passed == 0:
	case passed == 1:
		u.n, u.prev = max(0, u.n-q.capacity), min(u.n, q.capacity)
	case passed == 2 && q.fades:
		u.n, u.prev = 0, max(0, u.n-q.capacity)
	default:
		u.n, u.prev = 0, 0
	}
	if !q.fades {
		u.prev = 0
	}
	if u.prev == 0 {
		return u, nil, u.n
	}
	share := q.bySteps.down(u.prev * (q.steps - q.byStep.down(u.at-u.index*q.window)))
	return u, nil, min(u.n+share, 2*q.capacity)
}

func waitWindow(q *Quota, u usage, _ []Entry, n int64) (fit, reset int64) {
	if u.n == 0 { // only the previous window counts, and it fades
		elapsed := u.at - u.index*q.window
		return q.faded(u.prev, q.capacity-n) - elapsed, q.faded(u.prev, 0) - elapsed
	}
	_, _, end, followedTo := q.windowsAround(u)
	owed := max(0, u.n-q.capacity)
	if owed > 0 {
		reset = followedTo - u.at + q.faded(owed, 0)
	} else {
		reset = end - u.at + q.faded(u.n, 0)
	}
	switch room := q.capacity - n; {
	case u.n <= room:
		fit = q.faded(u.prev, room-u.n) - (u.at - u.index*q.window)
	case owed <= room:
		fit = end - u.at + q.faded(u.n-owed, room-owed)
	default:
		fit = followedTo - u.at + q.faded(owed, room)
	}
	return fit, reset
}

// windowsAround returns the start of the window before u's window, the start and the end of u's window, and
// the end of the next one.
func (q *Quota) windowsAround(u usage) (began, start, end, followedTo int64) {
	if q.calendar != nil {
		w := q.calendar.at(u.at)
		return w.began, w.start, w.end, w.followedTo
	}
	start = u.index * q.window
	return start - q.window, start, start + q.window, start + 2*q.window
}
