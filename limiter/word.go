package limiter

import (
	"math/bits"
	"time"

	"github.com/weirgo/weir/limiter/internal/table"
)

// The hot path: states that Memory packs into a word. Times count from the store's origin. A word of a
// bucket has no time: Memory reads its clock after the word, so the time is never before the word's.

// uptime is how long a process can run before a packed time overflows.
const uptime = 15 * 366 * 24 * time.Hour

// A layout divides a window's word into the index, the previous count, and the current count, which has one
// more bit for debts. All fields are 0 if the state does not fit.
type layout struct{ index, prev, level uint }

func layoutOf(q *Quota) layout {
	if q.isBucket || q.logs || q.calendar != nil {
		return layout{}
	}
	count := uint(bits.Len64(uint64(q.capacity)))
	l := layout{index: uint(bits.Len64(uint64(uptime.Microseconds()/q.window + 1))), prev: count, level: count + 1}
	if !q.fades {
		l.prev = 0
	}
	if l.index+l.prev+l.level > 64 {
		return layout{}
	}
	return l
}

// fitsWord reports whether q's states are packed. Settles may be set after q was made, so this is not part
// of the layout.
func (q *Quota) fitsWord() bool {
	return q.layout.index > 0 || q.isBucket && !q.hasLows()
}

// base returns the time from which the words of q count, in a store of that origin: in microseconds for a
// bucket, and in windows for a window.
func (q *Quota) base(origin int64) int64 {
	if q.isBucket {
		return origin
	}
	return q.byWindow.down(origin)
}

// unpack returns the usage in a word of q's limit, and how many units of it are used now. A bucket's word is
// the time when it will be empty, in units of 1/refill microseconds.
func (q *Quota) unpack(word uint64, base, now int64) (_ usage, _ []Entry, used int64) {
	u := usage{at: now}
	if q.isBucket {
		u.n = max(0, int64(word)-(now-base)*q.refill)
		return u, nil, q.byUnit.up(u.n)
	}
	l := &q.layout
	u.index = int64(word>>(l.prev+l.level)) + base
	u.n, u.prev = int64(word&(1<<l.level-1)), int64(word>>l.level&(1<<l.prev-1))
	return advanceWindow(q, u, nil, now)
}

// pack returns the word of a usage.
func (q *Quota) pack(u usage, base int64) uint64 {
	if q.isBucket {
		return uint64((u.at-base)*q.refill + u.n)
	}
	l := &q.layout
	return uint64(u.index-base)<<(l.prev+l.level) | uint64(u.prev)<<l.level | uint64(u.n)
}

// attempts is how often decideWord tries to swap a word before it gives up.
const attempts = 6

// pause waits for half a microsecond, and twice as long after each attempt. Meanwhile another core decides
// several times with the word in its cache. Without a pause, the cores would mostly pass the cache line
// around. (The compiler keeps the empty loop.)
func pause(attempt int) {
	for range 1024 << attempt {
	}
}

// decideWord decides on one charge of a known key without the lock. It returns false if it cannot: other goroutines
// kept changing the word, a mark must change, or retag has replaced the tags. It reads the clock after the word,
// so time does not go back from one decision to the next.
func (m *Memory) decideWord(q *Quota, b *binding, hash uint64, cost int64, within time.Duration, d *Decision) bool {
	shard := m.shardOf(hash)
	for attempt := range attempts {
		cell, result := shard.Seek(hash)
		switch {
		case result == table.Busy:
			pause(attempt)
			continue
		case result == table.NotFound || cell.Tag() != b.tag || m.tags.Load() != b.tags:
			return false
		}
		u, _, used := q.unpack(cell.State(), b.base, m.now())
		_, u, _ = q.decide(q, u, nil, used, cost, within, d)
		if marksAfter(cell.Marks(), q, cost, d) != cell.Marks() {
			return false
		}
		if !d.Allowed || cost == 0 || cell.Swap(q.pack(u, b.base)) {
			return true
		}
		pause(attempt)
	}
	return false
}
