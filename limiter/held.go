package limiter

import (
	"time"
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
	held   []*[chunk]state
	free   uint64 // number of the first free state, or 0
	logs   int    // bytes of the logs of held
	budget *table.Budget

	// others has the further states of the keys that have several, by the number of the first.
	others map[uint64]*others

	// beside has the numbers of states without a cell, which nothing evicts: events in flight, and the
	// overflow counters, by the quota's salt.
	beside map[uint64]uint64
}

// chunk is how many states are allocated together, in 480 bytes, which is a size of Go's allocator. States
// never move.
const chunk = 10

// A state is one key's counters, behind the shard's lock.
type state struct {
	quota       *Quota // wrote it; nil: the state is free, and n is the number of the next free state
	at, n, prev int64  // as those of usage
	log         log
}

// others is the part of a [State] that few keys have.
type others struct {
	states []State
	cut    int64
	bytes  int
}

// state returns the state of a number, from 1.
func (s *shard) state(number uint64) *state { return &s.held[(number-1)/chunk][(number-1)%chunk] }

// A log holds a State's log in an array of its own, of at most some 12,500 entries. The first entries of
// the array have expired.
type log struct {
	array           *Entry
	room, end, over uint16
}

// entries returns the entries that have not expired. The slice's capacity is the free part of the array.
func (l *log) entries() []Entry { return unsafe.Slice(l.array, l.room)[l.over:l.end] }

// move copies the entries to the start of an array. The log then uses this array.
func (l *log) move(entries, array []Entry) {
	n := copy(array, entries)
	*l = log{unsafe.SliceData(array), uint16(len(array)), uint16(n), 0}
}

// lies reports whether entries is a part of the array.
func (l *log) lies(entries []Entry) bool {
	n, m := int(l.room), cap(entries)
	return 0 < m && m <= n && &unsafe.Slice(l.array, n)[n-1] == &entries[:m][m-1]
}

const (
	chunkBytes = int(unsafe.Sizeof([chunk]state{}) + 2*unsafe.Sizeof(uintptr(0))) // and up to two places in held
	entryBytes = int(unsafe.Sizeof(Entry{}))

	fewEntries = 2  // that a log grows by
	keptLog    = 16 // the longest array that a freed state keeps
)

// newState makes the state of a new key and returns its number. Without memory it returns 0, unless must is set.
func (s *shard) newState(q *Quota, must bool) (number uint64) {
	bytes, entries := chunkBytes, q.firstEntries()
	if s.free != 0 {
		bytes, entries = 0, max(0, entries-int(s.state(s.free).log.room))
	}
	if !s.budget.Reserve(bytes+entries*entryBytes, must) {
		return 0
	}
	if s.free == 0 {
		s.held = append(s.held, new([chunk]state))
		for last := uint64(len(s.held) * chunk); last > uint64(len(s.held)-1)*chunk; last-- {
			s.freeState(last)
		}
	}
	number = s.free
	known := s.state(number)
	s.free = uint64(known.n)
	of := known.log
	if of.end, of.over = 0, 0; entries > 0 {
		of.move(nil, make([]Entry, int(of.room)+entries))
		s.logs += entries * entryBytes
	}
	*known = state{quota: q, log: of}
	return number
}

// firstEntries returns how many entries a new log has room for.
func (q *Quota) firstEntries() int {
	switch {
	case q.hasLows():
		return mostLows + 1
	case q.logs:
		return 1
	}
	return 0
}

// freeState frees a state. A short log keeps its array.
func (s *shard) freeState(number uint64) {
	known := s.state(number)
	s.putOthers(number, nil, 0)
	if room := int(known.log.room); room > keptLog {
		s.budget.Release(room * entryBytes)
		s.logs -= room * entryBytes
		known.log = log{}
	}
	known.quota, known.n, s.free = nil, int64(s.free), number
}

// putOthers replaces the further states of a key.
func (s *shard) putOthers(number uint64, states []State, cut int64) {
	if known := s.others[number]; known != nil {
		s.budget.Release(known.bytes)
		s.logs -= known.bytes
		delete(s.others, number)
	}
	if len(states) == 0 {
		return
	}
	bytes := int(unsafe.Sizeof(others{})) + cap(states)*int(unsafe.Sizeof(State{}))
	for i := range states {
		bytes += cap(states[i].Log) * entryBytes
	}
	s.budget.Reserve(bytes, true) // must: a known key keeps its counters
	s.logs += bytes
	if s.others == nil {
		s.others = map[uint64]*others{}
	}
	s.others[number] = &others{states, cut, bytes}
}

// bytes returns the memory that the shard takes for states and logs.
func (s *shard) bytes() int { return len(s.held)*chunkBytes + s.logs }

// whole returns a cell's state as a State.
func (s *shard) whole(tag table.Tag, word uint64) State {
	q, u, log := s.load(tag, word)
	state := q.state(u, log)
	if tag == heldTag {
		if more := s.others[word]; more != nil {
			state.Others, state.Cut = more.states, more.cut
		}
	}
	return state
}

