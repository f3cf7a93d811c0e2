package limiter

import "github.com/weirgo/weir/limiter/internal/table"

// How Memory decides on words without a lock, where all keys are known and others leave their
// words alone. A refusal then writes nothing. The clock is read after the words, here and in
// locked.go: no decision is before one that it builds on.

const (
	// attempts is how often that is tried where others are faster, before it queues up for the lock.
	attempts = 6

	// fewCharges is how many most batches have at most.
	fewCharges = 4
)

// pause leaves a word to those that were faster: for half a microsecond, and twice as long
// each time. They then decide several times from their own cache, where all would do little
// else than pass the word around. (The compiler keeps the loop, though it is empty.)
func pause(attempt int) {
	for range 1024 << attempt {
	}
}

// decideWord decides on one charge, if it can.
func (m *Memory) decideWord(q *Quota, b *binding, hash uint64, cost int64, d *Decision) bool {
	shard := m.shardOf(hash)
	for attempt := range attempts {
		place, sight := shard.Seek(hash)
		switch {
		case sight == table.Busy:
			pause(attempt)
			continue
		case sight == table.Unseen || place.Tag() != b.tag:
			return false
		}
		after := q.takeWord(m.now()-m.origin, b, place.State(), cost, d)
		if marksAfter(place.Marks(), q, cost, d) != place.Marks() {
			return false
		}
		if after == place.State() || place.Swap(after) {
			return true
		}
		pause(attempt)
	}
	return false
}

// A knownKey is what decideKnown knows of one charge.
type knownKey struct {
	table.Place
	binding *binding
	after   uint64
}

// decideKnown decides on a batch of few charges, if it can: it reads the words, decides, and
// replaces all of them or none.
func (m *Memory) decideKnown(charges []Charge, decisions []Decision) bool {
	var space [fewCharges]knownKey
	keys := space[:len(charges)]
	for attempt := range attempts {
		switch m.seek(charges, keys) {
		case table.Unseen:
			return false
		case table.Busy:
			pause(attempt)
			continue
		}
		all, changed, marked := m.answer(charges, decisions, keys)
		switch {
		case all && changed && !marked:
			if swapAll(charges, keys) {
				return true
			}
		case !still(keys):
		default:
			return !marked
		}
		pause(attempt)
	}
	return false
}

// seek finds the places of all keys, if they can be decided on without locks.
func (m *Memory) seek(charges []Charge, keys []knownKey) table.Sight {
	var hash uint64
	for i := range keys {
		k, c := &keys[i], &charges[i]
		if k.binding = m.binding(c.Quota); k.binding.tag == heldTag {
			return table.Unseen
		}
		if i == 0 || c.Key != charges[i-1].Key {
			hash = hashOf(c.Key)
		}
		digest := hash ^ c.Quota.salt
		var sight table.Sight
		if k.Place, sight = m.shardOf(digest).Seek(digest); sight != table.Seen {
			return sight
		}
		if k.Tag() != k.binding.tag {
			return table.Unseen
		}
	}
	return table.Seen
}

// answer fills in the decisions, and reports whether all are allowed, whether that would
// change a word, and whether a mark has to change, for which it needs the lock.
func (m *Memory) answer(charges []Charge, decisions []Decision, keys []knownKey) (all, changed, marked bool) {
	now := m.now() - m.origin
	all = true
	var marks table.Mark
	for i := range keys {
		k, c := &keys[i], &charges[i]
		k.after = c.Quota.takeWord(now, k.binding, k.State(), c.Cost, &decisions[i])
		changed = changed || k.after != k.State()
		all = all && decisions[i].Allowed
		marks |= k.Marks()
	}
	if all && marks&table.Refusing == 0 {
		return all, changed, false
	}
	for i := range keys {
		k, q, cost, d := &keys[i], charges[i].Quota, charges[i].Cost, &decisions[i]
		if !all && d.Allowed && cost > 0 {
			cost = 0 // it is a look
			q.takeWord(now, k.binding, k.State(), 0, d)
		}
		marked = marked || marksAfter(k.Marks(), q, cost, d) != k.Marks()
	}
	return all, changed, marked
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

// swapAll replaces the words, all or none. It takes all cells but one, whose swap is the moment at
// which all of them change.
func swapAll(charges []Charge, keys []knownKey) bool {
	last := len(keys) - 1
	for i := range charges {
		if charges[i].Key == "" {
			last = i // all requests come to this one, so none should have to wait for it
		}
	}
	n := 0
	for n < len(keys) && (n == last || keys[n].Take()) {
		n++
	}
	all := n == len(keys) && keys[last].Swap(keys[last].after)
	for i := range n {
		switch k := &keys[i]; {
		case i == last:
		case all:
			k.Put(k.after)
		default:
			k.Put(k.State())
		}
	}
	return all
}
