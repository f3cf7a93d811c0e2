package limiter

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"
	"weak"

	"github.com/weirgo/weir/limiter/internal/table"
)

// How Memory holds states: most in one word, the others in spans and runs (see package table).
// Times count from the store's origin. What is decided on a packed state is what the State
// decides; it leaves out only what Memory makes good by reading its clock after the word.

// uptime is how long a process can run before a packed time would overflow.
const uptime = 15 * 366 * 24 * time.Hour

// A form is how the states of a quota are held.
type form uint8

const (
	inWord   form = iota // a bucket or a window: one word
	inCounts             // a window whose counts do not fit a word: three
	inSlots              // a log of at most exactEvents: a word for each
	inLows               // a bucket that settles: its word, and two for each low
	inRun                // a longer log: a run of its own, for the lock
)

// form depends on Settles, which is set after q was made.
func (q *Quota) form() form {
	switch {
	case q.hasLows():
		return inLows
	case q.algorithm.bursts || q.layout.index > 0:
		return inWord
	case q.algorithm.mostEvents == 0:
		return inCounts
	case q.capacity <= exactEvents:
		return inSlots
	}
	return inRun
}

// words is how many a state has that is not in a run.
func (q *Quota) words() int {
	switch q.form() {
	case inCounts:
		return 3
	case inSlots:
		return int(q.capacity)
	case inLows:
		return 1 + 2*MostLows
	}
	return 1
}

// A layout is how a window's word is divided: its index, the previous count, and the current
// one, which has a bit more for what is owed. All are 0 for what does not fit.
type layout struct{ index, prev, level uint }

func layoutOf(q *Quota) layout {
	if q.algorithm.bursts || q.algorithm.mostEvents > 0 {
		return layout{}
	}
	count := uint(bits.Len64(uint64(q.capacity)))
	l := layout{index: uint(bits.Len64(uint64(uptime.Microseconds()/q.window + 1))), prev: count, level: count + 1}
	if q.algorithm == &fixedWindow {
		l.prev = 0
	}
	if l.index+l.prev+l.level > 64 {
		return layout{}
	}
	return l
}

// A kind of states is what a tag stands for: those of one quota, or those of a family's quotas
// for one key, one section after the other.
type kind struct {
	tag      table.Tag
	words    int // of its spans; 0: it has none
	sections []section
	latest   atomic.Uint64 // the binding of the last quota that is of this kind

	// Those that are bound to it, as far as they are still in use: see tags.go.
	users  map[weak.Pointer[Quota]]struct{}
	pruned int // how many were left when those that are not were last removed
}

// A section is where the state of a quota is in a span. The quota stands for all with that
// limit.
type section struct {
	quota   *Quota
	form    form
	at, end int
}

// in is the section of a span.
func (s *section) in(span []uint64) []uint64 { return span[s.at:s.end] }

// kindOf is what holds q's states, and which section of it is q's.
func kindOf(q *Quota) (k *kind, of int) {
	together := q.together()
	if together == nil {
		together = []*Quota{q}
	}
	k = &kind{}
	for i, member := range together {
		if member == q {
			of = i
		}
		end := k.words + member.words()
		k.sections = append(k.sections, section{member, member.form(), k.words, end})
		k.words = end
	}
	if only := k.sections[0].form; len(together) == 1 && (only == inWord || only == inRun) {
		k.words = 0
	}
	return k, of
}

// name is the same for kinds of states that read each other's.
func (k *kind) name() (name string) {
	for i := range k.sections {
		s := &k.sections[i]
		l := s.quota.limit
		name += fmt.Sprintln(l.Events, int64(l.Per), l.Burst, uint8(l.Algorithm), l.Calendar(), s.form)
	}
	return name
}

// together is the quotas that share a cell for each key, q among them, or nil: a family, if none
// of its states needs a run.
func (q *Quota) together() []*Quota {
	words := 0
	for _, member := range q.family {
		if words += member.words(); member.form() == inRun || words > table.MostWords {
			return nil
		}
	}
	return q.family
}

