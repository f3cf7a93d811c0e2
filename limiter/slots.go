package limiter

import (
	"math"
	"sync/atomic"
)

// A log of few events is in as many slots, in any order: what is over is overwritten. A slot is
// a word:
//
//	bit 0       4      8                                    64
//	    | units | owed | microseconds since the store's origin |
//
// Owed is State.Prev, and in the first slot. While it is not 0 all slots are in order and none
// is overwritten, as an event that is over makes room for what is owed.
const (
	slotBits = 4
	slotMask = 1<<slotBits - 1
	slotTime = 2 * slotBits

	// mostSlotEntries is how many entries a log of slots has at most while it advances, those that
	// are over among them: each may have made room for one that was owed.
	mostSlotEntries = 2*exactEvents + 1
)

// A verdict is what came of deciding on a span.
type verdict uint8

const (
	stays   verdict = iota // it is refused, or a look
	changes                // it is taken
	locked                 // it has to be decided with the lock
)

// takeSlots fills in the decision on a log in slots, and returns the one that it would take,
// with its number in place of what is owed.
func (q *Quota) takeSlots(now, origin int64, words []uint64, cost int64, d *Decision) (slot uint64, _ verdict) {
	gone := now - q.window
	used, oldest, newest := int64(0), int64(math.MaxInt64), int64(-1)
	free, owed := 0, atomic.LoadUint64(&words[0])>>slotBits&slotMask
	for i := range words {
		word := atomic.LoadUint64(&words[i])
		at := int64(word >> slotTime)
		if word == 0 || at <= gone {
			free = i
			continue
		}
		used += int64(word & slotMask)
		oldest, newest = min(oldest, at), max(newest, at)
	}
	allowed := cost <= q.capacity-used || cost == 0
	if owed > 0 || !allowed && (cost > q.capacity || cost > q.capacity-used+1) {
		return 0, q.lookSlots(now, origin, words, cost, d)
	}
	*d = Decision{Allowed: allowed, Limit: q.capacity, At: now + origin}
	verdict := stays
	switch {
	case !allowed:
		d.RetryAfter = micros(oldest - gone)
	case cost > 0:
		slot, verdict = uint64(now)<<slotTime|uint64(free)<<slotBits|uint64(cost), changes
		oldest, newest = min(oldest, now), now
		used += cost
	}
	d.Remaining = q.capacity - used
	if used > 0 {
		d.NextAfter, d.ResetAfter = micros(oldest-gone), micros(newest-gone)
	}
	return slot, verdict
}

// lookSlots is takeSlots where something is owed, or more than the oldest event stands in the
// way.
func (q *Quota) lookSlots(now, origin int64, words []uint64, cost int64, d *Decision) verdict {
	var space [mostSlotEntries]Entry
	s := unpackSlots(words, origin, now+origin, space[:0])
	if s.Prev > q.capacity || s.Prev > 0 && s.Level-s.Prev != q.capacity {
		return locked // it was changing
	}
	s = advanceLog(q, s, now+origin)
	*d = Decision{
		Allowed:   cost <= q.capacity-s.Level || cost == 0,
		Limit:     q.capacity,
		Remaining: max(0, q.capacity-s.Level),
		At:        s.Last,
	}
	if s.Level > 0 {
		d.NextAfter = micros(q.roomFor(s, s.Level+d.Remaining+1-q.capacity))
		d.ResetAfter = micros(q.roomFor(s, s.Level))
	}
	switch {
	case d.Allowed && cost > 0:
		return locked
	case d.Allowed:
	case cost > q.capacity:
		d.RetryAfter = Never
	default:
		d.RetryAfter = micros(q.roomFor(s, s.Level+cost-q.capacity))
	}
	return stays
}

// fillSlot writes what takeSlots returned.
func fillSlot(words []uint64, slot uint64) {
	atomic.StoreUint64(&words[slot>>slotBits&slotMask], slot&^(slotMask<<slotBits))
}

// unpackSlots is a log that is to advance to now.
func unpackSlots(words []uint64, origin, now int64, space []Entry) State {
	log := space[:0]
	s := State{Last: now, Prev: int64(atomic.LoadUint64(&words[0]) >> slotBits & slotMask)}
	s.Level = s.Prev
	for i := range words {
		word := atomic.LoadUint64(&words[i])
		if word&slotMask == 0 {
			continue
		}
		e := Entry{int64(word>>slotTime) + origin, int64(word & slotMask)}
		s.Level += e.N
		log = append(log, e)
		for j := len(log) - 1; j > 0 && log[j-1].At > e.At; j-- {
			log[j-1], log[j] = log[j], log[j-1]
		}
	}
	s.Log = log
	return s
}

func packSlots(words []uint64, origin int64, s State) {
	for i := range words {
		word := uint64(0)
		if i < len(s.Log) {
			word = uint64(max(0, s.Log[i].At-origin))<<slotTime | uint64(s.Log[i].N)
		}
		if i == 0 {
			word |= uint64(s.Prev) << slotBits
		}
		storeChanged(&words[i], word)
	}
}
