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
	fades:   true,
	compile: func(q *Quota) {
		q.capacity, q.window = q.limit.Events, q.limit.Per.Microseconds()
		q.step = divUp(q.window, (1<<53)/q.capacity)
		q.steps = divUp(q.window, q.step)
	},
	arithmetic: windows,
}

// faded returns how far into a window the share of the previous count is at most room units. In windows
// that do not fade, that is at the start.
func (q *Quota) faded(prev, room int64) int64 {
	if !q.fades || prev <= room {
		return 0
	}
	return min((q.steps-((room+1)*q.steps-1)/prev)*q.step, q.window)
}
