package limiter

import (
	"github.com/weirgo/weir/limiter/internal/table"
)

// How Memory decides on several charges as one: on spots, without locks, if it can,
// or else on slots, with the locks of their shards.

// fewCharges is how many most batches have at most.
const fewCharges = 4

func (m *Memory) decideAll(charges []Charge, decisions []Decision) error {
	var done bool
	if len(charges) <= fewCharges {
		done = m.decideFew(charges, decisions)
	} else {
		done = m.decideMany(charges, decisions)
	}
	if done {
		return nil
	}
	return m.decideSlots(charges, decisions)
}

// decideFew and decideMany differ in how much stack they clear.
func (m *Memory) decideFew(charges []Charge, decisions []Decision) bool {
	var spots [fewCharges]spot
	return m.decideSpots(charges, decisions, spots[:len(charges)])
}

//go:noinline
func (m *Memory) decideMany(charges []Charge, decisions []Decision) bool {
	var spots [MaxCharges]spot
	return m.decideSpots(charges, decisions, spots[:len(charges)])
}

// A spot is what decideSpots knows of one charge.
type spot struct {
	table.Place
	binding *binding
	after   uint64 // the state
}

// decideSpots is the hot path: all keys are known, and others leave their words alone.
// A refusal then writes nothing.
func (m *Memory) decideSpots(charges []Charge, decisions []Decision, spots []spot) bool {
	for attempt := range attempts {
		switch m.seek(charges, spots) {
		case table.Unseen:
			return false
		case table.Busy:
			pause(attempt)
			continue
		}
		all, changed, marked := m.decideEach(charges, decisions, spots)
		if marked {
			return false
		}
		if all && changed && swapAll(charges, spots) || !(all && changed) && still(spots) {
			return true
		}
		pause(attempt)
	}
	return false
}

// decideEach fills in the decisions. It reports whether all are allowed, whether that would
// change a state, and whether a mark has to change.
func (m *Memory) decideEach(charges []Charge, decisions []Decision, spots []spot) (all, changed, marked bool) {
	now := m.now() - m.origin
	all = true
	var marks table.Mark
	for i := range spots {
		s, c := &spots[i], &charges[i]
		s.after = c.Quota.decideWord(now, s.binding, s.State(), c.Cost, &decisions[i])
		all = all && decisions[i].Allowed
		changed = changed || s.after != s.State()
		marks |= s.Marks()
	}
	if all && marks&table.Refusing == 0 {
		return all, changed, false
	}
	for i := range spots {
		s, q, cost, d := &spots[i], charges[i].Quota, charges[i].Cost, &decisions[i]
		if !all && d.Allowed {
			cost = 0 // it is a look
			q.decideWord(now, s.binding, s.State(), 0, d)
		}
		marked = marked || marksAfter(s.Marks(), q, cost, d) != s.Marks()
	}
	return all, changed, marked
}

// seek finds the places of all keys, if they can be decided on without locks.
func (m *Memory) seek(charges []Charge, spots []spot) table.Sight {
	var hash uint64
	for i := range spots {
		s, c := &spots[i], &charges[i]
		if s.binding = m.bound(c.Quota); s.binding == nil || c.Quota.layout.boxed {
			return table.Unseen
		}
		if i == 0 || c.Key != charges[i-1].Key {
			hash = hashOf(c.Key)
		}
		key := hash ^ c.Quota.salt
		var sight table.Sight
		s.Place, sight = m.table.Shard(m.table.Index(key)).Seek(key)
		if sight != table.Seen {
			return sight
		}
		if s.Tag() != s.binding.tag {
			return table.Unseen
		}
	}
	return table.Seen
}

// still reports whether all states are what they were, and so were at one moment.
func still(spots []spot) bool {
	for i := range spots {
		if !spots[i].Still() {
			return false
		}
	}
	return true
}

// swapAll replaces the states, all or none. It takes all cells but one, whose swap is the
// moment at which all of them change.
func swapAll(charges []Charge, spots []spot) bool {
	one := len(spots) - 1
	for i := range charges {
		if charges[i].Key == "" {
			one = i // everybody comes to this one, so nobody should have to wait for it
		}
	}
	n := 0
	for n < len(spots) && (n == one || spots[n].Take()) {
		n++
	}
	all := n == len(spots) && spots[one].Swap(spots[one].after)
	for i := range n {
		switch s := &spots[i]; {
		case i == one:
		case all:
			s.Put(s.after)
		default:
			s.Put(s.State())
		}
	}
	return all
}

// A slot is what decideSlots knows of one charge.
type slot struct {
	index   int
	shard   *table.Shard
	key     uint64
	binding *binding

	cell  table.Cell
	found bool
	owner int       // the slot that has taken the cell: an earlier charge may share it
	tag   table.Tag // what the owner will put into the cell
	word  uint64

	before, after State
	allowed       bool
}

