// Package whatif answers what a limit would have refused in the last hour: it records when the
// keys of a sample asked, and has the limit decide about them again.
//
// The sample is of keys, and not of requests: a key is in it by its hash, with all that it
// asks, or not at all. So what is found of one key in 2^level stands for 2^level keys, however
// much each of them asks. The level rises when an hour of the sample does not fit into memory.
package whatif

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// Seconds is how long is remembered.
	Seconds = 3600

	// Eighths is how many parts of a second are told apart.
	Eighths = 8

	slots        = 2048
	mostKeys     = slots / 4 * 3
	firstRecords = 1 << 10
	mostRecords  = 1 << 16
	highestLevel = 40
)

// A Recorder records the demand of one rule. Its memory is some 40 KiB, and up to 256 KiB for
// the records.
type Recorder struct {
	level atomic.Uint32
	odd   atomic.Bool // a cost was not 1

	// A slot is one key's. keys has its hash, which is odd, or free or gone; asked is what it
	// asked in the present second: in the lowest eight bits in which eighths, above these how
	// much; and busy has a bit for each slot that asked.
	keys  [slots]atomic.Uint64
	asked [slots]atomic.Uint64
	busy  [slots / 64]atomic.Uint64

	mu      sync.Mutex // guards what follows, and which keys there are
	known   int        // keys
	counted [slots]int32
	records []record // a ring, of which the length is a power of two
	first   uint64   // of the records that there are
	next    uint64   // behind the last
	oldest  int64    // the second of the first
	newest  int64    // the second of the last

	// complete is from which second on all keys of a level have been recorded.
	complete [highestLevel + 1]int64
	changed  int64 // the second in which the level did
}

const (
	free = 0 // no key was ever there, or it was the last of its row
	gone = 2 // a key was there, and others may follow it
)

// New returns a Recorder that begins in that second.
func New(now int64) *Recorder {
	r := &Recorder{records: make([]record, firstRecords), oldest: now, newest: now, changed: now}
	for i := range r.complete {
		r.complete[i] = now
	}
	return r
}

// Whole is the hash of what all requests count under together. It is always in the sample.
const Whole = 1

// Add records that the key of that hash, which is odd, asked for so much in an eighth of the
// present second. It allocates nothing, and takes a lock only for a key that it does not know.
func (r *Recorder) Add(hash uint64, cost int64, eighth uint) {
	if !sampled(hash, r.level.Load()) || cost <= 0 {
		return
	}
	if cost != 1 && !r.odd.Load() {
		r.odd.Store(true)
	}
	slot, ok := r.find(hash)
	if !ok {
		if slot, ok = r.follow(hash); !ok {
			return
		}
	}
	n := uint64(min(cost, mostUnits)) << Eighths
	sum := r.asked[slot].Add(n)
	if sum&(1<<eighth) == 0 {
		r.asked[slot].Or(1 << eighth)
	}
	if sum>>Eighths == n>>Eighths { // the first of this second
		r.busy[slot/64].Or(1 << (slot % 64))
	}
}

// sampled is true for one hash of 2^level.
func sampled(hash uint64, level uint32) bool { return hash>>(64-level) == 0 }

func (r *Recorder) find(hash uint64) (slot uint64, ok bool) {
	slot = home(hash)
	for range slots {
		switch r.keys[slot].Load() {
		case hash:
			return slot, true
		case free:
			return 0, false
		}
		slot = (slot + 1) % slots
	}
	return 0, false
}

// home is where a key is if that slot was not taken; else it is in one of those that follow.
func home(hash uint64) uint64 { return hash / 2 % slots }

// follow makes a key known, unless that has it leave the sample.
func (r *Recorder) follow(hash uint64) (slot uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slot, ok = r.find(hash); ok {
		return slot, true
	}
	for r.known >= mostKeys && r.level.Load() < highestLevel {
		r.rise()
	}
	if r.known >= mostKeys || !sampled(hash, r.level.Load()) {
		return 0, false
	}
	for slot = home(hash); r.isKey(slot); {
		slot = (slot + 1) % slots
	}
	r.keys[slot].Store(hash)
	r.known++
	return slot, true
}

func (r *Recorder) isKey(slot uint64) bool { return r.keys[slot].Load()&1 == 1 }

// forget makes room for another key. Of one that asks at this moment a request may be missed,
// or count for the next.
func (r *Recorder) forget(slot uint64) {
	r.keys[slot].Store(gone)
	r.asked[slot].Store(0)
	r.known--
	for r.keys[(slot+1)%slots].Load() == free && r.keys[slot].Load() == gone {
		r.keys[slot].Store(free)
		slot = (slot + slots - 1) % slots
	}
}

