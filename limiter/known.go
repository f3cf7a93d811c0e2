package limiter

import "github.com/weirgo/weir/limiter/internal/table"

// How Memory decides on several charges as one without a lock, where all keys are known and
// others leave their words alone.

// fewCharges is how many most batches have at most.
const fewCharges = 4

// decideKnown reports whether it could decide. The two cases differ in how much stack they
// clear.
func (m *Memory) decideKnown(charges []Charge, decisions []Decision) bool {
	if len(charges) > fewCharges {
		return m.decideManyKnown(charges, decisions)
	}
	var keys [fewCharges]knownKey
	return m.decideKeys(charges, decisions, keys[:len(charges)])
}

//go:noinline
func (m *Memory) decideManyKnown(charges []Charge, decisions []Decision) bool {
	var keys [MaxCharges]knownKey
	return m.decideKeys(charges, decisions, keys[:len(charges)])
}

// A knownKey is what decideKeys knows of one charge.
type knownKey struct {
	table.Place
	binding *binding
	after   uint64 // the state
}

// decideKeys reads the words, decides, and replaces all of them or none. A refusal writes
// nothing.
func (m *Memory) decideKeys(charges []Charge, decisions []Decision, keys []knownKey) bool {
	for attempt := range attempts {
		switch m.seek(charges, keys) {
		case table.Unseen:
			return false
		case table.Busy:
			pause(attempt)
			continue
		}
		all, changed, marked := m.answer(charges, decisions, keys)
		if marked {
			return false
		}
		if all && changed && swapAll(charges, keys) || !(all && changed) && still(keys) {
			return true
		}
		pause(attempt)
	}
	return false
}

// answer fills in the decisions, and reports whether all are allowed, whether that would
// change a state, and whether a mark has to change.
func (m *Memory) answer(charges []Charge, decisions []Decision, keys []knownKey) (all, changed, marked bool) {
	now := m.now() - m.origin
	all = true
	var marks table.Mark
	for i := range keys {
		s, c := &keys[i], &charges[i]
		s.after = c.Quota.takeWord(now, s.binding, s.State(), c.Cost, &decisions[i])
		all = all && decisions[i].Allowed
		changed = changed || s.after != s.State()
		marks |= s.Marks()
	}
	if all && marks&table.Refusing == 0 {
		return all, changed, false
	}
	for i := range keys {
		s, q, cost, d := &keys[i], charges[i].Quota, charges[i].Cost, &decisions[i]
		if !all && d.Allowed {
			cost = 0 // it is a look
			q.takeWord(now, s.binding, s.State(), 0, d)
		}
		marked = marked || marksAfter(s.Marks(), q, cost, d) != s.Marks()
	}
	return all, changed, marked
}

// seek finds the places of all keys, if they can be decided on without locks.
func (m *Memory) seek(charges []Charge, keys []knownKey) table.Sight {
	var hash uint64
	for i := range keys {
		s, c := &keys[i], &charges[i]
		if s.binding = m.bound(c.Quota); s.binding == nil || c.Quota.boxed() {
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
func still(keys []knownKey) bool {
	for i := range keys {
		if !keys[i].Still() {
			return false
		}
	}
	return true
}

// swapAll replaces the states, all or none. It takes all cells but one: its swap is the
// moment at which all of them change.
func swapAll(charges []Charge, keys []knownKey) bool {
	one := len(keys) - 1
	for i := range charges {
		if charges[i].Key == "" {
			one = i // all requests come to this one, so none should have to wait for it
		}
	}
	n := 0
	for n < len(keys) && (n == one || keys[n].Take()) {
		n++
	}
	all := n == len(keys) && keys[one].Swap(keys[one].after)
	for i := range n {
		switch s := &keys[i]; {
		case i == one:
		case all:
			s.Put(s.after)
		default:
			s.Put(s.State())
		}
	}
	return all
}
