package leasestore

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/limiter"
)

// A plan is how the counters of a quota are decided on.
type plan struct {
	quota    *limiter.Quota // the first that came with this name and limit
	mode     Mode           // Exact where the limit is too tight for its rule's, or not the only one
	err      error          // why the rule's mode makes no sense for the limit
	number   uint32
	salt     uint64
	capacity int64
	room     int64 // units that all processes together may hold
	chunk    int64 // units to hold of a key that is seldom asked for
	windows  bool  // it has some: it is no bucket
	unit     int64 // what an event adds to a level
	refill   int64 // what a microsecond takes from a bucket's
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

	// mostLevel leaves room for 64 bursts below 2^53, up to which Lua counts exactly.
	mostLevel = 1 << 47

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
	mode, isNamed := ps.options.mode(q.Rule())
	p := &plan{
		quota: q, number: number, capacity: q.Capacity(), mode: mode,
		salt: maphash.String(ps.seed, q.Rule()+"\x00"+q.Tier()),
	}
	if q.InFlight() || q.Family() != nil || q.Limit().Algorithm == limiter.SlidingWindow && q.Algorithm() == limiter.SlidingLog {
		p.mode = Exact
		return p
	}
	err := p.mode.Check(q.Limit())
	if numbers := q.Numbers(0); err == nil && p.mode == Synchronized && q.Algorithm() == limiter.TokenBucket && numbers[0] > mostLevel/numbers[1] {
		err = fmt.Errorf("leasestore: limit %v cannot be %v: what several processes admit at once could not be told apart in a double; round its numbers", q.Limit(), p.mode)
	}
	if err != nil && !isNamed {
		p.mode = Exact
		return p
	}
	if err != nil {
		p.err = fmt.Errorf("%w: rule %q: %w", limiter.ErrCharges, q.Rule(), err)
		return p
	}
	if q.Algorithm() == limiter.TokenBucket {
		numbers := q.Numbers(0)
		p.unit, p.refill = numbers[1], numbers[2]
	} else {
		p.windows, p.unit = true, 1
	}
	p.room = p.capacity / 100 * int64(ps.options.Ahead)
	p.room += p.capacity % 100 * int64(ps.options.Ahead) / 100
	p.chunk = min(mostChunk, max(1, p.room/3))
	if p.room < tight {
		p.mode = Exact
	}
	return p
}

// sameWindow reports whether two times of Redis's are in one of p's windows.
func (p *plan) sameWindow(a, b int64) bool {
	start, end := p.quota.WindowAt(a)
	return start <= b && b < end
}
