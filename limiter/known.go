package limiter

import (
	"sync/atomic"

	"github.com/weirgo/weir/limiter/internal/table"
)

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

// decideFamily is decideKeys for what a rule of several limits charges one key, whose states are
// in one span. It reports whether it could decide; it is tried before the charges are checked.
func (m *Memory) decideFamily(charges []Charge, decisions []Decision) bool {
	var members [maxLimits]*binding
	if len(charges) > len(members) || len(decisions) != len(charges) {
		return false
	}
	for i := range charges {
		c := &charges[i]
		if c.Quota == nil || c.Quota.family == nil || c.Cost < 0 {
			return false
		}
		b := m.bound(c.Quota)
		if b == nil || len(b.sections) == 1 {
			return false
		}
		if before := members[max(0, i-1)]; i > 0 && (b.of <= before.of || b.salt != before.salt || b.kind != before.kind || c.Key != charges[0].Key) {
			return false
		}
		members[i] = b
	}
	first := members[0]
	hash := first.digest(charges[0].Key)
	shard := m.table.Shard(m.table.Index(hash))
	for attempt := range attempts {
		place, sight := shard.Seek(hash)
		if sight == table.Busy {
			pause(attempt)
			continue
		}
		if sight == table.Unseen || place.Tag() != first.tag {
			return false
		}
		span := shard.Span(place.State(), first.words)
		now := m.now() - m.origin
		var after [maxLimits]uint64
		all, changed, hard := true, false, false
		for i := range charges {
			c, b := &charges[i], members[i]
			var v verdict
			after[i], v = c.Quota.peek(now, b, b.in(span), c.Cost, &decisions[i])
			all = all && decisions[i].Allowed
			changed, hard = changed || v == changes, hard || v == locked
		}
		if !hard && (!all || place.Marks()&table.Refusing != 0) {
			var marks table.Mark
			for i := range charges {
				q, b, cost, d := charges[i].Quota, members[i], charges[i].Cost, &decisions[i]
				if !all && d.Allowed && cost > 0 {
					cost = 0 // it is a look
					q.peek(now, b, b.in(span), 0, d)
				}
				marks |= marksAfter(place.Marks(), q, cost, d)
			}
			hard = marks != place.Marks()
		}
		switch {
		case !place.Still():
		case hard:
			return false
		case !all || !changed:
			return true
		case place.Take():
			for i := range charges {
				if c, b := &charges[i], members[i]; c.Cost > 0 {
					c.Quota.commit(now, b, b.in(span), c.Cost, after[i])
				}
			}
			place.Put(table.Changed(place.State()))
			return true
		}
		pause(attempt)
	}
	return false
}

// A knownKey is what decideKeys knows of one charge.
type knownKey struct {
	table.Place
	binding *binding
	words   []uint64 // its section, where the state is in a span
	word    uint64   // a state of one word, wherever it is
	after   uint64   // the word, or what commit needs
	first   int      // the charge whose cell it is: those of a family share one
	marks   table.Mark
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
		now := m.now() - m.origin
		all, changed, hard := m.answer(now, charges, decisions, keys)
		switch {
		case all && changed && !hard:
			if swapAll(now, charges, keys) {
				return true
			}
		case !still(keys):
		case hard:
			return false
		default:
			return true
		}
		pause(attempt)
	}
	return false
}

// answer fills in the decisions, and reports whether all are allowed, whether that would
// change a state, and whether it needs the lock: a mark has to change, or a state is hard to
// decide on.
func (m *Memory) answer(now int64, charges []Charge, decisions []Decision, keys []knownKey) (all, changed, hard bool) {
	all = true
	var marks table.Mark
	for i := range keys {
		s, c := &keys[i], &charges[i]
		if s.binding.form == inWord {
			s.after = c.Quota.takeWord(now, s.binding, s.word, c.Cost, &decisions[i])
			changed = changed || s.after != s.word
		} else {
			var v verdict
			s.after, v = c.Quota.peek(now, s.binding, s.words, c.Cost, &decisions[i])
			changed, hard = changed || v == changes, hard || v == locked
		}
		all = all && decisions[i].Allowed
		marks |= s.Marks()
	}
	if all && marks&table.Refusing == 0 || hard {
		return all, changed, hard
	}
	for i := range keys {
		s, q, cost, d := &keys[i], charges[i].Quota, charges[i].Cost, &decisions[i]
		if !all && d.Allowed && cost > 0 {
			cost = 0 // it is a look
			if s.binding.form == inWord {
				q.takeWord(now, s.binding, s.word, 0, d)
			} else {
				q.peek(now, s.binding, s.words, 0, d)
			}
		}
		keys[s.first].marks |= marksAfter(s.Marks(), q, cost, d)
	}
	for i := range keys {
		s := &keys[i]
		hard = hard || s.first == i && s.marks != s.Marks()
	}
	return all, changed, hard
}

// seek finds the places of all keys, if they can be decided on without locks.
func (m *Memory) seek(charges []Charge, keys []knownKey) table.Sight {
	var hash uint64
	for i := range keys {
		s, c := &keys[i], &charges[i]
		b := m.bound(c.Quota)
		if b == nil || b.form == inRun {
			return table.Unseen
		}
		s.binding, s.first, s.marks = b, i, 0
		if i == 0 || c.Key != charges[i-1].Key {
			hash = hashOf(c.Key)
		}
		key := hash ^ b.salt
		shard := m.table.Shard(m.table.Index(key))
		if len(b.sections) > 1 {
			for j := range i {
				if keys[j].binding.salt == b.salt && charges[j].Key == c.Key {
					s.first, s.Place = j, keys[j].Place
					break
				}
			}
		}
		if s.first == i {
			var sight table.Sight
			if s.Place, sight = shard.Seek(key); sight != table.Seen {
				return sight
			}
		}
		if s.Tag() != b.tag {
			return table.Unseen
		}
		if s.words, s.word = nil, s.State(); b.words > 0 {
			s.words = b.in(shard.Span(s.State(), b.words))
			s.word = atomic.LoadUint64(&s.words[0])
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

// swapAll replaces the states, all or none. It takes all cells but one, if that one's state is
// a word: its swap is the moment at which all of them change.
func swapAll(now int64, charges []Charge, keys []knownKey) bool {
	one := keys[len(keys)-1].first
	for i := range charges {
		if charges[i].Key == "" {
			one = keys[i].first // all requests come to this one, so none should have to wait for it
		}
	}
	n := 0
	for n < len(keys) && (n == one || keys[n].first != n || keys[n].Take()) {
		n++
	}
	last := &keys[one]
	all := n == len(keys) && (last.words != nil && last.Take() || last.words == nil && last.Swap(last.after))
	if all {
		for i := range keys {
			if s := &keys[i]; s.words != nil && charges[i].Cost > 0 {
				charges[i].Quota.commit(now, s.binding, s.words, charges[i].Cost, s.after)
			}
		}
	}
	for i := range n {
		switch s := &keys[i]; {
		case s.first != i, i == one && (!all || s.words == nil):
		case !all:
			s.Put(s.State())
		case s.words != nil:
			s.Put(table.Changed(s.State()))
		default:
			s.Put(s.after)
		}
	}
	return all
}
