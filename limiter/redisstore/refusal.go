package redisstore

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// refusals remembers, for a moment, what Redis said about keys that it refused, so that
// who hammers one is refused in this process and does not reach Redis.
//
// It is exact: others can only have used up more since, so what does not fit the state of
// then, as it would be now, does not fit. Units that another process gives back or resets
// are what it misses, and that is why it remembers for memorySpan only.
type refusals struct {
	seed    maphash.Seed
	clock   func() time.Duration // monotonic
	size    atomic.Int64         // keys
	changes atomic.Uint64        // units given back, and resets
	doubted atomic.Int64         // when Redis last gave no answer, on the clock
	shards  [64]refusalShard
}

// An asking is when Redis was asked: at what time, and after how many changes.
type asking struct {
	at      time.Duration
	changes uint64
}

func (m *refusals) asking() asking { return asking{m.clock(), m.changes.Load()} }

const (
	memorySpan    = time.Second
	memoryOfShard = 256 // keys; 16,384 in all, of some 150 bytes each
)

type refusalShard struct {
	mu      sync.Mutex
	known   map[uint64]sighting // by digest of key, rule and tier
	changed uint64              // by which of the changes, last
}

// A sighting is a state that was seen at Redis's time now. When that was on our clock is
// between asked and heard.
type sighting struct {
	record
	quota        *limiter.Quota
	cost         int64 // that the record is about
	now          int64
	asked, heard time.Duration
}

func newRefusals() *refusals {
	start := time.Now()
	return &refusals{
		seed:  maphash.MakeSeed(),
		clock: func() time.Duration { return time.Since(start) },
	}
}

func (m *refusals) find(c *limiter.Charge) (*refusalShard, uint64) {
	digest := maphash.String(m.seed, c.Key)
	for _, name := range [2]string{c.Quota.Rule(), c.Quota.Tier()} {
		digest = bits.RotateLeft64(digest, 1) ^ maphash.String(m.seed, name)
	}
	return &m.shards[digest%uint64(len(m.shards))], digest
}

// recall is what is remembered of a charge's key.
func (m *refusals) recall(c *limiter.Charge, now time.Duration) (sighting, bool) {
	shard, key := m.find(c)
	shard.mu.Lock()
	s, ok := shard.known[key]
	shard.mu.Unlock()
	return s, ok && s.quota == c.Quota && now-s.heard < memorySpan && int64(s.heard) > m.doubted.Load() && s.answers(c, now)
}

// doubt is for when Redis gives no answer. What was heard before is not used any more,
// as it would pass for a sign of life, which package failover is waiting for.
func (m *refusals) doubt() { m.doubted.Store(int64(m.clock())) }

// answers tells whether s says enough about c. Of a log's times three are known, which
// does for a cost of one until the oldest no longer counts.
func (s *sighting) answers(c *limiter.Charge, now time.Duration) bool {
	if !isLog(c.Quota) {
		return true
	}
	return c.Cost == 1 && s.cost == 1 && s.latest(now) < s.oldest+c.Quota.Window().Microseconds()
}

// latest and earliest are what Redis's clock may say now.
func (s *sighting) latest(now time.Duration) int64   { return s.now + (now - s.asked).Microseconds() }
func (s *sighting) earliest(now time.Duration) int64 { return s.now + (now - s.heard).Microseconds() }

// decide fills in the decisions and returns true if the charges are refused by what is
// remembered of them. A charge that fits is described as it was last seen.
func (m *refusals) decide(charges []limiter.Charge, decisions []limiter.Decision) bool {
	if m.size.Load() == 0 {
		return false
	}
	now := m.clock()
	refused := false
	for i := range charges {
		c := &charges[i]
		s, ok := m.recall(c, now)
		if !ok {
			return false
		}
		state := s.state(c.Quota, s.cost)
		cost := c.Cost
		_, allowed := c.Quota.Take(state, s.latest(now), cost)
		if allowed {
			cost = 0 // a look
		}
		refused = refused || !allowed
		// By the earliest time, so that who waits as long as this says is not early.
		decisions[i] = c.Quota.Describe(state, s.earliest(now), cost, allowed)
	}
	return refused
}

// note remembers the answer to a group that was refused, unless it is of before a change.
func (m *refusals) note(charges []limiter.Charge, a answer, asked asking) {
	heard := m.clock()
	records := a.records
	for i := range charges {
		c := &charges[i]
		s := sighting{quota: c.Quota, cost: c.Cost, now: a.now, asked: asked.at, heard: heard}
		s.record, records = next(records, c.Quota)
		shard, key := m.find(c)
		shard.mu.Lock()
		if asked.changes < shard.changed {
			shard.mu.Unlock()
			continue
		}
		if shard.known == nil {
			shard.known = make(map[uint64]sighting)
		}
		before := len(shard.known)
		if before >= memoryOfShard {
			for other := range shard.known { // any one
				delete(shard.known, other)
				break
			}
		}
		shard.known[key] = s
		m.size.Add(int64(len(shard.known) - before))
		shard.mu.Unlock()
	}
}

// forget is for keys of which this process has taken since they were seen.
func (m *refusals) forget(charges []limiter.Charge) {
	if m.size.Load() > 0 {
		m.drop(charges, 0)
	}
}

// revoke is for keys that this process has given units back to, or reset. What Redis said
// of them before, and is still on its way, is not to be noted.
func (m *refusals) revoke(charges []limiter.Charge) { m.drop(charges, m.changes.Add(1)) }

func (m *refusals) drop(charges []limiter.Charge, change uint64) {
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
