package leasestore

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/limiter"
)

// A plan says how the counters of a quota are decided on.
type plan struct {
	planName
	quota    *limiter.Quota
	exact    bool // the rule is not leased, or its limit cannot be
	salt     uint64
	capacity int64
	room     int64 // units that all processes together may hold
	chunk    int64 // units to hold of a key that is seldom asked for
	windows  bool  // it has some: it is no bucket
}

// A planName is what distinguishes plans.
type planName struct {
	rule, tier string
	limit      limiter.Limit
	settles    bool
	hasFamily  bool
	inFlight   bool
}

// isOf reports whether p and other have the same counters and limit. Rules that are read again
// make new quotas.
func (p *plan) isOf(other *plan) bool { return p == other || p.planName == other.planName }

// plans holds a plan for each quota.
type plans struct {
	seed    maphash.Seed
	options *Options
	known   sync.Map // *limiter.Quota -> *plan
	count   atomic.Int64
}

const (
	// mostQuotas bounds how many quotas are known.
	mostQuotas = 4096

	// tight is how few units ahead are not worth it.
	tight = 2

	// mostChunk is how many units are held of a key that is seldom asked for.
	mostChunk = 20
)

// of returns q's plan. It is on the hot path.
func (ps *plans) of(q *limiter.Quota) *plan {
	if p, ok := ps.known.Load(q); ok {
		return p.(*plan)
	}
	if ps.count.Add(1) > mostQuotas {
		ps.known.Clear()
		ps.count.Store(1)
	}
	p, _ := ps.known.LoadOrStore(q, ps.make(q))
	return p.(*plan)
}

func (ps *plans) make(q *limiter.Quota) *plan {
	p := &plan{
		planName: planName{q.Rule(), q.Tier(), q.Limit(), q.Settles, q.Family() != nil, q.InFlight()},
		quota:    q, capacity: q.Capacity(),
		windows: q.Algorithm() != limiter.TokenBucket,
		salt:    maphash.String(ps.seed, q.Rule()+"\x00"+q.Tier()),
	}
	isListed := ps.options.Rules == nil || slices.Contains(ps.options.Rules, q.Rule())
	a := q.Algorithm()
	if !isListed || q.InFlight() || q.Family() != nil || a == limiter.LeakyBucket || a == limiter.SlidingLog {
		p.exact = true
		return p
	}
	p.room = p.capacity / 100 * int64(ps.options.Ahead)
	p.room += p.capacity % 100 * int64(ps.options.Ahead) / 100
	p.chunk = min(mostChunk, max(1, p.room/3))
	p.exact = p.room < tight
	return p
}

// sameWindow reports whether two of Redis's times are in the same window of p.
func (p *plan) sameWindow(a, b redisTime) bool {
	start, end := p.quota.WindowAt(int64(a))
	return start <= int64(b) && int64(b) < end
}