// sectionFor is which section of k counts what the i-th of another kind does for a key, if one
// does: the first one, which has the rule's name, or the one of the same period.
func (k *kind) sectionFor(other *kind, i int) (of int, ok bool) {
	if i == 0 {
		return 0, true
	}
	for j := 1; j < len(k.sections); j++ {
		if k.sections[j].quota.limit.Per == other.sections[i].quota.limit.Per {
			return j, true
		}
	}
	return 0, false
}

// unpack is the state in a section. Its log has its place in space if that is large enough.
func (s *section) unpack(words []uint64, origin, now int64, space []Entry) State {
	q := s.quota
	switch s.form {
	case inCounts:
		c := loadCounts(words)
		return State{Last: q.windowStart(c.index + q.windowIndex(origin)), Level: c.level, Prev: c.prev}
	case inSlots:
		return unpackSlots(words, origin, now, space)
	case inLows:
		level := q.levelOf(atomic.LoadUint64(&words[0]), now-origin)
		return State{Last: now, Level: level, Log: loadLows(words, origin, space)}
	}
	return q.unpackWord(atomic.LoadUint64(&words[0]), origin, now)
}

// unpackWord is unpack where the state is a word.
func (q *Quota) unpackWord(word uint64, origin, now int64) State {
	if q.algorithm.bursts {
		return State{Last: now, Level: q.levelOf(word, now-origin)}
	}
	c := q.countsOf(word, q.windowIndex(origin))
	return State{Last: q.windowStart(c.index), Level: c.level, Prev: c.prev}
}

// pack writes a state, as unpack reads it.
func (s *section) pack(words []uint64, origin int64, state State) {
	switch s.form {
	case inCounts:
		q := s.quota
		storeCounts(words, counts{q.windowIndex(state.Last) - q.windowIndex(origin), state.Level, state.Prev})
		return
	case inSlots:
		packSlots(words, origin, state)
		return
	case inLows:
		storeLows(words, origin, state.Log)
	}
	atomic.StoreUint64(&words[0], s.quota.packWord(origin, state))
}

// packWord is pack where the state is a word.
func (q *Quota) packWord(origin int64, state State) uint64 {
	if q.algorithm.bursts {
		return q.bucketWord(state.Last-origin, state.Level)
	}
	return q.windowWord(counts{q.windowIndex(state.Last), state.Level, state.Prev}, q.windowIndex(origin))
}

// A bucket's word is when it will be empty, in units of 1/refill microseconds.
func (q *Quota) bucketWord(now, level int64) uint64 { return uint64(now*q.refill + level) }

func (q *Quota) levelOf(word uint64, now int64) int64 { return max(0, int64(word)-now*q.refill) }

// counts are a window's state: its index since 1970, its count, and that of the one before.
type counts struct{ index, level, prev int64 }

// countsOf are those in a window's word, whose index counts from the store's window at its own
// beginning, as it does in spans.
func (q *Quota) countsOf(word uint64, origin int64) counts {
	l := &q.layout
	return counts{
		index: int64(word>>(l.prev+l.level)) + origin,
		level: int64(word & (1<<l.level - 1)),
		prev:  int64(word >> l.level & (1<<l.prev - 1)),
	}
}

func (q *Quota) windowWord(c counts, origin int64) uint64 {
	l := &q.layout
	return uint64(c.index-origin)<<(l.prev+l.level) | uint64(c.prev)<<l.level | uint64(c.level)
}

func loadCounts(words []uint64) counts {
	return counts{
		int64(atomic.LoadUint64(&words[0])), int64(atomic.LoadUint64(&words[1])), int64(atomic.LoadUint64(&words[2])),
	}
}

