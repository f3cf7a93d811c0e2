package offenders

import (
	"sync"

	"github.com/weirgo/weir/keyfunc"
)

const (
	steps = 6         // a window has
	panes = steps + 1 // the current one is not complete

	stripes = 1 << stripeBits
	// stripeBits are the upper bits of a hash; a summary uses the lower ones.
	stripeBits = 2
)

// A rule counts the requests of one rule. Its stripes count parts of them, any of which will
// do for a request, and are merged when they are read. A key goes to a stripe of its own if that
// is free, as the errors of a stripe grow with the number of its keys.
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

func newRule(k int, digests keyfunc.Digester) *rule {
	const summaries = stripes * panes * 2
	r := &rule{}
	size := indexSize(k)
	counters := make([]counter, summaries*k)
	index := make([]uint16, summaries*size)
	names := make([]name, summaries*k)
	cut := func() summary {
		s := summary{counters: counters[:k:k], names: names[:k:k], index: index[:size:size], digests: digests}
		counters, names, index = counters[k:], names[k:], index[size:]
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

// add counts a key n times, and returns how many requests its stripe has in this step.
func (r *rule) add(now int64, hash uint64, key string, n uint64, refused bool) uint64 {
	s := r.lock(int(hash >> (64 - stripeBits)))
	total := s.add(now, hash, key, n, refused)
	s.mu.Unlock()
	return total
}

// lock locks a stripe: the key's own, or if that is taken the next that is free.
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

// pane is the one for a step, emptied if it was for an earlier one.
func (s *stripe) pane(step int64) *pane {
	p := &s.panes[step%panes]
	if p.step < step {
		p.step = step
		p.all.clear()
		p.refused.clear()
	}
	return p
}

// over reports whether the pane is not in the window any more.
func (p *pane) over(now int64) bool { return p.step == 0 || p.step <= now-panes }