// usage returns the usage and the log, which is s's array.
func (s *state) usage() (usage, []Entry) {
	return s.quota.usage(s.at, s.n, s.prev), s.log.entries()
}

// put writes a usage of q. If there is no memory for another entry, put gives the last two entries the time of the
// later one. The earlier event then counts for longer, so no more is admitted.
func (s *shard) put(known *state, q *Quota, u usage, log []Entry) {
	known.quota, known.at, known.n, known.prev = q, u.at, u.n, u.prev
	l := &known.log
	switch room := int(l.room); {
	case l.lies(log):
		l.over = uint16(room - cap(log))
		l.end = l.over + uint16(len(log))
	case len(log) <= room:
		l.move(log, unsafe.Slice(l.array, room))
	case s.reserve(cap(log)-room, room == 0):
		l.move(log, log[:cap(log)])
	default:
		n := len(log) - 1
		log[n-1] = Entry{log[n].At, log[n-1].N + log[n].N}
		s.memory.merged.Add(1)
		s.put(known, q, u, log[:n])
	}
}

// reserve takes memory for entries of logs, if there is any or must is set.
func (s *shard) reserve(entries int, must bool) bool {
	ok := s.budget.Reserve(entries*entryBytes, must)
	if ok {
		s.logs += entries * entryBytes
	}
	return ok
}

// ready makes room for an entry, if there is memory for it.
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
		if s.reserve(larger-room, false) {
			l.move(entries, make([]Entry, larger))
		}
	}
}

// load reads a cell's usage, which may be of an earlier time, and returns the quota that wrote it.
func (s *shard) load(tag table.Tag, word uint64) (*Quota, usage, []Entry) {
	if tag == heldTag {
		known := s.state(word)
		u, log := known.usage()
		return known.quota, u, log
	}
	q := s.memory.writtenUnder(tag)
	u, _, _ := q.unpack(word, q.base(s.memory.origin), s.now)
	return q, u, nil
}

// decideHeld decides about one charge of a key with a state of q's limit.
func (s *shard) decideHeld(q *Quota, hash uint64, cost int64, within time.Duration, d *Decision) bool {
	s.Lock()
	defer s.Unlock()
	cell, ok := s.Find(hash)
	if !ok || cell.Tag() != heldTag {
		return false
	}
	known := s.state(cell.Look())
	if known.quota != q && known.quota.limit != q.limit || s.others[cell.Look()] != nil {
		return false
	}
	s.now = s.memory.now()
	u, log, used := s.present(known, q, cost)
	_, u, log = q.decide(q, u, log, used, cost, within, d)
	if d.Allowed && cost > 0 {
		s.put(known, q, u, log)
	}
	cell.SetMarks(marksAfter(cell.Marks(), q, cost, d))
	return true
}

// present advances a state of q's limit to now, and makes room for an entry if the charge may add one.
func (s *shard) present(known *state, q *Quota, cost int64) (_ usage, _ []Entry, used int64) {
	u, log := known.usage()
	u, log, used = q.algorithm.advance(q, u, log, s.now)
	if known.log.end > 0 && u.n != known.n { // the log may have changed in place
		s.put(known, q, u, log)
		log = known.log.entries()
	}
	if q.logs && cost > 0 && cost <= q.capacity-used {
		s.ready(known)
		log = known.log.entries()
	}
	return u, log, used
}

// allSteps is the resolution of used units in a state's worth. If two keys become idle at the same time, the key with
// more used units is worth more.
const allSteps = 1 << 10

// Judge implements [table.Owner].
func (s *shard) Judge(tag table.Tag, word uint64) (worth int64, refusing bool) {
	q, u, log := s.load(tag, word)
	worth, refusing = judge(q, u, log, s.now)
	if tag == heldTag && s.others[word] != nil {
		for _, o := range s.others[word].states {
			w, r := judge(o.Quota, o.Quota.usage(o.Last, o.Level, o.Prev), o.Quota.own(o.Log), max(s.now, o.Last))
			worth, refusing = max(worth, w), refusing || r
		}
	}
	return worth, refusing
}

func judge(q *Quota, u usage, log []Entry, now int64) (worth int64, refusing bool) {
	u, log, used := q.algorithm.advance(q, u, log, now)
	if used > 0 {
		_, reset := q.algorithm.wait(q, u, log, 1)
		worth = reset*allSteps + min(used, q.capacity)*(allSteps-1)/q.capacity
	}
	return worth, used >= q.capacity
}

// isIdle reports whether a held state is initial again.
func (s *shard) isIdle(number uint64) bool {
	s.now = s.memory.now()
	worth, _ := s.Judge(heldTag, number)
	return worth == 0
}

// Drop implements [table.Owner].
func (s *shard) Drop(tag table.Tag, word uint64) {
	if tag == heldTag {
		s.freeState(word)
	}
}
