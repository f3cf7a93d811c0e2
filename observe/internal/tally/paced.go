package tally

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/pace"
)

// Paced counts attempts to call others, by the rule that paces them. To count takes no lock and
// no memory, but for the first attempt of a rule.
type Paced struct {
	most  int
	rules sync.Map // by name, *PacedRule

	mu         sync.Mutex
	told       int // rules
	transports []*pace.Transport
}

// NewPaced returns a Paced that tells apart so many rules at most. All others are counted as
// one, Other.
func NewPaced(most int) *Paced { return &Paced{most: most} }

// A PacedRule is what was counted of one rule.
type PacedRule struct {
	Rule string // empty: of requests that no rule is for

	outcomes           [16]atomic.Uint64 // by pace.Outcome
	retries, cooldowns atomic.Uint64
}

// Count is how often an outcome was.
func (r *PacedRule) Count(o pace.Outcome) uint64 { return r.outcomes[o].Load() }

// Retries is how often a request was sent again.
func (r *PacedRule) Retries() uint64 { return r.retries.Load() }

// Cooldowns is how often an answer began one, or made it longer.
func (r *PacedRule) Cooldowns() uint64 { return r.cooldowns.Load() }

// Observe counts an attempt, and returns the rule that it was counted under.
func (p *Paced) Observe(o *pace.Observation) *PacedRule {
	r := p.of(o.Rule)
	if int(o.Outcome) < len(r.outcomes) {
		r.outcomes[o.Outcome].Add(1)
	}
	if o.Retried {
		r.retries.Add(1)
	}
	if o.Cooldown > 0 {
		r.cooldowns.Add(1)
	}
	return r
}

func (p *Paced) of(rule string) *PacedRule {
	if r, ok := p.rules.Load(rule); ok {
		return r.(*PacedRule)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told >= p.most {
		rule = Other
	}
	r, known := p.rules.LoadOrStore(rule, &PacedRule{Rule: rule})
	if !known {
		p.told++
	}
	return r.(*PacedRule)
}

// Rules are those that were counted, by name.
func (p *Paced) Rules() (rules []*PacedRule) {
	p.rules.Range(func(_, r any) bool {
		rules = append(rules, r.(*PacedRule))
		return true
	})
	slices.SortFunc(rules, func(a, b *PacedRule) int { return cmp.Compare(a.Rule, b.Rule) })
	return rules
}

// Follow adds what these can tell of their rules.
func (p *Paced) Follow(transports ...*pace.Transport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.transports = append(p.transports, transports...)
}

// Stats are those of all transports that are followed, by rule: of rules of one name together.
func (p *Paced) Stats() (all []pace.Stats) {
	p.mu.Lock()
	followed := slices.Clip(p.transports)
	p.mu.Unlock()
	for _, t := range followed {
		for _, s := range t.Stats() {
			i := slices.IndexFunc(all, func(known pace.Stats) bool { return known.Rule == s.Rule })
			if i < 0 {
				all = append(all, s)
				continue
			}
			sum := &all[i]
			sum.Waiting += s.Waiting
			sum.InFlight += s.InFlight
			sum.Keys = max(sum.Keys, s.Keys) // which the transports share
			if s.Until.After(sum.Until) {
				sum.Until = s.Until
			}
		}
	}
	return all
}

// WaitBounds are the buckets of how long requests waited before they were sent, in seconds.
var WaitBounds = []float64{1e-3, 10e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30, 60, 300, 3600}
