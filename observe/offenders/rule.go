package offenders

import "sync"

const (
	steps = 6         // a window has
	panes = steps + 1 // the current one is not complete

	stripes = 1 << stripeBits
	// stripeBits are the upper ones of a hash; the lower ones are a summary's.
	stripeBits = 2
)

// A rule is what is known of one. Its stripes have parts of its requests, and any will do:
// what each of them knows is merged by those who read. A key has one that it goes to if
// nobody else is there, so that the errors of others, which grow with the number of their
// keys, are not its own.
type rule struct {
	stripes [stripes]stripe
}

type stripe struct {
	mu    sync.Mutex
	panes [panes]pane // by step
	_     [64]byte    // a cache line is in one stripe
}

// A pane is one step of the window.
type pane struct {
	step    int64 // 0: none yet
	all     summary
	refused summary
}

func newRule(k int, names bool) *rule {
	const summaries = stripes * panes * 2
	r := &rule{}
	size := indexSize(k)
	counters := make([]counter, summaries*k)
	index := make([]uint16, summaries*size)
	var shown []name
	if names {
		shown = make([]name, summaries*k)
	}
	cut := func() summary {
		s := summary{counters: counters[:k:k], index: index[:size:size]}
		counters, index = counters[k:], index[size:]
		if names {
			s.names, shown = shown[:k:k], shown[k:]
		}
		return s
	}
	for i := range r.stripes {
		for j := range r.stripes[i].panes {
			p := &r.stripes[i].panes[j]
			p.all, p.refused = cut(), cut()
		}
	}
	return r
}

// add counts a key n times, and returns how many its stripe has in this step.
func (r *rule) add(now int64, hash uint64, key string, n uint64, refused bool) uint64 {
	s := r.lock(int(hash >> (64 - stripeBits)))
	total := s.add(now, hash, key, n, refused)
	s.mu.Unlock()
	return total
}

// lock locks a stripe: this one, or if somebody is there the next that is free.
func (r *rule) lock(own int) *stripe {
	for i := range stripes {
		if s := &r.stripes[(own+i)%stripes]; s.mu.TryLock() {
			return s
		}
	}
	s := &r.stripes[own]
	s.mu.Lock()
	return s
}

func (s *stripe) add(now int64, hash uint64, key string, n uint64, refused bool) uint64 {
	p := s.pane(now)
	p.all.add(hash, key, n)
	if refused {
		p.refused.add(hash, key, n)
	}
	return p.all.total
}

// pane is the one for a step, emptied if it has another that is over.
func (s *stripe) pane(step int64) *pane {
	p := &s.panes[step%panes]
	if p.step < step {
		p.step = step
		p.all.clear()
		p.refused.clear()
	}
	return p
}

// over reports whether the pane is of no use any more.
func (p *pane) over(now int64) bool { return p.step == 0 || p.step <= now-panes }
