package offenders

import (
	"sync"

	"github.com/weirgo/weir/keyfunc"
)

const (
	steps = 6         // a window has
	panes = steps + 1 // the current one is not complete
)

// A rule counts the requests of one rule.
type rule struct {
	mu    sync.Mutex
	panes [panes]pane // by step
}

// A pane is one step of the window.
type pane struct {
	step    int64 // 0: none yet
	all     summary
	refused summary
}

func newRule(k int, digests keyfunc.Digester) *rule {
	r := &rule{}
	for i := range r.panes {
		r.panes[i].all, r.panes[i].refused = newSummary(k, digests), newSummary(k, digests)
	}
	return r
}

// keepLatest makes find work.
func (r *rule) keepLatest() {
	for i := range r.panes {
		for _, s := range []*summary{&r.panes[i].all, &r.panes[i].refused} {
			s.seen = make([]sight, s.k)
		}
	}
}

// add counts a request of a key.
func (r *rule) add(now int64, hash uint64, key string, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pane(now)
	p.all.add(hash, key)
	if refused {
		p.refused.add(hash, key)
	}
}

// observe is add, and remembers when the key was refused by the rule, or passed all rules.
func (r *rule) observe(now int64, hash uint64, key string, refused, passed bool, seen sight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pane(now)
	p.all.see(p.all.add(hash, key), seen, passed)
	if refused {
		p.refused.see(p.refused.add(hash, key), seen, true)
	}
}

// find returns when a key last passed, when it was last refused, and its latest class. ok reports that the key has a
// counter.
func (r *rule) find(now int64, hash uint64) (passed, refused uint32, class keyfunc.Class, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for step := max(1, now-steps); step <= now; step++ {
		p := &r.panes[step%panes]
		if p.step != step {
			continue
		}
		if place, counted := p.refused.places[hash]; counted {
			refused, class, ok = max(refused, p.refused.seen[place].seconds()), p.refused.seen[place].class(), true
		}
		if place, counted := p.all.places[hash]; counted {
			passed, class, ok = max(passed, p.all.seen[place].seconds()), p.all.seen[place].class(), true
		}
	}
	return passed, refused, class, ok
}

// hashOf returns the hash of a long key with this digest; 0: there is none.
func (r *rule) hashOf(digest keyfunc.Digest) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.panes {
		for _, s := range []*summary{&r.panes[i].all, &r.panes[i].refused} {
			for place, c := range s.counters {
				if n := &s.names[place]; !n.whole() && n.digest(s.digests) == digest {
					return c.hash
				}
			}
		}
	}
	return 0
}

// pane returns the pane of a step, and clears it if it holds an earlier step.
func (r *rule) pane(step int64) *pane {
	p := &r.panes[step%panes]
	if p.step < step {
		p.step = step
		p.all.clear()
		p.refused.clear()
	}
	return p
}

// over reports whether the pane has left the window.
func (p *pane) over(now int64) bool { return p.step == 0 || p.step <= now-panes }