// Fold ends the second that was recorded, which is not before the last, as now is a later one.
func (r *Recorder) Fold(second, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for word := range r.busy {
		if r.busy[word].Load() == 0 {
			continue
		}
		for left := r.busy[word].Swap(0); left != 0; left &= left - 1 {
			slot := uint64(word*64 + bits.TrailingZeros64(left))
			asked := r.asked[slot].Swap(0)
			if units := asked >> Eighths; units > 0 && r.isKey(slot) {
				r.note(second, slot, units, uint8(asked))
			}
		}
	}
	r.expire(now - Seconds)
	if level := r.level.Load(); level > 0 && now-r.changed >= Seconds &&
		r.known < mostKeys/4 && r.next-r.first < mostRecords/4 {
		r.level.Store(level - 1)
		r.complete[level-1] = now
		r.changed = now
	}
}

// note adds a record, and makes room for it: in more memory, or in a smaller sample.
func (r *Recorder) note(second int64, slot, units uint64, mask uint8) {
	for r.next-r.first+2 > uint64(len(r.records)) {
		switch {
		case len(r.records) < mostRecords:
			r.grow()
		case r.level.Load() < highestLevel:
			r.rise()
			if !r.isKey(slot) {
				return
			}
		default:
			return
		}
	}
	if r.next == r.first {
		r.oldest, r.newest = second, second
	}
	for ; r.newest < second; r.newest += min(second-r.newest, mostPause) {
		r.push(pause(min(second-r.newest, mostPause)))
	}
	r.push(recordOf(slot, units, mask))
	r.counted[slot]++
}

func (r *Recorder) push(e record) {
	r.records[r.next%uint64(len(r.records))] = e
	r.next++
}

func (r *Recorder) grow() {
	wider := make([]record, 2*len(r.records))
	for i := r.first; i < r.next; i++ {
		wider[i%uint64(len(wider))] = r.records[i%uint64(len(r.records))]
	}
	r.records = wider
}

// expire forgets what was before that second.
func (r *Recorder) expire(before int64) {
	for r.first < r.next {
		e := r.records[r.first%uint64(len(r.records))]
		if seconds, ok := e.pause(); ok {
			r.oldest += seconds
		} else {
			if r.oldest >= before {
				return
			}
			r.drop(e.slot())
		}
		r.first++
	}
}

// drop notes that a record of a slot is no more, and forgets the key with its last.
func (r *Recorder) drop(slot uint64) {
	if r.counted[slot]--; r.counted[slot] == 0 && r.asked[slot].Load() == 0 {
		r.forget(slot)
	}
}

// rise halves the sample, and what was recorded of it.
func (r *Recorder) rise() {
	level := r.level.Load() + 1
	r.level.Store(level)
	r.changed = max(r.changed, r.newest)
	for slot := range uint64(slots) {
		if k := r.keys[slot].Load(); k&1 == 1 && !sampled(k, level) {
			r.counted[slot] = 0
			r.forget(slot)
		}
	}
	to, waits := r.first, int64(0) // the pauses between what is left come together
	for i := r.first; i < r.next; i++ {
		e := r.records[i%uint64(len(r.records))]
		if seconds, ok := e.pause(); ok {
			waits += seconds
			continue
		}
		if r.counted[e.slot()] == 0 {
			continue
		}
		for ; waits > 0; waits -= min(waits, mostPause) {
			r.records[to%uint64(len(r.records))] = pause(min(waits, mostPause))
			to++
		}
		r.records[to%uint64(len(r.records))] = e
		to++
	}
	r.next = to
	r.newest -= waits
}

// A record is that a slot asked, in some eighths of a second, for so much; or, if it is for
// nothing, that so many seconds passed.
type record uint32

// From the lowest bit on: units, eighths, and the slot.
const (
	unitBits = 13
	maskBits = Eighths

	coarse    = 1 << (unitBits - 1) // from here on units are told to 64
	mostUnits = (coarse - 1) * 64
	mostPause = 1<<(32-unitBits) - 1
)

func recordOf(slot, units uint64, mask uint8) record {
	if units >= coarse {
		units = coarse | min((units+32)/64, coarse-1)
	}
	return record(units | uint64(mask)<<unitBits | slot<<(unitBits+maskBits))
}

func pause(seconds int64) record { return record(seconds << unitBits) }

func (e record) pause() (seconds int64, ok bool) {
	return int64(e >> unitBits), e&(1<<unitBits-1) == 0
}

func (e record) slot() uint64 { return uint64(e >> (unitBits + maskBits)) }

func (e record) mask() uint8 { return uint8(e >> unitBits) }

func (e record) units() int64 {
	n := int64(e & (1<<unitBits - 1))
	if n >= coarse {
		return n % coarse * 64
	}
	return n
}
