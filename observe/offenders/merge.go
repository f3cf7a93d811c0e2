package offenders

import "slices"

// known is what the panes of a rule know together.
type known struct {
	all, refused merged
}

// A merged is what several summaries know together. A key that has no counter in one of them
// may have come there as often as its lowest count says, which is added to the key's count and
// error. The base is the sum of these for a key that has no counter anywhere, and excess is what
// a key differs by.
//
// As the counts of a summary add up to its total, of which k times the lowest is the base's,
// fewer than k keys can have a count above total/k.
type merged struct {
	base uint64
	keys map[uint64]excess
}

type excess struct {
	count, error int64 // the error can be below the base
	name         *name
}

// read merges what is in the window. The rule is locked while one pane is copied.
func (r *rule) read(now int64) *known {
	k := &known{merged{keys: map[uint64]excess{}}, merged{keys: map[uint64]excess{}}}
	for i := range r.panes {
		p := &r.panes[i]
		r.mu.Lock()
		if p.over(now) {
			r.mu.Unlock()
			continue
		}
		all, refused := p.all.copy(), p.refused.copy()
		r.mu.Unlock()
		k.all.add(&all)
		k.refused.add(&refused)
	}
	return k
}

// copy is s without its map, and only to be read.
func (s *summary) copy() summary {
	c := *s
	c.places = nil
	c.counters = slices.Clone(s.counters)
	c.names = slices.Clone(s.names)
	return c
}

func (m *merged) add(s *summary) {
	floor := s.floor()
	m.base += floor
	for i, c := range s.counters {
		e := m.keys[c.hash]
		e.count += int64(c.count - floor)
		e.error += int64(c.error) - int64(floor)
		e.name = &s.names[i]
		m.keys[c.hash] = e
	}
}

func (m *merged) count(hash uint64) Count {
	e := m.keys[hash]
	return Count{N: uint64(int64(m.base) + e.count), Error: uint64(int64(m.base) + e.error)}
}

// counts are those of a key. What was refused is part of all: that count is never the higher
// one, as a summary of more requests has no lower counts, and it says what all is at least.
func (k *known) counts(hash uint64) (refused, all Count) {
	refused, all = k.refused.count(hash), k.all.count(hash)
	all.Error = min(all.Error, all.N-refused.AtLeast())
	return refused, all
}

// totals are how many requests were in the window.
func (r *rule) totals(now int64) (refused, all uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.panes {
		if p := &r.panes[i]; !p.over(now) {
			refused += p.refused.total
			all += p.all.total
		}
	}
	return refused, all
}
