package limiter

import (
	"slices"

	"github.com/weirgo/weir/limiter/internal/table"
)

// Memory takes the shards' locks for batches, states, new keys, keys that another limit wrote, and words
// that other goroutines keep changing.

// fewCharges is the size of a usual batch. Larger batches allocate.
const fewCharges = 4

// A lockedKey has the state of one charge's key while its shard is locked.
type lockedKey struct {
	shard   *shard
	hash    uint64
	binding *binding

	// Where the state is: in a table cell that this goroutine owns, or (slots, overflow counters) outside the table.
	hasCell  bool
	cell     table.Cell
	overflow bool      // hash is that of the rule's overflow counter
	tag      table.Tag // 0: no state yet
	word     uint64

	// The usage after the charge, and the quota that wrote it.
	from  *Quota
	after usage
	log   []Entry
}

// locate sets the hash and the shard of each key.
func (m *Memory) locate(charges []Charge, keys []lockedKey) {
	var hash uint64
	for i := range charges {
		c := &charges[i]
		if i == 0 || c.Key != charges[i-1].Key {
			hash = hashOf(c.Key)
		}
		k := &keys[i]
		k.shard, k.hash, k.binding = m.shardOf(hash), hash^c.Quota.salt, m.binding(c.Quota)
	}
}

// lock locates the keys and locks their shards, always in the same order. It appends the shards to space.
func (m *Memory) lock(charges []Charge, keys []lockedKey, space []int) (shards []int) {
	for {
		m.locate(charges, keys)
		shards = space
		for i := range keys {
			if at := m.shardIndex(keys[i].hash); i == 0 || at != shards[len(shards)-1] {
				shards = append(shards, at)
			}
		}
		if len(shards) > 1 { // several keys
			slices.Sort(shards)
			shards = slices.Compact(shards)
		}
		for _, i := range shards {
			m.shards[i].Lock()
		}
		given, isOutdated := m.tags.Load(), false
		for i := range keys {
			isOutdated = isOutdated || keys[i].binding.tags != given
		}
		if !isOutdated {
			return shards
		}
		m.unlock(shards)
	}
}

func (m *Memory) unlock(shards []int) {
	for _, i := range shards {
		m.shards[i].Unlock()
	}
}

// decideLocked locks the shards of the charges, takes all cells, and counts only if all charges are allowed.
// If a new key gets a cell and is not charged, the cell is idle.
func (m *Memory) decideLocked(charges []Charge, keys []lockedKey) {
	var space [fewCharges]int
	shards := m.lock(charges, keys, space[:0])
	all, lacking := decideAll(charges, keys)
	for all && lacking {
		for i := range keys {
			keys[i].putBack() // Room may move cells
		}
		makeRoom(charges, keys)
		if len(keys) == 1 && !keys[0].overflow {
			break // we hold the lock since the state was made: deciding again would give the same result
		}
		all, lacking = decideAll(charges, keys)
	}
	overflowed := false
	for i := range keys {
		k, q, cost, d := &keys[i], charges[i].Quota, charges[i].Cost, &charges[i].Decision
		overflowed = overflowed || k.overflow && cost > 0
		switch {
		case all && d.Allowed && cost > 0:
			k.write(q, cost)
		case d.Allowed && cost > 0:
			cost = 0 // only look
			if k.tag == 0 {
				k.find(q, cost)
			}
			k.decide(charges, keys, i, cost)
		}
		if k.hasCell {
			k.cell.SetMarks(marksAfter(k.cell.Marks(), q, cost, d) &^ table.Pinned)
		}
		k.putBack()
		k.drop(q)
	}
	if overflowed {
		m.overflowed.Add(1)
	}
	m.unlock(shards)
}

// decideAll takes all cells, reads the clock and decides. It reports whether all charges are
// allowed, and whether a charge with a cost lacks a state.
func decideAll(charges []Charge, keys []lockedKey) (all, lacking bool) {
	for i := range keys {
		keys[i].find(charges[i].Quota, charges[i].Cost)
	}
	now := keys[0].shard.memory.now()
	all = true
	for i := range keys {
		k, cost := &keys[i], charges[i].Cost
		k.shard.now = now
		k.decide(charges, keys, i, cost)
		all = all && (charges[i].Decision.Allowed || charges[i].Optional)
		lacking = lacking || k.tag == 0 && cost > 0
	}
	return all, lacking
}

