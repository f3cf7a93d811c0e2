package limiter

import (
	"unsafe"

	"github.com/weirgo/weir/limiter/internal/table"
)

// Memory holds a key in one of two forms:
//
//   - A word is the packed state (word.go). The cell's tag identifies the limit that wrote it (tags.go).
//     One compare-and-swap changes it.
//   - A state is behind the shard's lock, for everything else: logs, buckets that settle, counts that
//     do not fit a word, calendars. The cell has heldTag, and the state's index as its word. Events in
//     flight are states without a cell. A key has such a state only while it has events in flight, so
//     these bound their number, and nothing evicts them.

// A shard is a part of a Memory. Its fields need the lock of the table's shard.
type shard struct {
	table.Shard
	memory *Memory
	now    int64 // Judge's time
	held   []state
	free   []uint64 // indexes in held
	logs   int      // bytes of the logs of held
	budget *table.Budget

	// beside has the indexes in held of states without a cell, which nothing evicts: events in
	// flight, and the overflow counters, by the quota's salt.
	beside map[uint64]uint64
}

// A state is the state of a key in a shard, and fills a cache line.
type state struct {
	quota       *Quota // wrote it
	at, n, prev int64  // as those of usage
	log         log

	// For Judge, since the last change.
	idle int64 // when the state is initial again
	full int64 // when the state has a free unit again
}

// A log holds a State's log in an array of its own, of at most some 12,500 entries. The first entries of
// the array have expired.
type log struct {
	array           *Entry
	room, end, over uint16
}

// entries returns the entries that have not expired. The slice's capacity is the free part of the array.
func (l *log) entries() []Entry { return unsafe.Slice(l.array, l.room)[l.over:l.end] }

// move copies the entries to the start of an array.
func (l *log) move(entries, array []Entry) {
	n := copy(array, entries)
	*l = log{unsafe.SliceData(array), uint16(len(array)), uint16(n), 0}
}

// lies reports whether entries are in the array.
func (l *log) lies(entries []Entry) bool {
	n, m := int(l.room), cap(entries)
	return 0 < m && m <= n && &unsafe.Slice(l.array, n)[n-1] == &entries[:m][m-1]
}

const (
	stateBytes = int(unsafe.Sizeof(state{}))
	entryBytes = int(unsafe.Sizeof(Entry{}))

	fewEntries = 2  // that a log begins with
	keptLog    = 16 // the longest array that a freed state keeps
)

// newState makes the state of a new key, if there is memory for it or must is set.
func (s *shard) newState(q *Quota, must bool) (at uint64, ok bool) {
	states, entries := 0, q.firstEntries()
	if n := len(s.free); n > 0 {
		entries = max(0, entries-int(s.held[s.free[n-1]].log.room))
	} else if n := len(s.held); n == cap(s.held) {
		states = max(4, n/8)
	}
	if !s.budget.Reserve(states*stateBytes+entries*entryBytes, must) {
		return 0, false
	}
	if states > 0 {
		s.held = append(make([]state, 0, cap(s.held)+states), s.held...)
	}
	if last := len(s.free) - 1; last >= 0 {
		at, s.free = s.free[last], s.free[:last]
	} else {
		at, s.held = uint64(len(s.held)), append(s.held, state{})
	}
	of := s.held[at].log
	if of.end, of.over = 0, 0; entries > 0 {
		of.move(nil, make([]Entry, int(of.room)+entries))
		s.logs += entries * entryBytes
	}
	s.held[at] = state{quota: q, log: of}
	return at, true
}

// firstEntries returns how many entries a new log has room for.
func (q *Quota) firstEntries() int {
	switch {
	case q.hasLows():
		return MostLows + 1
	case q.algorithm.mostEvents > 0:
		return int(min(q.capacity, fewEntries))
	}
	return 0
}

// freeState frees a state. A short log keeps its array.
func (s *shard) freeState(at uint64) {
	known := &s.held[at]
	if room := int(known.log.room); room > keptLog {
		s.budget.Release(room * entryBytes)
		s.logs -= room * entryBytes
		known.log = log{}
	}
	known.quota = nil
	s.free = append(s.free, at)
}

// bytes returns the memory that the shard takes for states and logs.
func (s *shard) bytes() int { return cap(s.held)*stateBytes + s.logs }

// usage returns the usage and the log, which is s's array.
func (s *state) usage() (usage, []Entry) {
	return s.quota.usage(s.at, s.n, s.prev), s.log.entries()
}

// put writes them back.
func (s *shard) put(known *state, u usage, log []Entry) {
	known.at, known.n, known.prev = u.at, u.n, u.prev
	l := &known.log
	switch room := int(l.room); {
	case l.lies(log):
		l.over = uint16(room - cap(log))
		l.end = l.over + uint16(len(log))
	case len(log) <= room:
		l.move(log, unsafe.Slice(l.array, room))
	default:
		more := cap(log) - room
		s.budget.Reserve(more*entryBytes, true)
		s.logs += more * entryBytes
		l.move(log, log[:cap(log)])
	}
}

