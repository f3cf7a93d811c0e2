package limiter

import (
	"context"
	"sync"
)

// How Memory counts events that are under way. A key has an entry while it has some, so what
// there is of them is bounded by these: nothing is evicted, and nothing swept.

// places is by key, in shards.
type places [64]placeShard

type placeShard struct {
	sync.Mutex
	taken map[uint64]place
	most  int      // entries since the map was made: it keeps the room for as many
	_     [40]byte // to the end of a cache line, as others lock the neighbors
}

// A place is a key's State without the time.
type place struct{ level, mean int64 }

// keptRoom is for how many entries an empty shard keeps room.
const keptRoom = 128

// put replaces the state of a key. The shard is locked.
func (s *placeShard) put(key uint64, p place) {
	if p.level > 0 {
		if s.taken == nil {
			s.taken = map[uint64]place{}
		}
		s.taken[key] = p
		s.most = max(s.most, len(s.taken))
		return
	}
	delete(s.taken, key)
	if len(s.taken) == 0 && s.most > keptRoom {
		s.taken, s.most = nil, 0
	}
}

// placesOf is where a key's entry is.
func (m *Memory) placesOf(q *Quota, key string) (*placeShard, uint64) {
	hash := hashOf(key) ^ q.salt
	return &m.places[hash%uint64(len(m.places))], hash
}

// begin decides on a charge of a quota that is InFlight.
func (m *Memory) begin(q *Quota, key string, cost int64, d *Decision) {
	shard, hash := m.placesOf(q, key)
	now := m.now()
	shard.Lock()
	p := shard.taken[hash]
	allowed := cost <= q.capacity-p.level || cost == 0
	if allowed && cost > 0 {
		p.level += cost
		shard.put(hash, p)
	}
	shard.Unlock()
	*d = q.describe(State{Last: now, Level: p.level, Prev: p.mean}, 0, cost, allowed)
}

// changePlace applies what Refund, Owe or Reset of a charge that is InFlight do to a State.
func (m *Memory) changePlace(c *Charge, f func(q *Quota, s State, n, at int64) State) {
	shard, hash := m.placesOf(c.Quota, c.Key)
	now := m.now()
	shard.Lock()
	p := shard.taken[hash]
	s := f(c.Quota, State{Last: now, Level: p.level, Prev: p.mean}, c.Cost, c.At)
	shard.put(hash, place{s.Level, s.Prev})
	shard.Unlock()
}

func (m *Memory) end(c *Charge) { m.changePlace(c, inFlight.refund) }

func (m *Memory) beginAnyway(c *Charge) {
	m.changePlace(c, func(q *Quota, s State, n, _ int64) State { return inFlight.owe(q, s, n) })
}

// forgetMean is Reset: what is under way is so all the same, and ends like all else.
func (m *Memory) forgetMean(c *Charge) {
	m.changePlace(c, func(_ *Quota, s State, _, _ int64) State { return State{Level: s.Level} })
}

// hasPlaces reports whether a batch has charges that are InFlight.
func hasPlaces(charges []Charge) bool {
	for i := range charges {
		if charges[i].Quota.InFlight() {
			return true
		}
	}
	return false
}

// beginAll decides on a batch with charges that are InFlight. Their places are taken first, and
// returned where another charge is refused: until then others find them taken.
func (m *Memory) beginAll(charges []Charge, decisions []Decision) error {
	var few [fewCharges]Charge
	others := few[:0]
	all := true
	for i := range charges {
		c := &charges[i]
		if !c.Quota.InFlight() {
			others = append(others, *c)
			continue
		}
		m.begin(c.Quota, c.Key, c.Cost, &decisions[i])
		all = all && decisions[i].Allowed
	}
	var space [fewCharges]Decision
	answers := append(space[:0], decisions[:len(others)]...) // as many
	var err error
	if all {
		err = m.Decide(context.Background(), others, answers)
	} else {
		err = m.consider(others, answers)
	}
	next := 0
	for i := range charges {
		if err == nil && !charges[i].Quota.InFlight() {
			decisions[i] = answers[next]
			all = all && decisions[i].Allowed
			next++
		}
	}
	if err != nil || !all {
		m.leave(charges, decisions)
	}
	return err
}

// consider is Decide for charges that are not to be taken.
func (m *Memory) consider(charges []Charge, decisions []Decision) error {
	for i := range charges {
		c, d := charges[i], &decisions[i]
		if err := m.decideOne(c.Quota, c.Key, 0, d); err != nil {
			return err
		}
		if c.Cost <= d.Remaining {
			continue
		}
		// It stands in the way too. Should there be room by now, it is undone.
		if err := m.decideOne(c.Quota, c.Key, c.Cost, d); err != nil {
			return err
		}
		if !d.Allowed {
			continue
		}
		c.At = c.Quota.UndoAt(d)
		if err := m.Refund(context.Background(), []Charge{c}); err != nil {
			return err
		}
		if err := m.decideOne(c.Quota, c.Key, 0, d); err != nil {
			return err
		}
	}
	return nil
}

// leave returns the places of a batch that was not taken, and describes them as looks.
func (m *Memory) leave(charges []Charge, decisions []Decision) {
	for i := range charges {
		c := charges[i]
		if !c.Quota.InFlight() || !decisions[i].Allowed {
			continue
		}
		c.At = 0 // it says nothing about how long others are
		m.end(&c)
		m.begin(c.Quota, c.Key, 0, &decisions[i])
	}
}

// Places implements [Placer]: what a process has taken ends with it, and so does its Memory.
func (m *Memory) Places(*Quota) error { return nil }
