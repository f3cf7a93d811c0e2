package limiter

import (
	"slices"
	"sort"
)

// A sliding log has one entry for each event of the last Per. Level is the number of units taken and owed.
// Prev is the number of units owed. While Prev is above 0, the entries have as many units as the limit, and
// each unit that expires pays back one unit of the debt.
var slidingLog = algorithm{
	name:       "sliding-log",
	aliases:    []string{"sliding-window-log"},
	mostEvents: 10_000,
	compile: func(q *Quota) {
		q.capacity, q.window = q.limit.Events, q.limit.Per.Microseconds()
	},

	arithmetic: arithmetic{
		advance: advanceLog,
		owe: func(q *Quota, u usage, log []Entry, n int64) (usage, []Entry) {
			n = min(n, 2*q.capacity-u.n)
			u.n += n
			u.prev += n
			return payBack(u, log, u.at, q.capacity-(u.n-u.prev))
		},
		refund: refundLog,
		wait: func(q *Quota, u usage, log []Entry, n int64) (fit, reset int64) {
			if n := len(log); n > 0 && u.prev == 0 {
				reset = log[n-1].At + q.window - u.at
			} else {
				reset = q.roomFor(u, log, u.n)
			}
			return q.roomFor(u, log, u.n+n-q.capacity), reset
		},
	},
}

// advanceLog drops the events that have expired at t: an event at e counts in [e, e+window).
func advanceLog(q *Quota, u usage, log []Entry, t int64) (_ usage, _ []Entry, used int64) {
	u.at = t
	for len(log) > 0 && log[0].At <= t-q.window {
		gone := log[0]
		log = log[1:]
		u.n -= gone.N
		u, log = payBack(u, log, gone.At+q.window, gone.N)
	}
	return u, log, u.n
}

func refundLog(q *Quota, u usage, log []Entry, n, at int64) (usage, []Entry) {
	left := n
	if at == 0 {
		owed := min(left, u.prev)
		u.prev -= owed
		left -= owed
	}
	i := len(log)
	if at != 0 {
		i = entriesUpTo(log, at)
	}
	for i--; i >= 0 && left > 0 && (at == 0 || log[i].At == at); i-- {
		back := min(left, log[i].N)
		left -= back
		if log[i].N -= back; log[i].N == 0 {
			log = slices.Delete(log, i, i+1)
		}
	}
	u.n -= n - left
	return payBack(u, log, u.at, q.capacity-(u.n-u.prev))
}

// payBack turns up to n owed units into an entry of time t, which is not before any other entry.
func payBack(u usage, log []Entry, t, n int64) (usage, []Entry) {
	if n = min(n, u.prev); n > 0 {
		u.prev -= n
		log = append(log, Entry{t, n})
	}
	return u, log
}

// roomFor returns in how many microseconds that many units of the level have expired.
func (q *Quota) roomFor(u usage, log []Entry, units int64) int64 {
	rounds := int64(1)
	if entries := u.n - u.prev; units > entries {
		units -= entries // a debt is paid by keeping expired entries for one more period
		rounds = 2
	}
	for i := 0; units > 0; i++ {
		if units -= log[i].N; units <= 0 {
			return log[i].At + rounds*q.window - u.at
		}
	}
	return 0
}

// entriesUpTo returns how many entries are no later than t.
func entriesUpTo(log []Entry, t int64) int {
	return sort.Search(len(log), func(i int) bool { return log[i].At > t })
}
