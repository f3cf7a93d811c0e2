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

// take fills in the decision on the state as it was found.
func (s *knownKey) take(now int64, q *Quota, cost int64, d *Decision) (after uint64, o verdict) {
	if s.binding.form != inWord {
		return q.peek(now, s.binding, s.words, cost, d)
	}
	if after = q.takeWord(now, s.binding, s.word, cost, d); after != s.word {
		o = changes
	}
	return after, o
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
		var o verdict
		s.after, o = s.take(now, c.Quota, c.Cost, &decisions[i])
		changed, hard = changed || o == changes, hard || o == locked
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
			s.take(now, q, 0, d)
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
