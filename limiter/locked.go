package limiter

import (
	"slices"

	"github.com/weirgo/weir/limiter/internal/table"
)

// How Memory decides with the shards' locks: on states, on new keys and on those that were written
// under another limit, and where others were faster too often.

// A lockedKey is what decideLocked knows of one charge.
type lockedKey struct {
	shard   *shard // the key's, or the overflow counters
	hash    uint64
	binding *binding

	cell  table.Cell
	found bool
	first int       // the first charge on that cell: some share one, if it is an overflow counter
	tag   table.Tag // what the first charge has taken from the cell, and will put there
	word  uint64
	marks table.Mark // that any charge gives the first one's cell

	before, after State
	allowed       bool
}

// decideLocked locks every shard that charges touch, always in the same order, takes all
// cells, and counts only when all charges are allowed. A key that was given a cell, and is
// then not charged, has an idle one.
func (m *Memory) decideLocked(charges []Charge, decisions []Decision, keys []lockedKey) {
	for i := range charges {
		k, q := &keys[i], charges[i].Quota
		k.binding, k.hash = m.binding(q), q.digest(charges[i].Key)
		k.shard = m.shardOf(k.hash)
	}
	var space [fewCharges]*shard
	homes := space[:0]
	for i := range keys {
		homes = append(homes, keys[i].shard)
	}
	slices.SortFunc(homes, func(a, b *shard) int { return a.index - b.index })
	homes = slices.Compact(homes)
	for _, s := range homes {
		s.Lock()
	}
	overflow := false
	var all bool
	for settled := false; ; {
		missing := take(charges, keys)
		var lacking bool
		all, lacking = m.weigh(charges, keys)
		if !missing || settled && !(all && lacking) {
			break
		}
		putBack(keys) // for whoever makes room may move cells
		var changed bool
		changed, overflow = m.makeRoom(charges, keys, all, overflow)
		settled = !changed
	}
	for i := range keys {
		k, c, d := &keys[i], &charges[i], &decisions[i]
		q, cost, s := c.Quota, c.Cost, &k.before
		switch {
		case all:
			s = &k.after
		case k.allowed:
			cost = 0 // it is a look
		}
		*d = q.describe(*s, 0, cost, k.allowed)
		d.Overflow = k.shard == &m.overflow
		switch {
		case k.found:
			first := &keys[k.first]
			if all && cost > 0 {
				first.word = k.shard.save(q, k.binding.tag, first.tag, first.word, *s, d)
				first.tag = k.binding.tag
			}
			first.marks |= marksAfter(k.cell.Marks(), q, cost, d) &^ table.Pinned
		case all && cost > 0 && q.InFlight():
			k.shard.putSlots(k.hash, *s)
		}
	}
	for i := range keys {
		if k := &keys[i]; k.found && k.first == i {
			k.cell.SetMarks(k.marks)
		}
	}
	putBack(keys)
	if overflow {
		m.overflow.Unlock()
	}
	for _, s := range homes {
		s.Unlock()
	}
}

// take takes the cells there are, and reports whether one is missing.
func take(charges []Charge, keys []lockedKey) (missing bool) {
	for i := range keys {
		k := &keys[i]
		if charges[i].Quota.InFlight() {
			continue
		}
		if k.cell, k.found = k.shard.Find(k.hash); !k.found {
			missing = true
			continue
		}
		for k.first = 0; keys[k.first].cell != k.cell; k.first++ {
		}
		if k.first == i {
			k.tag, k.word = k.cell.Tag(), k.cell.Take()
		}
	}
	return missing
}

// putBack ends take.
func putBack(keys []lockedKey) {
	for i := range keys {
		if k := &keys[i]; k.found && k.first == i {
			k.cell.Put(k.tag, k.word)
		}
	}
}

// weigh reads the clock, decides, and reports whether all are allowed and whether what is to be
// counted lacks a cell.
func (m *Memory) weigh(charges []Charge, keys []lockedKey) (all, lacking bool) {
	now := m.now()
	all = true
	for i := range keys {
		k, q, cost := &keys[i], charges[i].Quota, charges[i].Cost
		k.shard.now = now
		k.before = m.stateOf(charges, keys, i)
		if len(keys) > 1 && len(k.before.Log) >= MostLows && q.hasLows() {
			k.before.Log = slices.Clone(k.before.Log) // from which take may leave one out
		}
		k.after, k.allowed = q.takeNow(k.before, cost)
		all = all && k.allowed
		lacking = lacking || !k.found && cost > 0 && !q.InFlight()
	}
	return all, lacking
}

// stateOf is the state that a charge finds, after those before it.
func (m *Memory) stateOf(charges []Charge, keys []lockedKey, i int) State {
	k, q, now := &keys[i], charges[i].Quota, keys[i].shard.now
	switch {
	case q.InFlight():
		return k.shard.slots(k.hash)
	case !k.found:
		return q.at(State{}, now)
	}
	for j := i - 1; j >= k.first; j-- {
		if keys[j].found && keys[j].first == k.first {
			return q.at(q.Convert(charges[j].Quota, keys[j].after, now), now)
		}
	}
	first := &keys[k.first]
	s, from := k.shard.load(first.tag, first.word)
	if first.tag == heldTag && k.binding.tag == heldTag && (from == q || from.limit == q.limit) {
		return k.shard.present(&k.shard.held[first.word], q, charges[i].Cost)
	}
	return q.at(q.Convert(from, s, now), now)
}

// makeRoom gives a cell to each charge that is to be counted and has none, or moves it to its rule's
// overflow counter, where looks go too for whose key there is no room. It reports whether
// anything changed, and whether the overflow counters are locked, which come after all shards.
func (m *Memory) makeRoom(charges []Charge, keys []lockedKey, all, overflow bool) (changed, locked bool) {
	counted := false
	for i := range keys {
		if k := &keys[i]; k.found {
			k.cell.SetMarks(k.cell.Marks() | table.Pinned)
		}
	}
	for i := range keys {
		k, c := &keys[i], &charges[i]
		isTaken := all && c.Cost > 0
		if k.found || c.Quota.InFlight() || !isTaken && (k.shard == &m.overflow || k.shard.hasRoom(k.hash, k.binding, c)) {
			continue
		}
		changed = true
		if isTaken && k.shard != &m.overflow {
			if cell, ok := k.shard.room(k.hash, k.binding, c); ok {
				cell.SetMarks(cell.Marks() | table.Pinned)
				continue
			}
		}
		if !overflow {
			overflow = true
			m.overflow.Lock()
		}
		m.overflow.now = k.shard.now
		k.shard, k.hash = &m.overflow, c.Quota.salt
		if !isTaken {
			continue
		}
		if !counted {
			counted = true
			m.overflowed.Add(1)
		}
		cell, ok := k.shard.Find(k.hash)
		if !ok {
			cell, _ = k.shard.room(k.hash, k.binding, c)
		}
		cell.SetMarks(cell.Marks() | table.Pinned)
	}
	return changed, overflow
}

// room makes a cell for a key, with a first state, if there is room for both. The key of a rule
// that does not tell keys apart is kept for good: there is one for each rule, and it has to
// outlast any flood of others.
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

// hasRoom reports whether room would make a cell. It evicts nothing.
func (s *shard) hasRoom(hash uint64, b *binding, c *Charge) bool {
	if b.tag == heldTag && !s.hasMemory(c.Quota) && !(s.Sweep() && s.hasMemory(c.Quota)) {
		return false
	}
	return s.HasRoom(hash)
}
