// Package seldom counts events that come too often to log each of them.
package seldom

import (
	"sync/atomic"
	"time"
)

// A Log says when to log an event: at once, and then once in a while, with the number of events. It is for many
// goroutines.
type Log struct {
	events atomic.Uint64 // since the last log
	next   atomic.Int64  // when the next log is due, in nanoseconds since 1970
}

// Add counts an event. If none was logged for that long, it returns the number of events since then, with this one.
// Otherwise it returns 0: do not log the event.
func (l *Log) Add(every time.Duration) (events uint64) {
	l.events.Add(1)
	now, next := time.Now().UnixNano(), l.next.Load()
	isEarly := now < next && next-now <= int64(every) // otherwise the clock was set back
	if isEarly || !l.next.CompareAndSwap(next, now+int64(every)) {
		return 0
	}
	return l.events.Swap(0)
}
