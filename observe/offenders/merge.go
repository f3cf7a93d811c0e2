package offenders

import "slices"

// known holds the merged counts of a rule's panes.
type known struct {
	all, refused merged
}

// A merged holds the merged counts of several summaries. If a summary has no counter for a key, the
// key may have come there as often as the summary's lowest count, which is added to the key's count
// and error. base is the sum of the lowest counts, for a key without any counter. excess is how much
// a key differs from base.
//
// The counts of a summary add up to its total, so fewer than k keys can have a count above total/k.
type merged struct {
	base uint64
	keys map[uint64]excess
}

type excess struct {
	count, error int64 // the error can be below the base
	name         *name
}

// read merges the panes in the window. It locks the rule only while it copies one pane.
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

// copy returns a copy of s without its map, for reading.
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

// counts returns the counts of a key. Refused requests are part of all requests, so refused.AtLeast
// is a lower bound of all too.
func (k *known) counts(hash uint64) (refused, all Count) {
	refused, all = k.refused.count(hash), k.all.count(hash)
	all.Error = min(all.Error, all.N-refused.AtLeast())
	return refused, all
}

// totals returns how many requests were in the window.
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
