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

	// The state is in a cell, which is taken, or has no cell.
	hasCell  bool
	cell     table.Cell
	overflow bool      // hash is that of the rule's overflow counter
	tag      table.Tag // 0: no state yet
	word     uint64

	after State  // or
	taken uint64 // the word after the charge, if the limit that wrote the word is the charge's
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

// decideLocked locks the shards of the charges, always in the same order, takes all cells, and counts only
// if all charges are allowed. If a new key gets a cell and is not charged, the cell is idle.
func (m *Memory) decideLocked(charges []Charge, keys []lockedKey) {
	m.locate(charges, keys)
	var space [fewCharges]int
	shards := space[:0]
	for i := range keys {
		if at := m.shardIndex(keys[i].hash); i == 0 || at != shards[len(shards)-1] {
			shards = append(shards, at)
		}
	}
	slices.Sort(shards)
	shards = slices.Compact(shards)
	for _, i := range shards {
		m.shards[i].Lock()
	}
	all, lacking := decideAll(charges, keys)
	for all && lacking {
		for i := range keys {
			keys[i].putBack() // Room may move cells
		}
		makeRoom(charges, keys)
		all, lacking = decideAll(charges, keys)
	}
	overflowed := false
	for i := range keys {
		k, q, cost, d := &keys[i], charges[i].Quota, charges[i].Cost, &charges[i].Decision
		overflowed = overflowed || k.overflow && cost > 0
		switch {
		case all && cost > 0:
			k.write(q, d)
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
	for _, i := range shards {
		m.shards[i].Unlock()
	}
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
		all = all && charges[i].Decision.Allowed
		lacking = lacking || k.tag == 0 && cost > 0
	}
	return all, lacking
}

// find finds a charge's state, and takes its cell. A look at a key without a state finds the
// overflow counter of its rule, if that is in use.
func (k *lockedKey) find(q *Quota, cost int64) {
	s := k.shard
	k.tag, k.word = 0, 0
	if !q.InFlight() && !k.overflow {
		if k.cell, k.hasCell = s.Find(k.hash); k.hasCell {
			k.tag, k.word = k.cell.Tag(), k.cell.Take()
			return
		}
		if at, ok := s.beside[q.salt]; !ok || cost > 0 || s.held[at].idle <= s.memory.now() {
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
	q, d := charges[i].Quota, &charges[i].Decision
	if b := k.binding; b.tag != heldTag && (k.tag == 0 || k.tag == b.tag) {
		k.taken = q.takeWord(k.shard.now-b.memory.origin, b, k.word, cost, d)
		return
	}
	before := k.before(q, cost)
	for j := range keys[:i] { // earlier charges may count on the same counter
		if o := &keys[j]; k.overflow && o.overflow && o.shard == k.shard && o.hash == k.hash {
			o.after.Quota = charges[j].Quota
			before = q.at(q.convert(o.after, k.shard.now), k.shard.now)
		}
	}
	if q.isWide() {
		k.after = q.takeWide(k.shard.now, before, cost, d)
	} else {
		var allowed bool
		k.after, allowed = q.takeNow(before, cost)
		*d = q.describe(k.after, 0, cost, allowed)
	}
	d.Overflow = k.overflow
}

// before returns the state that a charge finds. The charge may change it.
func (k *lockedKey) before(q *Quota, cost int64) State {
	s := k.shard
	if k.tag == 0 {
		return q.at(State{}, s.now)
	}
	of := s.load(k.tag, k.word)
	switch isSame := of.Quota == q || of.Quota.limit == q.limit; {
	case isSame && q.isWide():
		return of
	case isSame && k.tag == heldTag:
		return q.own(s.present(&s.held[k.word], q, cost))
	}
	return q.at(q.convert(of, s.now), s.now)
}

// write writes the state after a charge with decision d.
func (k *lockedKey) write(q *Quota, d *Decision) {
	switch b := k.binding; {
	case !k.hasCell:
		k.shard.hold(&k.shard.held[k.word], q, k.after, d)
	case b.tag != heldTag && k.tag == b.tag:
		k.word = k.taken
	default:
		k.word = k.shard.save(q, b.tag, k.tag, k.word, k.after, d)
		k.tag = b.tag
	}
}

// putBack ends find: the cell is no longer taken.
func (k *lockedKey) putBack() {
	if k.hasCell {
		k.cell.Put(k.tag, k.word)
	}
}

// drop removes the state of events in flight, if there are none.
func (k *lockedKey) drop(q *Quota) {
	if q.InFlight() && k.tag != 0 && k.shard.held[k.word].level == 0 {
		k.shard.freeState(k.word)
		delete(k.shard.beside, k.hash)
	}
}

// makeRoom gives a state to each charge that has a cost and no state: in a cell, or else the
// state of its rule's overflow counter.
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
			if cell, ok := s.room(k.hash, k.binding, c); ok {
				cell.SetMarks(cell.Marks() | table.Pinned)
				continue
			}
			k.overflow, k.hash = true, c.Quota.salt
			if _, ok := s.beside[k.hash]; ok {
				continue
			}
		}
		if s.beside == nil {
			s.beside = map[uint64]uint64{}
		}
		s.beside[k.hash], _ = s.newState(c.Quota, true)
	}
}