// find finds a charge's state, and takes its cell. A look at a key without a state uses the rule's
// overflow counter, if that counts events.
func (k *lockedKey) find(q *Quota, cost int64) {
	s := k.shard
	k.tag, k.word = 0, 0
	if !q.InFlight() && !k.overflow {
		if k.cell, k.hasCell = s.Find(k.hash); k.hasCell {
			k.tag, k.word = k.cell.Tag(), k.cell.Take()
			return
		}
		if number, ok := s.beside[q.salt]; !ok || cost > 0 || s.isIdle(number) {
			return
		}
		k.overflow, k.hash = true, q.salt
	}
	if at, ok := s.beside[k.hash]; ok {
		k.tag, k.word = heldTag, at
	}
}

// decide decides on charge i, after the charges before it, and writes nothing yet.
func (k *lockedKey) decide(charges []Charge, keys []lockedKey, i int, cost int64) {
	c := &charges[i]
	from, u, log, used := k.before(c.Quota, cost)
	if k.overflow { // earlier charges may count on the same counter
		for j := range keys[:i] {
			if o := &keys[j]; o.overflow && o.shard == k.shard && o.hash == k.hash {
				state := o.state(charges[j].Quota, charges[j].Cost)
				from, u, log, used = c.Quota.view(&state, k.shard.now)
			}
		}
	}
	k.from, k.after, k.log = c.Quota.decide(from, u, log, used, cost, c.Within, &c.Decision)
	c.Decision.Overflow = k.overflow
}

// before returns the state of the key as q sees it now, and the quota that wrote it. The charge may change the log.
func (k *lockedKey) before(q *Quota, cost int64) (from *Quota, u usage, log []Entry, used int64) {
	s := k.shard
	switch b := k.binding; {
	case k.tag == 0:
		u, log, used = q.at(usage{}, nil, s.now)
	case k.tag == b.tag && b.tag != heldTag:
		u, log, used = q.unpack(k.word, b.base, s.now)
	case k.tag == heldTag && s.others[k.word] == nil && s.state(k.word).quota.limit == q.limit:
		u, log, used = s.present(s.state(k.word), q, cost)
		log = q.own(log)
	default:
		state := s.whole(k.tag, k.word).current(s.now)
		return q.view(&state, s.now)
	}
	return q, u, log, used
}

// state returns the State after a charge of q that was taken.
func (k *lockedKey) state(q *Quota, cost int64) State {
	var s State
	if k.tag != 0 {
		s = k.shard.whole(k.tag, k.word).current(k.shard.now)
	}
	return q.taken(&s, k.from, k.after, k.log, k.shard.now, cost)
}

// write writes the state after a charge of q that was taken.
func (k *lockedKey) write(q *Quota, cost int64) {
	if s := k.shard; k.from == q && k.tag == k.binding.tag {
		if k.tag != heldTag {
			k.word = q.pack(k.after, k.binding.base)
			return
		}
		if known := s.state(k.word); known.quota == q && s.others[k.word] == nil {
			s.put(known, q, k.after, k.log)
			return
		}
	}
	k.writeState(q, k.state(q, cost))
}

// writeState writes the states after a change under q.
func (k *lockedKey) writeState(q *Quota, state State) {
	s, tag, base := k.shard, k.binding.tag, k.binding.base
	from := state.Quota
	if from.limit != q.limit { // it stays a state of another limit
		if tag = heldTag; k.tag != 0 {
			tag, base = k.tag, from.base(s.memory.origin)
		}
	}
	u := from.usage(state.Last, state.Level, state.Prev)
	if k.hasCell && tag != heldTag && len(state.Others) == 0 {
		if k.tag == heldTag {
			s.freeState(k.word)
		}
		k.tag, k.word = tag, from.pack(u, base)
		return
	}
	if k.tag != heldTag {
		k.tag, k.word = heldTag, s.newState(from, true) // must: a known key keeps its counter
	}
	s.put(s.state(k.word), from, u, state.Log)
	if len(state.Others) > 0 || s.others[k.word] != nil {
		s.putOthers(k.word, state.Others, state.Cut)
	}
}

// putBack ends find: the cell is no longer taken.
func (k *lockedKey) putBack() {
	if k.hasCell {
		k.cell.Put(k.tag, k.word)
	}
}