func storeCounts(words []uint64, c counts) {
	atomic.StoreUint64(&words[0], uint64(c.index))
	atomic.StoreUint64(&words[1], uint64(c.level))
	atomic.StoreUint64(&words[2], uint64(c.prev))
}

// Lows follow a bucket's word, each with its time, in microseconds from 1 on since the store's
// origin, before its level. Those behind the last one have time 0.
func loadLows(words []uint64, origin int64, space []Entry) []Entry {
	lows := space[:0]
	for i := 1; i < len(words); i += 2 {
		at := atomic.LoadUint64(&words[i])
		if at == 0 {
			break
		}
		lows = append(lows, Entry{int64(at) - 1 + origin, int64(atomic.LoadUint64(&words[i+1]))})
	}
	return lows
}

func storeLows(words []uint64, origin int64, lows []Entry) {
	for i := range (len(words) - 1) / 2 {
		at, n := uint64(0), uint64(0)
		if i < len(lows) {
			at, n = uint64(lows[i].At-origin+1), uint64(lows[i].N)
		}
		storeChanged(&words[1+2*i], at)
		storeChanged(&words[2+2*i], n)
	}
}

// storeChanged stores what is another word. It is far cheaper to see that it is not.
func storeChanged(at *uint64, word uint64) {
	if atomic.LoadUint64(at) != word {
		atomic.StoreUint64(at, word)
	}
}

// A run is a state with a long log: the integers, where the log is in the rest, the rest.
const (
	runLast = iota
	runLevel
	runPrev
	runStart // entries before the log
	runCount // entries of the log
	runHeader
)

// logRoom is how many entries a decision usually adds at most.
const logRoom = 4

// entries is what a run holds behind its header.
func entries(run []int64) []Entry {
	rest := run[runHeader:]
	return unsafe.Slice((*Entry)(unsafe.Pointer(&rest[0])), len(rest)/2) // an Entry is two int64
}

// newRun is one without entries.
func newRun(shard *table.Shard, must bool) (ref uint64, ok bool) {
	return shard.NewRun(runHeader+2*logRoom, must)
}

func unpackRun(run []int64) State {
	start, n := int(run[runStart]), int(run[runCount])
	log := entries(run)
	if start > 0 && len(log)-(start+n) < logRoom {
		// Make room behind the log, or Take would have to move it out of the run.
		copy(log, log[start:])
		start = 0
		run[runStart] = 0
	}
	return State{Last: run[runLast], Level: run[runLevel], Prev: run[runPrev], Log: log[start : start+n]}
}

// packRun writes s to the run behind ref, or to a larger one, and returns where it is. Where
// there is no memory for that, unless it must, the last events of a log become one: it counts
// the earlier ones longer, and admits no more.
func packRun(shard *table.Shard, ref uint64, s State, must bool) (_ uint64, merged int) {
	run := shard.Run(ref)
	if need := runHeader + 2*len(s.Log); need > len(run) {
		if larger, ok := shard.NewRun(need+need/4, must); ok {
			copy(entries(shard.Run(larger)), s.Log) // which may lie in the old run
			shard.Free(ref)
			ref, run = larger, shard.Run(larger)
			run[runStart] = 0
			s.Log = entries(run)[:len(s.Log)]
		}
	}
	log := entries(run)
	for ; len(s.Log) > len(log); merged++ {
		last := len(s.Log) - 1
		s.Log[last-1] = Entry{s.Log[last].At, s.Log[last-1].N + s.Log[last].N}
		s.Log = s.Log[:last]
	}
	if len(s.Log) > 0 {
		if at := len(log) - cap(s.Log); at >= 0 && &log[at] == &s.Log[0] {
			run[runStart] = int64(at) // it is where Take appended to it
		} else {
			copy(log, s.Log)
			run[runStart] = 0
		}
	}
	run[runLast], run[runLevel], run[runPrev] = s.Last, s.Level, s.Prev
	run[runCount] = int64(len(s.Log))
	return ref, merged
}