// room makes a cell with a first state for a key, if there is room for both. The empty key, under which a
// rule without Key counts, is kept for good: there is one for each rule, and it must survive any flood of
// other keys.
func (s *shard) room(hash uint64, b *binding, c *Charge) (cell table.Cell, ok bool) {
	word := uint64(0)
	if b.tag == heldTag {
		if word, ok = s.newState(c.Quota, false); !ok && s.Sweep() {
			word, ok = s.newState(c.Quota, false)
		}
		if !ok {
			return cell, false
		}
	}
	if cell, ok = s.Room(hash, b.tag); !ok {
		s.Drop(b.tag, word)
		return cell, false
	}
	if c.Key == "" {
		cell.SetMarks(table.Kept)
	}
	cell.Put(b.tag, word)
	return cell, true
}

// reset resets one key.
func (m *Memory) reset(charges []Charge) {
	var keys [1]lockedKey
	m.locate(charges, keys[:])
	k, s := &keys[0], keys[0].shard
	s.Lock()
	defer s.Unlock()
	k.find(charges[0].Quota, 1)
	switch {
	case k.hasCell:
		k.putBack()
		s.Clear(k.cell)
	case k.tag != 0: // what is in flight is so all the same
		s.held[k.word].prev = 0
	}
}

// settle settles one charge.
func (m *Memory) settle(c *Settlement) {
	var keys [1]lockedKey
	charges := [1]Charge{c.Charge}
	m.locate(charges[:], keys[:])
	k, s := &keys[0], keys[0].shard
	s.Lock()
	defer s.Unlock()
	s.now = m.now()
	k.find(c.Quota, 1)
	owed := c.Actual - c.Cost
	if k.tag == 0 && owed > 0 {
		charges[0].Cost = owed
		if makeRoom(charges[:], keys[:]); k.overflow {
			m.overflowed.Add(1)
		}
		k.find(c.Quota, 1)
	}
	if k.tag == 0 {
		return
	}
	s.now = m.now() // read after the word
	if k.tag == heldTag {
		if known := &s.held[k.word]; known.quota.algorithm.mostEvents > 0 && (owed > 0 || known.prev > 0) {
			s.ready(known) // a debt adds an entry, and so does a refund that pays back a debt
		}
	}
	state := s.load(k.tag, k.word)
	from, tag := state.Quota, k.tag
	state = c.Quota.Settle(state, s.now, *c)
	q := state.Quota
	if k.hasCell && q != from {
		tag = m.binding(q).tag
	}
	d := q.describe(q.at(state, s.now), 0, 0, true)
	if !k.hasCell {
		s.hold(&s.held[k.word], q, state, &d)
		k.drop(q)
		return
	}
	k.word, k.tag = s.save(q, tag, k.tag, k.word, state, &d), tag
	marks := k.cell.Marks() &^ table.Pinned // makeRoom pins it again
	if owed < 0 {
		marks = marksAfter(marks, q, -owed, &d)
	}
	k.cell.SetMarks(marks)
	k.putBack()
}
