package redisstore

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A denyCache remembers, for a moment, what Redis said about keys that it refused, so that a
// client that goes on is refused in this process and does not reach Redis.
//
// It is exact: others can only have used up more since, so what does not fit the state of
// then, as it would be now, does not fit. Units that another process gives back or resets
// are what it misses, and that is why it remembers for memorySpan only.
type denyCache struct {
	seed    maphash.Seed
	clock   func() time.Duration // monotonic
	size    atomic.Int64         // keys
	changes atomic.Uint64        // units given back, and resets
	doubted atomic.Int64         // when Redis last did not decide, on the clock
	shards  [64]denyShard
}

// An asking is when Redis was asked: at what time, and after how many changes.
type asking struct {
	at      time.Duration
	changes uint64
}

func (m *denyCache) asking() asking { return asking{m.clock(), m.changes.Load()} }

// spanOf is for how long a refusal is remembered. Places come free in other processes at any time.
func spanOf(q *limiter.Quota) time.Duration {
	if q.InFlight() {
		return slotSpan
	}
	return memorySpan
}

const (
	memorySpan    = time.Second
	slotSpan      = 10 * time.Millisecond
	memoryOfShard = 256 // keys; 16,384 in all, of some 250 bytes each
)

type denyShard struct {
	mu      sync.Mutex
	known   map[uint64]denyEntry // by digest of key, rule and tier
	changed uint64               // by which of the changes, last
}

// A denyEntry is a state that was seen at Redis's time now. When that was on our clock is
// between asked and heard. Of a log, which is too long to keep, it is what that state says
// to an event of cost 1.
type denyEntry struct {
	quota             *limiter.Quota
	last, level, prev int64
	one               limiter.Decision
	now               int64
	asked, heard      time.Duration
}

func newDenyCache() *denyCache {
	start := time.Now()
	return &denyCache{
		seed:  maphash.MakeSeed(),
		clock: func() time.Duration { return time.Since(start) },
	}
}

func (m *denyCache) find(c *limiter.Charge) (*denyShard, uint64) {
	digest := maphash.String(m.seed, c.Key)
	for _, name := range [2]string{c.Quota.Rule(), c.Quota.Tier()} {
		digest = bits.RotateLeft64(digest, 1) ^ maphash.String(m.seed, name)
	}
	return &m.shards[digest%uint64(len(m.shards))], digest
}

// recall is what is remembered of a charge's key.
func (m *denyCache) recall(c *limiter.Charge, now time.Duration) (denyEntry, bool) {
	shard, key := m.find(c)
	shard.mu.Lock()
	s, ok := shard.known[key]
	shard.mu.Unlock()
	return s, ok && s.quota == c.Quota && now-s.heard < spanOf(c.Quota) && int64(s.heard) > m.doubted.Load() && s.answers(c, now)
}

// doubt is for when Redis does not decide. What was heard before is not used any more, as it
// would pass for a sign of life, which package failover is waiting for.
func (m *denyCache) doubt() { m.doubted.Store(int64(m.clock())) }

// answers tells whether s says enough about c. What it says of a log is about a cost of 1,
// and holds until the oldest event no longer counts.
func (s *denyEntry) answers(c *limiter.Charge, now time.Duration) bool {
	if !isLog(c.Quota) {
		return true
	}
	return c.Cost == 1 && (s.level == 0 || now-s.asked < s.one.NextAfter)
}

