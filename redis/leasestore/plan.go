package leasestore

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/limiter"
)

// A plan is how the counters of a quota are decided on.
type plan struct {
	quota    *limiter.Quota // the first that came with this name and limit
	exact    bool           // the rule is not leased, or its limit cannot be
	err      error          // why a rule that Options.Rules names cannot be leased
	number   uint32
	salt     uint64
	capacity int64
	room     int64 // units that all processes together may hold
	chunk    int64 // units to hold of a key that is seldom asked for
	windows  bool  // it has some: it is no bucket
}

// What tells plans apart.
type planName struct {
	rule, tier string
	limit      limiter.Limit
	settles    bool
	hasFamily  bool
	inFlight   bool
}

// plans holds a plan for each name and limit, and finds it by a quota's address.
type plans struct {
	seed    maphash.Seed
	options *Options

	byQuota atomic.Pointer[map[*limiter.Quota]*plan]
	all     atomic.Pointer[[]*plan] // by number
	mu      sync.Mutex
	byName  map[planName]*plan
}

const (
	// mostQuotas bounds how many addresses are known: rules that are read anew make new ones.
	mostQuotas = 4096

	// tight is how few units ahead are not worth it.
	tight = 2

	// mostChunk is how many units are held of a key that is seldom asked for.
	mostChunk = 20
)

func newPlans(o *Options) *plans {
	p := &plans{seed: maphash.MakeSeed(), options: o, byName: map[planName]*plan{}}
	p.byQuota.Store(&map[*limiter.Quota]*plan{})
	p.all.Store(&[]*plan{})
	return p
}

// of is the hot path's: one load and one look-up by address.
func (ps *plans) of(q *limiter.Quota) *plan {
	if p := (*ps.byQuota.Load())[q]; p != nil {
		return p
	}
	return ps.add(q)
}

func (ps *plans) numbered(n uint32) *plan { return (*ps.all.Load())[n] }

func (ps *plans) add(q *limiter.Quota) *plan {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	name := planName{q.Rule(), q.Tier(), q.Limit(), q.Settles, q.Family() != nil, q.InFlight()}
	p := ps.byName[name]
	if p == nil {
		all := *ps.all.Load()
		p = ps.make(q, uint32(len(all)))
		all = append(all[:len(all):len(all)], p)
		ps.all.Store(&all)
		ps.byName[name] = p
	}
	known := *ps.byQuota.Load()
	grown := make(map[*limiter.Quota]*plan, len(known)+1)
	if len(known) < mostQuotas {
		for q, p := range known {
			grown[q] = p
		}
	}
	grown[q] = p
	ps.byQuota.Store(&grown)
	return p
}

func (ps *plans) make(q *limiter.Quota, number uint32) *plan {
	isNamed := slices.Contains(ps.options.Rules, q.Rule())
	p := &plan{
		quota: q, number: number, capacity: q.Capacity(),
		exact:   ps.options.Rules != nil && !isNamed,
		windows: q.Algorithm() != limiter.TokenBucket,
		salt:    maphash.String(ps.seed, q.Rule()+"\x00"+q.Tier()),
	}
	isSmall := q.Limit().Algorithm == limiter.SlidingWindow && q.Algorithm() == limiter.SlidingLog
	if p.exact || q.InFlight() || q.Family() != nil || isSmall {
		p.exact = true
		return p
	}
	if err := check(q.Limit()); err != nil {
		p.exact = true
		if isNamed {
			p.err = fmt.Errorf("%w: rule %q: %w", limiter.ErrCharges, q.Rule(), err)
		}
		return p
	}
	p.room = p.capacity / 100 * int64(ps.options.Ahead)
	p.room += p.capacity % 100 * int64(ps.options.Ahead) / 100
	p.chunk = min(mostChunk, max(1, p.room/3))
	p.exact = p.room < tight
	return p
}

// check returns why a limit cannot be leased, or nil. A limit that is too tight is no error: it is
// decided exactly.
func check(l limiter.Limit) error {
	switch l.Algorithm {
	case limiter.LeakyBucket:
		return fmt.Errorf("leasestore: limit %v cannot be leased: a leaky-bucket's delays come from one queue, in which units taken ahead would leave gaps", l)
	case limiter.SlidingLog:
		return fmt.Errorf("leasestore: limit %v cannot be leased: a sliding-log admits exactly N in any period, and units taken ahead have no time of their own", l)
	}
	return nil
}

// sameWindow reports whether two times of Redis's are in one of p's windows.
func (p *plan) sameWindow(a, b int64) bool {
	start, end := p.quota.WindowAt(a)
	return start <= b && b < end
}
