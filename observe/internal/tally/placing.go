package tally

import (
	"slices"
	"sync"

	"github.com/weirgo/weir/middleware"
)

// placing knows limiters, of which it tells what is in progress.
type placing struct {
	mu     sync.Mutex
	limits []*middleware.RateLimit
}

// follow adds a limiter, once.
func (p *placing) follow(l *middleware.RateLimit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.limits, l) {
		p.limits = append(p.limits, l)
	}
}

// inProgress is that of all limiters, of so many rules and tiers at most. Rules of one name in
// several limiters are told together, with the Rule of the first.
func (p *placing) inProgress(most int) (all []middleware.InProgress) {
	p.mu.Lock()
	limits := slices.Clip(p.limits)
	p.mu.Unlock()
	type name struct{ rule, tier string }
	at := map[name]int{}
	for _, l := range limits {
		for _, of := range l.InProgress() {
			n := name{of.Rule.Name, of.Rule.Tier}
			i, known := at[n]
			switch {
			case known:
				all[i].Requests += of.Requests
				all[i].Waiting += of.Waiting
			case len(all) < most:
				at[n] = len(all)
				all = append(all, of)
			}
		}
	}
	return all
}
