package limiter

import (
	"math/bits"
	"time"
	"unsafe"

	"github.com/weirgo/weir/limiter/internal/table"
)

// Memory keeps most states in one word; its times count from the store's origin.
// What a packed state decides is what the State decides; the word drops only what Memory
// makes good by reading its clock after the word.

// uptime is how long a process can run before a packed time would overflow.
const uptime = 15 * 366 * 24 * time.Hour

// layout says how a quota's states are packed.
type layout struct {
	boxed  bool
	pack   func(q *Quota, origin int64, s State) uint64
	unpack func(q *Quota, origin, now int64, word uint64) State
	bits   uint // of a window's previous count in its word; the current one has one more, for what is owed
}

func layoutOf(q *Quota) layout {
	if q.algorithm.layout == nil {
		return layout{boxed: true}
	}
	return q.algorithm.layout(q)
}

// boxed reports whether q's states are spans. A bucket's depend on Settles, which is set after
// the layout was made.
func (q *Quota) boxed() bool { return q.layout.boxed || q.hasLows() }

// hasLows reports whether q's states have the lows of a bucket.
func (q *Quota) hasLows() bool { return q.Settles && q.algorithm.bursts }

func bucketLayout(*Quota) layout {
	return layout{pack: packBucket, unpack: unpackBucket}
}

func windowLayout(q *Quota) layout {
	count := uint(bits.Len64(uint64(q.capacity)))
	index := uint(bits.Len64(uint64(uptime.Microseconds()/q.window + 1)))
	if index+2*count+1 > 64 {
		return layout{boxed: true}
	}
	return layout{pack: packWindow, unpack: unpackWindow, bits: count}
}

// A bucket's word is when it will be empty, in units of 1/refill microseconds.
func packBucket(q *Quota, origin int64, s State) uint64 {
	return uint64((s.Last-origin)*q.refill + s.Level)
}

func unpackBucket(q *Quota, origin, now int64, word uint64) State {
	return State{Last: now, Level: max(0, int64(word)-(now-origin)*q.refill)}
}

// A window's word is its index and the two counts.
func packWindow(q *Quota, origin int64, s State) uint64 {
	index := uint64(s.Last/q.window - origin/q.window)
	level := q.layout.bits + 1
	return index<<(q.layout.bits+level) | uint64(s.Prev)<<level | uint64(s.Level)
}

func unpackWindow(q *Quota, origin, _ int64, word uint64) State {
	level := q.layout.bits + 1
	index := int64(word>>(q.layout.bits+level)) + origin/q.window
	return State{
		Last:  index * q.window,
		Level: int64(word & (1<<level - 1)),
		Prev:  int64(word >> level & (1<<q.layout.bits - 1)),
	}
}

// A boxed state is a span: the integers, where the log is in the rest, the rest.
const (
	boxLast = iota
	boxLevel
	boxPrev
	boxStart // entries before the log
	boxCount // entries of the log
	boxHeader
)

// logRoom is how many entries a decision usually adds at most.
const logRoom = 4

// entries is what a span holds behind its header.
func entries(span []int64) []Entry {
	rest := span[boxHeader:]
	if len(rest) < 2 {
		return nil
	}
	return unsafe.Slice((*Entry)(unsafe.Pointer(&rest[0])), len(rest)/2) // an Entry is two int64
}

func unbox(span []int64) State {
	if span == nil {
		return State{}
	}
	start, n := int(span[boxStart]), int(span[boxCount])
	log := entries(span)
	if start > 0 && len(log)-(start+n) < logRoom {
		// Make room behind the log, or Take would have to move it out of the span.
		copy(log, log[start:])
		start = 0
		span[boxStart] = 0
	}
	return State{Last: span[boxLast], Level: span[boxLevel], Prev: span[boxPrev], Log: log[start : start+n]}
}

// box writes s to the span behind ref, or to a larger one, and returns where it is.
func box(shard *table.Shard, ref uint64, s State) uint64 {
	span := shard.Span(ref)
	if need := boxHeader + 2*len(s.Log); need > len(span) {
		old := ref
		ref = shard.NewSpan(need + need/4)
		span = shard.Span(ref)
		copy(entries(span), s.Log) // which may lie in the old span
		shard.FreeSpan(old)
		span[boxStart] = 0
	} else if len(s.Log) > 0 {
		log := entries(span)
		if at := len(log) - cap(s.Log); at >= 0 && &log[at] == &s.Log[0] {
			span[boxStart] = int64(at) // it is where Take appended to it
		} else {
			copy(log, s.Log)
			span[boxStart] = 0
		}
	}
	span[boxLast], span[boxLevel], span[boxPrev] = s.Last, s.Level, s.Prev
	span[boxCount] = int64(len(s.Log))
	return ref
}
