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

func (r *rule) add(now int64, hash uint64, key string, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pane(now)
	p.all.add(hash, key)
	if refused {
		p.refused.add(hash, key)
	}
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