// drop removes the state of a key of slots when no event is in flight.
func (k *lockedKey) drop(q *Quota) {
	if q.InFlight() && k.tag != 0 && k.shard.state(k.word).n == 0 {
		k.shard.freeState(k.word)
		delete(k.shard.beside, k.hash)
	}
}

// makeRoom makes a state in a cell for each charge that has a cost and no state. If there is no room for the cell, the
// charge uses its rule's overflow counter.
func makeRoom(charges []Charge, keys []lockedKey) {
	for i := range keys {
		if k := &keys[i]; k.hasCell {
			k.cell.SetMarks(k.cell.Marks() | table.Pinned)
		}
	}
	for i := range keys {
		k, c := &keys[i], &charges[i]
		if k.tag != 0 || c.Cost == 0 {
			continue
		}
		s := k.shard
		if !c.Quota.InFlight() {
			if k.makeCell(c) {
				if len(keys) > 1 {
					k.putBack() // Room may move cells
				}
				continue
			}
			k.overflow, k.hash = true, c.Quota.salt
		}
		number, ok := s.beside[k.hash]
		if !ok {
			if s.beside == nil {
				s.beside = map[uint64]uint64{}
			}
			number = s.newState(c.Quota, true)
			s.beside[k.hash] = number
		}
		k.tag, k.word = heldTag, number
	}
}

// makeCell makes a cell with a first state for a key, if there is room for both, and takes it. The empty key,
// under which a rule for all clients counts, is kept for good: there is one for each rule, and it must survive
// any flood of other keys.
func (k *lockedKey) makeCell(c *Charge) bool {
	s, tag, number := k.shard, k.binding.tag, uint64(0)
	if tag == heldTag {
		if number = s.newState(c.Quota, false); number == 0 && s.Sweep() {
			number = s.newState(c.Quota, false)
		}
		if number == 0 {
			return false
		}
	}
	if k.cell, k.hasCell = s.Room(k.hash, tag); !k.hasCell {
		s.Drop(tag, number)
		return false
	}
	k.tag, k.word = tag, number
	marks := table.Pinned
	if c.Key == "" {
		marks |= table.Kept
	}
	k.cell.SetMarks(marks)
	return true
}

// reset resets one key.
func (m *Memory) reset(charges []Charge) {
	var keys [1]lockedKey
	var space [1]int
	defer m.unlock(m.lock(charges, keys[:], space[:0]))
	k, s := &keys[0], keys[0].shard
	k.find(charges[0].Quota, 1)
	switch {
	case k.hasCell:
		k.putBack()
		s.Clear(k.cell)
	case k.tag != 0: // events in flight keep their slots
		s.state(k.word).prev = 0
	}
}

// settle settles one charge.
func (m *Memory) settle(c *Settlement) {
	var keys [1]lockedKey
	var space [1]int
	charges := [1]Charge{c.Charge}
	defer m.unlock(m.lock(charges[:], keys[:], space[:0]))
	k, s := &keys[0], keys[0].shard
	s.now = m.now()
	k.find(c.Quota, 1)
	owed := c.Actual - c.Cost
	if k.tag == 0 && owed > 0 {
		charges[0].Cost = owed
		if makeRoom(charges[:], keys[:]); k.overflow {
			m.overflowed.Add(1)
		}
	}
	if k.tag == 0 {
		return
	}
	s.now = m.now() // read after the word
	if k.tag == heldTag {
		if known := s.state(k.word); known.quota.logs && (owed > 0 || known.prev > 0) {
			s.ready(known) // a debt adds an entry, and so does a refund that pays back a debt
		}
	}
	state := c.Quota.Settle(s.whole(k.tag, k.word), s.now, *c)
	if state.Quota == nil {
		state.Quota = c.Quota
	}
	k.writeState(c.Quota, state)
	if k.hasCell {
		marks := k.cell.Marks() &^ table.Pinned // makeRoom pins it
		if owed < 0 {
			var d Decision
			q, u, log := s.load(k.tag, k.word)
			u, log, used := q.at(u, log, s.now)
			q.decide(q, u, log, used, 0, 0, &d)
			marks = marksAfter(marks, q, -owed, &d)
		}
		k.cell.SetMarks(marks)
	}
	k.putBack()
	k.drop(c.Quota)
}