// decideSlots decides on charges together: it locks every shard they touch, always in
// the same order, takes all cells, and counts only when all charges are allowed. A key that
// was given a cell, and is then not charged, has an idle one.
func (m *Memory) decideSlots(charges []Charge, decisions []Decision) error {
	var few [fewCharges]slot
	slots := few[:]
	if n := len(charges); n > fewCharges {
		slots = make([]slot, n)
	}
	slots = slots[:len(charges)]
	if err := m.place(charges, slots); err != nil {
		return err
	}
	var locks [MaxCharges]*table.Shard
	held := m.lock(slots, locks[:0])
	defer unlock(held)
	all, missing := m.weigh(charges, slots)
	if all && missing {
		putBack(slots)
		if m.makeRoom(charges, slots) {
			defer m.overflow.Unlock()
		}
		all, _ = m.weigh(charges, slots) // others had the cells meanwhile
	}
	for i := range slots {
		s, c := &slots[i], &charges[i]
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
		if owner := &slots[s.owner]; all && cost > 0 {
			owner.word = m.save(s.shard, q, owner.tag, owner.word, s.after)
			owner.tag = s.binding.tag
		}
		s.cell.SetMarks(marksAfter(s.cell.Marks(), q, cost, &decisions[i]) &^ table.Pinned)
	}
	putBack(slots)
	return nil
}

// place fills in where each charge's key belongs.
func (m *Memory) place(charges []Charge, slots []slot) (err error) {
	for i := range charges {
		s := &slots[i]
		if s.binding, err = m.binding(charges[i].Quota); err != nil {
			return err
		}
		s.key = digest(charges[i].Quota, charges[i].Key)
		s.index = m.table.Index(s.key)
		s.shard = m.table.Shard(s.index)
	}
	return nil
}

// weigh takes the cells there are, reads the clock, and decides. Missing says that a
// charge needs a cell and has none.
func (m *Memory) weigh(charges []Charge, slots []slot) (all, missing bool) {
	for i := range slots {
		s := &slots[i]
		if s.cell, s.found = s.shard.Find(s.key); !s.found {
			missing = missing || charges[i].Cost > 0
			continue
		}
		for s.owner = 0; slots[s.owner].cell != s.cell; s.owner++ {
		}
		if s.owner == i {
			s.tag, s.word = s.cell.Tag(), s.cell.Take()
		}
	}
	now := m.now()
	all = true
	for i := range slots {
		s, q := &slots[i], charges[i].Quota
		s.shard.Now = now
		s.before = State{}
		if s.found && s.owner == i {
			s.before = m.load(s.shard, q, s.binding, s.tag, s.word)
		}
		for j := range i {
			if s.found && slots[j].found && slots[j].owner == s.owner {
				s.before = q.Convert(charges[j].Quota, slots[j].after, now)
			}
		}
		s.before = q.at(s.before, now)
		s.after, s.allowed = q.takeNow(s.before, charges[i].Cost)
		all = all && s.allowed
	}
	return all, missing
}

// putBack ends what weigh began.
func putBack(slots []slot) {
	for i := range slots {
		if s := &slots[i]; s.found && s.owner == i {
			s.cell.Put(s.tag, s.word)
		}
	}
}

// makeRoom gives a cell to each charge that needs one, or moves it to its rule's overflow
// counter. It reports whether it left the overflow shard locked.
func (m *Memory) makeRoom(charges []Charge, slots []slot) (overflow bool) {
	for i := range slots {
		if s := &slots[i]; s.found {
			s.cell.SetMarks(s.cell.Marks() | table.Pinned)
		}
	}
	for i := range slots {
		s, c := &slots[i], &charges[i]
		if s.found || c.Cost == 0 {
			continue
		}
		cell, ok := m.room(s.shard, s.key, s.binding.tag, c.Key)
		if !ok {
			if !overflow {
				overflow = true
				m.overflow.Lock()
				m.overflowed.Add(1)
			}
			s.shard, s.key = m.overflow, c.Quota.salt
			if cell, ok = s.shard.Find(s.key); ok {
				cell.SetMarks(cell.Marks() | table.Pinned)
				continue
			}
			cell, _ = m.room(s.shard, s.key, s.binding.tag, c.Key)
		}
		cell.SetMarks(cell.Marks() | table.Pinned)
		cell.Put(s.binding.tag, 0)
	}
	return overflow
}

// lock locks each shard once, in ascending order, and appends it to held.
func (m *Memory) lock(slots []slot, held []*table.Shard) []*table.Shard {
	for last := -1; ; {
		next := m.table.Shards()
		for i := range slots {
			if index := slots[i].index; index > last {
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