// decide is what s, which answers c, says to it. A charge that fits is described as it was
// last seen.
func (s *denyEntry) decide(c *limiter.Charge, now time.Duration) limiter.Decision {
	if isLog(c.Quota) {
		d := s.one
		passed := max(0, now-s.heard).Truncate(time.Microsecond)
		if !d.Allowed {
			d.RetryAfter = max(time.Microsecond, d.RetryAfter-passed)
		}
		d.NextAfter = max(0, d.NextAfter-passed)
		d.ResetAfter = max(0, d.ResetAfter-passed)
		d.Receipt.At = s.earliest(now)
		return d
	}
	state := limiter.State{Last: s.last, Level: s.level, Prev: s.prev}
	cost := c.Cost
	_, allowed := c.Quota.Take(state, s.latest(now), cost)
	if allowed {
		cost = 0 // a look
	}
	// By the earliest time, so that a client that waits as long as this says is not early.
	return c.Quota.Describe(state, s.earliest(now), cost, allowed)
}

// ofOne is what the state that d describes says to an event of cost 1.
func ofOne(d limiter.Decision) limiter.Decision {
	d.Allowed, d.RetryAfter = d.Remaining > 0, 0
	if !d.Allowed {
		d.RetryAfter = d.NextAfter
	}
	return d
}

// isNewer tells whether s was seen after other. Redis's clock says so, unless other was
// asked for when s was known: the clock has then stepped back.
func (s *denyEntry) isNewer(other *denyEntry) bool {
	return s.now > other.now && other.asked <= s.heard
}

// latest and earliest are what Redis's clock may say now.
func (s *denyEntry) latest(now time.Duration) int64   { return s.now + (now - s.asked).Microseconds() }
func (s *denyEntry) earliest(now time.Duration) int64 { return s.now + (now - s.heard).Microseconds() }

// decide fills in the decisions and returns true if the charges are refused by what is
// remembered of them.
func (m *denyCache) decide(charges []limiter.Charge, decisions []limiter.Decision) bool {
	if m.size.Load() == 0 {
		return false
	}
	now := m.clock()
	refused := false
	for i := range charges {
		s, ok := m.recall(&charges[i], now)
		if !ok {
			return false
		}
		decisions[i] = s.decide(&charges[i], now)
		refused = refused || !decisions[i].Allowed
	}
	return refused
}

// learn remembers the answer to a group that was refused, and how decisions describe it. The answer
// to a group that was taken replaces what is remembered of its keys.
func (m *denyCache) learn(charges []limiter.Charge, decisions []limiter.Decision, a answer, asked asking, taken bool) {
	if taken && m.size.Load() == 0 {
		return
	}
	heard := m.clock()
	for i := range charges {
		c := &charges[i]
		r := a.record(i, c.Quota)
		s := denyEntry{
			quota: c.Quota, last: r.last, level: r.level, prev: r.prev,
			now: a.now, asked: asked.at, heard: heard,
		}
		if isLog(c.Quota) {
			s.one = ofOne(decisions[i])
		}
		shard, key := m.find(c)
		shard.mu.Lock()
		before := len(shard.known)
		known, ok := shard.known[key]
		switch {
		case ok && known.isNewer(&s):
		case asked.changes < shard.changed: // s may be of before the change, and known of before s
			delete(shard.known, key)
		case ok || !taken:
			shard.put(key, s)
		}
		m.size.Add(int64(len(shard.known) - before))
		shard.mu.Unlock()
	}
}

// put makes room for what was seen if there is none.
func (s *denyShard) put(key uint64, seen denyEntry) {
	if s.known == nil {
		s.known = make(map[uint64]denyEntry)
	}
	if _, ok := s.known[key]; !ok && len(s.known) >= memoryOfShard {
		for other := range s.known { // any one
			delete(s.known, other)
			break
		}
	}
	s.known[key] = seen
}

// invalidate is for keys that this process has given units back to, or reset. What Redis said
// of them before, and is still on its way, is not to be noted.
func (m *denyCache) invalidate(charges []limiter.Charge) {
	change := m.changes.Add(1)
	for i := range charges {
		shard, key := m.find(&charges[i])
		shard.mu.Lock()
		shard.changed = max(shard.changed, change)
		before := len(shard.known)
		delete(shard.known, key)
		m.size.Add(int64(len(shard.known) - before))
		shard.mu.Unlock()
	}
}