// ready makes room for an entry. If there is no memory, it merges the last two events. The earlier event
// then counts for longer, so no more is admitted.
func (s *shard) ready(known *state) {
	l := &known.log
	entries := l.entries()
	switch n, room := len(entries), int(l.room); {
	case l.end < l.room:
	case l.over > 0 && (int(l.over) >= n/4 || n <= keptLog):
		l.move(entries, unsafe.Slice(l.array, room))
	default:
		larger := n + max(fewEntries, n/4)
		if most := int(known.quota.capacity); most <= keptLog {
			larger = min(larger, most)
		}
		if more := larger - room; s.budget.Reserve(more*entryBytes, n < 2) {
			s.logs += more * entryBytes
			l.move(entries, make([]Entry, larger))
			break
		}
		entries[n-2] = Entry{entries[n-1].At, entries[n-2].N + entries[n-1].N}
		l.end--
		s.memory.merged.Add(1)
	}
}

// load reads a cell's usage, which may be of an earlier time, and returns the quota that wrote it.
func (s *shard) load(tag table.Tag, word uint64) (*Quota, usage, []Entry) {
	if tag == heldTag {
		known := &s.held[word]
		u, log := known.usage()
		return known.quota, u, log
	}
	q := s.memory.writtenUnder(tag)
	u, _, _ := q.unpack(word, q.base(s.memory.origin), s.now)
	return q, u, nil
}

// save writes a usage, which quota q made with decision d, and returns the cell's new word. The cell had the
// tag before and that word.
func (s *shard) save(q *Quota, b *binding, before table.Tag, word uint64, u usage, log []Entry, d *Decision) uint64 {
	if b.tag != heldTag {
		if before == heldTag {
			s.freeState(word)
		}
		return q.pack(u, b.base)
	}
	if before != heldTag {
		word, _ = s.newState(q, true) // must: a known key keeps its counter
	}
	s.hold(&s.held[word], q, u, log, d)
	return word
}

// hold writes the new state of a held key of q.
func (s *shard) hold(known *state, q *Quota, u usage, log []Entry, d *Decision) {
	known.quota = q
	s.put(known, u, log)
	s.note(known, d)
}

// note sets idle and full after decision d.
func (s *shard) note(known *state, d *Decision) {
	known.idle, known.full = s.now+d.ResetAfter.Microseconds(), 0
	if d.Remaining == 0 {
		known.full = s.now + d.NextAfter.Microseconds()
	}
}

// decideHeld decides about one charge of a key with a state of q's limit.
func (s *shard) decideHeld(q *Quota, hash uint64, cost int64, d *Decision) bool {
	s.Lock()
	defer s.Unlock()
	cell, ok := s.Find(hash)
	if !ok || cell.Tag() != heldTag {
		return false
	}
	known := &s.held[cell.Look()]
	if known.quota != q && known.quota.limit != q.limit {
		return false
	}
	s.now = s.memory.now()
	u, log, used := s.present(known, q, cost)
	u, log = q.decide(u, log, used, cost, d)
	if d.Allowed && cost > 0 {
		s.hold(known, q, u, log, d)
	}
	cell.SetMarks(marksAfter(cell.Marks(), q, cost, d))
	return true
}

// present brings a state of q's limit to the present, and makes room for an entry if the charge
// may add one.
func (s *shard) present(known *state, q *Quota, cost int64) (_ usage, _ []Entry, used int64) {
	u, log := known.usage()
	u, log, used = q.at(u, log, s.now)
	if known.log.end > 0 && u.n != known.n { // at may have changed the log in place
		s.put(known, u, log)
	}
	if q.algorithm.mostEvents > 0 && cost > 0 && cost <= q.capacity-used {
		s.ready(known)
	}
	return u, known.log.entries(), used
}

// allSteps is the resolution of used units in the worth. Of two keys that become idle at the same time, the
// key with more units used is worth more.
const allSteps = 1 << 10

func worth(used, reset int64, q *Quota) int64 {
	return reset*allSteps + min(used, q.capacity)*(allSteps-1)/q.capacity
}

// Judge implements [table.Owner].
func (s *shard) Judge(tag table.Tag, word uint64) (value int64, refusing bool) {
	q, u, log := s.load(tag, word)
	_, log, used := q.algorithm.advance(q, u, log, u.at)
	if tag == heldTag {
		known := &s.held[word]
		if known.idle > s.now {
			value = worth(used, known.idle-s.now, q)
		}
		return value, s.now < known.full
	}
	if used > 0 {
		_, reset := q.algorithm.wait(q, u, log, 1)
		value = worth(used, reset, q)
	}
	return value, used >= q.capacity
}

// Drop implements [table.Owner].
func (s *shard) Drop(tag table.Tag, word uint64) {
	if tag == heldTag {
		s.freeState(word)
	}
}
