package limiter

import "github.com/weirgo/weir/limiter/internal/table"

// How Memory decides with the shards' locks: on new keys, on states that do not fit a word
// or were written under another limit, and where others were faster too often.

// decideOneLocked decides on one charge.
func (m *Memory) decideOneLocked(shard *table.Shard, hash uint64, q *Quota, key string, cost int64, b *binding, d *Decision) {
	shard.Lock()
	if !m.decideIn(shard, hash, q, key, cost, b, d) {
		// No room for a new key. The shard stays locked, so that nothing changes
		// between that finding and the decision on the overflow counter.
		m.overflow.Lock()
		m.decideIn(m.overflow, b.salt, q, key, cost, b, d)
		d.Overflow = true
		m.overflow.Unlock()
		m.overflowed.Add(1)
	}
	shard.Unlock()
}

// decideIn decides in a locked shard; false means that there is no room for a new key.
func (m *Memory) decideIn(shard *table.Shard, hash uint64, q *Quota, key string, cost int64, b *binding, d *Decision) bool {
	cell, found := shard.Find(hash)
	written, word := b.tag, uint64(0)
	if found {
		written, word = cell.Tag(), cell.Take()
	}
	shard.Now = m.now()
	now := shard.Now - m.origin
	var after uint64
	var s State
	asState := written != b.tag || b.form == inRun
	if !asState && b.words > 0 {
		words := fresh[:b.words]
		if found {
			words = shard.Span(word, b.words)
		}
		var verdict verdict
		after, verdict = q.peek(now, b, b.in(words), cost, d)
		asState = verdict == locked
	}
	switch {
	case asState:
		if found {
			s = m.load(shard, q, b, written, word)
		}
		var allowed bool
		s, allowed = q.takeNow(q.at(s, shard.Now), cost)
		*d = q.describe(s, 0, cost, allowed)
	case b.words == 0:
		after = q.takeWord(now, b, word, cost, d)
	}
	isTaken := d.Allowed && cost > 0
	if !found {
		if !isTaken {
			return true
		}
		if cell, word, found = m.room(shard, hash, b, key); !found {
			return false
		}
	}
	switch {
	case !isTaken:
	case asState:
		written, word = b.tag, m.save(shard, b, written, word, s)
	case b.words == 0:
		word = after
	default:
		q.commit(now, b, b.in(shard.Span(word, b.words)), cost, after)
		word = table.Changed(word)
	}
	cell.SetMarks(marksAfter(cell.Marks(), q, cost, d))
	cell.Put(written, word)
	return true
}

// fresh is the span of a key that was never seen.
var fresh [table.MostWords]uint64

// A lockedKey is what decideLocked knows of one charge.
type lockedKey struct {
	index   int
	shard   *table.Shard
	key     uint64
	binding *binding

	cell  table.Cell
	found bool
	owner int       // the key that has taken the cell: an earlier charge may share it
	tag   table.Tag // what the owner will put into the cell
	word  uint64
	marks table.Mark // those that any charge gives the owner's cell

	before, after State
	allowed       bool
}

// decideLocked locks every shard that charges touch, always in the same order, takes all
// cells, and counts only when all charges are allowed. A key that was given a cell, and is
// then not charged, has an idle one.
func (m *Memory) decideLocked(charges []Charge, decisions []Decision) error {
	var few [fewCharges]lockedKey
	keys := few[:]
	if n := len(charges); n > fewCharges {
		keys = make([]lockedKey, n)
	}
	keys = keys[:len(charges)]
	if err := m.place(charges, keys); err != nil {
		return err
	}
	var locks [MaxCharges]*table.Shard
	held := m.lock(keys, locks[:0])
	defer unlock(held)
	all, missing := m.weigh(charges, keys)
	if all && missing {
		putBack(keys)
		if m.makeRoom(charges, keys) {
			defer m.overflow.Unlock()
		}
		all, _ = m.weigh(charges, keys) // others had the cells meanwhile
	}
	for i := range keys {
		s, c := &keys[i], &charges[i]
		q, cost, state := c.Quota, c.Cost, &s.before
		switch {
		case all:
			state = &s.after
		case s.allowed:
			cost = 0 // it is a look
		}
		decisions[i] = q.describe(*state, 0, cost, s.allowed)
		decisions[i].Overflow = s.shard == m.overflow
		if !s.found {
			continue
		}
		if owner := &keys[s.owner]; all && cost > 0 {
			owner.word = m.save(s.shard, s.binding, owner.tag, owner.word, s.after)
			owner.tag = s.binding.tag
		}
		keys[s.owner].marks |= marksAfter(s.cell.Marks(), q, cost, &decisions[i]) &^ table.Pinned
	}
	for i := range keys {
		if s := &keys[i]; s.found && s.owner == i {
			s.cell.SetMarks(s.marks)
		}
	}
	putBack(keys)
	return nil
}

