package limiter

import (
	"unsafe"

	"github.com/weirgo/weir/limiter/internal/table"
)

// Memory holds a key in one of two forms:
//
//   - A word is the packed state (word.go). The cell's tag identifies the limit that wrote it. One
//     compare-and-swap changes it.
//   - A state is behind the shard's lock, for everything else: logs, buckets that settle, counts that
//     do not fit a word, calendars. The cell has heldTag, and the state's index as its word. Events in
//     flight are states without a cell. A key has such a state only while it has events in flight, so
//     these bound their number, and nothing evicts them.

const (
	heldTag table.Tag = 1 // higher tags are words

	// mostTags bounds the number of limits with words. Further limits are held as states.
	mostTags = 4096
)

// A binding says how a store holds a quota's states.
type binding struct {
	memory *Memory
	tag    table.Tag
	window int64 // the index of the window at the store's origin, for a window's word
}

// binding returns q's binding in m.
func (m *Memory) binding(q *Quota) *binding {
	if b := q.bound.Load(); b != nil && b.memory == m {
		return b
	}
	b := &binding{memory: m, tag: m.tagOf(q)}
	if q.window > 0 && q.calendar == nil {
		b.window = m.origin / q.window
	}
	q.bound.Store(b)
	return b
}

// tagOf returns the tag of q's limit, and registers the limit if it is new.
func (m *Memory) tagOf(q *Quota) table.Tag {
	if !q.fitsWord() {
		return heldTag
	}
	m.register.Lock()
	defer m.register.Unlock()
	if tag, ok := m.tags[q.limit]; ok {
		return tag
	}
	known := *m.limits.Load()
	if len(known) > mostTags {
		return heldTag
	}
	tag := table.Tag(len(known))
	grown := append(known, compiled(q.limit)) // readers of the shorter slice do not see it
	m.limits.Store(&grown)
	m.tags[q.limit] = tag
	return tag
}

// writtenUnder returns a quota with the limit under which words of a tag are written.
func (m *Memory) writtenUnder(tag table.Tag) *Quota { return (*m.limits.Load())[tag] }

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
	quota             *Quota // wrote it
	last, level, prev int64
	log               log

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

// state returns s as a State, whose log is s's array.
func (s *state) state() State {
	return State{Quota: s.quota, Last: s.last, Level: s.level, Prev: s.prev, Log: s.log.entries()}
}

// put writes s back from a State.
func (s *shard) put(known *state, of State) {
	known.last, known.level, known.prev = of.Last, of.Level, of.Prev
	l := &known.log
	switch room := int(l.room); {
	case l.lies(of.Log):
		l.over = uint16(room - cap(of.Log))
		l.end = l.over + uint16(len(of.Log))
	case len(of.Log) <= room:
		l.move(of.Log, unsafe.Slice(l.array, room))
	default:
		more := cap(of.Log) - room
		s.budget.Reserve(more*entryBytes, true)
		s.logs += more * entryBytes
		l.move(of.Log, of.Log[:cap(of.Log)])
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

// load reads a cell's state.
func (s *shard) load(tag table.Tag, word uint64) State {
	if tag == heldTag {
		return s.held[word].state()
	}
	q := s.memory.writtenUnder(tag)
	state := q.unpack(word, s.memory.origin, s.now)
	state.Quota = q
	return state
}

// save writes the state of, which quota q made with decision d, and returns the cell's new word. The cell
// had the tag before and that word.
func (s *shard) save(q *Quota, tag, before table.Tag, word uint64, of State, d *Decision) uint64 {
	if tag != heldTag {
		if before == heldTag {
			s.freeState(word)
		}
		return q.pack(of, s.memory.origin)
	}
	if before != heldTag {
		word, _ = s.newState(q, true) // must: a known key keeps its counter
	}
	s.hold(&s.held[word], q, of, d)
	return word
}

// hold writes the new state of a held key of q.
func (s *shard) hold(known *state, q *Quota, of State, d *Decision) {
	known.quota = q
	s.put(known, of)
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
	switch {
	case known.last <= s.now && q.algorithm == &slidingLog && known.prev == 0:
		s.takeLog(known, q, cost, d)
	case known.last <= s.now && q.isWide():
		if after := q.takeWide(s.now, State{Last: known.last, Level: known.level, Prev: known.prev}, cost, d); d.Allowed && cost > 0 {
			known.last, known.level, known.prev = after.Last, after.Level, after.Prev
			s.note(known, d)
		}
	default:
		after, allowed := q.takeNow(s.present(known, q, cost), cost)
		*d = q.describe(after, 0, cost, allowed)
		if allowed && cost > 0 {
			s.hold(known, q, after, d)
		}
	}
	cell.SetMarks(marksAfter(cell.Marks(), q, cost, d))
	return true
}

// takeLog decides about a log without debts. This is the usual case of small exact limits.
func (s *shard) takeLog(known *state, q *Quota, cost int64, d *Decision) {
	gone := s.now - q.window
	entries := known.log.entries()
	for len(entries) > 0 && entries[0].At <= gone {
		known.level -= entries[0].N
		known.log.over++
		entries = entries[1:]
	}
	known.last = s.now
	free := q.capacity - known.level
	*d = Decision{Allowed: cost <= free || cost == 0, Limit: q.capacity, Receipt: Receipt{s.now, ByStore}}
	if d.Allowed && cost > 0 {
		s.ready(known)
		entries = append(known.log.entries(), Entry{s.now, cost})
		known.log.end++
		known.level += cost
		free -= cost
	}
	d.Remaining = free
	if n := len(entries); n > 0 {
		d.NextAfter, d.ResetAfter = micros(entries[0].At-gone), micros(entries[n-1].At-gone)
	}
	s.note(known, d)
	switch {
	case d.Allowed:
	case cost > q.capacity:
		d.RetryAfter = Never
	case cost == free+1:
		d.RetryAfter = d.NextAfter
	default:
		d.RetryAfter = micros(q.roomFor(known.state(), cost-free))
	}
}

// present brings a state of q's limit to the present, and makes room for an entry if the charge
// may add one.
func (s *shard) present(known *state, q *Quota, cost int64) State {
	of := q.at(known.state(), s.now)
	if known.log.end > 0 { // Take may have changed it in place
		s.put(known, of)
	}
	if q.algorithm.mostEvents > 0 && cost > 0 && of.Level+cost <= q.capacity {
		s.ready(known)
	}
	of.Log = known.log.entries()
	return of
}

// allSteps is the resolution of used units in the worth. Of two keys that become idle at the same time, the
// key with more units used is worth more.
const allSteps = 1 << 10

func worth(used, reset int64, q *Quota) int64 {
	return reset*allSteps + min(used, q.capacity)*(allSteps-1)/q.capacity
}

// Judge implements [table.Owner].
func (s *shard) Judge(tag table.Tag, word uint64) (value int64, refusing bool) {
	if tag == heldTag {
		known := &s.held[word]
		if known.idle > s.now {
			value = worth(known.quota.used(known.state()), known.idle-s.now, known.quota)
		}
		return value, s.now < known.full
	}
	q := s.memory.writtenUnder(tag)
	var used, reset int64
	if q.bursts {
		level := q.levelOf(word, s.now-s.memory.origin)
		used, reset = q.byUnit.up(level), q.byRefill.up(level)
	} else {
		used, reset = q.algorithm.look(q, q.at(q.unpack(word, s.memory.origin, s.now), s.now))
	}
	if used > 0 {
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