// place fills in where each charge's key belongs.
func (m *Memory) place(charges []Charge, keys []lockedKey) (err error) {
	for i := range charges {
		s := &keys[i]
		if s.binding, err = m.binding(charges[i].Quota); err != nil {
			return err
		}
		s.key = s.binding.digest(charges[i].Key)
		s.index = m.table.Index(s.key)
		s.shard = m.table.Shard(s.index)
	}
	return nil
}

// weigh takes the cells there are, reads the clock, and decides. Missing says that a
// charge needs a cell and has none.
func (m *Memory) weigh(charges []Charge, keys []lockedKey) (all, missing bool) {
	for i := range keys {
		s := &keys[i]
		if s.cell, s.found = s.shard.Find(s.key); !s.found {
			missing = missing || charges[i].Cost > 0
			continue
		}
		for s.owner = 0; keys[s.owner].cell != s.cell; s.owner++ {
		}
		if s.owner == i {
			s.tag, s.word = s.cell.Tag(), s.cell.Take()
		}
	}
	now := m.now()
	all = true
	for i := range keys {
		s, q := &keys[i], charges[i].Quota
		s.shard.Now = now
		s.before = State{}
		if s.found {
			owner := &keys[s.owner]
			s.before = m.load(s.shard, q, s.binding, owner.tag, owner.word)
		}
		for j := range i {
			if s.found && keys[j].found && keys[j].owner == s.owner && charges[j].Quota.salt == q.salt {
				s.before = q.Convert(charges[j].Quota, keys[j].after, now)
			}
		}
		s.before = q.at(s.before, now)
		s.after, s.allowed = q.takeNow(s.before, charges[i].Cost)
		all = all && s.allowed
	}
	return all, missing
}

// putBack ends what weigh began.
func putBack(keys []lockedKey) {
	for i := range keys {
		if s := &keys[i]; s.found && s.owner == i {
			s.cell.Put(s.tag, s.word)
		}
	}
}

// makeRoom gives a cell to each charge that needs one, or moves it to its rule's overflow
// counter. It reports whether it left the overflow shard locked.
func (m *Memory) makeRoom(charges []Charge, keys []lockedKey) (overflow bool) {
	for i := range keys {
		if s := &keys[i]; s.found {
			s.cell.SetMarks(s.cell.Marks() | table.Pinned)
		}
	}
	for i := range keys {
		s, c := &keys[i], &charges[i]
		if s.found || c.Cost == 0 {
			continue
		}
		for j := range i { // the limits of a family stay together
			if keys[j].binding.salt == s.binding.salt && charges[j].Key == c.Key {
				s.shard, s.key = keys[j].shard, keys[j].key
			}
		}
		if cell, ok := s.shard.Find(s.key); ok {
			cell.SetMarks(cell.Marks() | table.Pinned)
			continue
		}
		cell, word, ok := m.room(s.shard, s.key, s.binding, c.Key)
		if !ok {
			if !overflow {
				overflow = true
				m.overflow.Lock()
				m.overflow.Now = s.shard.Now
				m.overflowed.Add(1)
			}
			s.shard, s.key = m.overflow, s.binding.salt
			if cell, ok = s.shard.Find(s.key); ok {
				cell.SetMarks(cell.Marks() | table.Pinned)
				continue
			}
			cell, word, _ = m.room(s.shard, s.key, s.binding, c.Key)
		}
		cell.SetMarks(cell.Marks() | table.Pinned)
		cell.Put(s.binding.tag, word)
	}
	return overflow
}

// lock locks each shard once, in ascending order, and appends it to held.
func (m *Memory) lock(keys []lockedKey, held []*table.Shard) []*table.Shard {
	for last := -1; ; {
		next := m.table.Shards()
		for i := range keys {
			if index := keys[i].index; index > last {
				next = min(next, index)
			}
		}
		if next == m.table.Shards() {
			return held
		}
		shard := m.table.Shard(next)
		shard.Lock()
		held = append(held, shard)
		last = next
	}
}

func unlock(held []*table.Shard) {
	for _, shard := range held {
		shard.Unlock()
	}
}
