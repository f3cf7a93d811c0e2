package redisstore

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
	stores "github.com/weirgo/weir/limiter/store"
)

// A denyCache remembers for a moment the states of keys that Redis refused. While a client goes
// on, this process refuses it and does not ask Redis.
//
// The cache is exact: since then, others can only have used more, so an event that does not fit
// the state of then, advanced to now, does not fit. It cannot see refunds and resets by other
// processes, so it remembers for memorySpan only.
type denyCache struct {
	seed    maphash.Seed
	clock   func() time.Duration // monotonic
	size    atomic.Int64         // keys
	changes atomic.Uint64        // units given back, and resets
	shards  [64]denyShard
}

// An asking is when Redis was asked: the time, and the number of changes before it.
type asking struct {
	at      time.Duration
	changes uint64
}

func (m *denyCache) asking() asking {
	if m == nil {
		return asking{}
	}
	return asking{m.clock(), m.changes.Load()}
}

const (
	memorySpan    = time.Second // of slots, less: while somebody waits, the process asks for them again ([slots.ask])
	memoryOfShard = 256         // keys; 16,384 in all, of some 250 bytes each
)

type denyShard struct {
	mu      sync.Mutex
	known   map[uint64]denyEntry // by digest of key, rule and tier
	changed uint64               // by which of the changes, last
}

// A denyEntry is a state at Redis's time now. On our clock, that was between asked and heard. A
// log is too long to keep, and so is a state of another limit: then the entry is one, the decision on an event of
// cost 1.
type denyEntry struct {
	isOne             bool
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

// recall returns the entry of a charge's key, if there is one that answers the charge.
func (m *denyCache) recall(c *limiter.Charge, now time.Duration) (denyEntry, bool) {
	shard, key := m.find(c)
	shard.mu.Lock()
	s, ok := shard.known[key]
	shard.mu.Unlock()
	return s, ok && s.quota == c.Quota && now-s.heard < memorySpan && s.answers(c, now)
}

// answers reports whether s can decide on c. An entry of one decides on a cost of 1 without a Within, until
// its oldest event no longer counts.
func (s *denyEntry) answers(c *limiter.Charge, now time.Duration) bool {
	if !s.isOne {
		return true
	}
	return c.Cost == 1 && c.Within == 0 && (s.one.NextAfter == 0 || now-s.asked < s.one.NextAfter)
}

// decide returns the decision on c, which s answers. A charge that fits is described as a look.
func (s *denyEntry) decide(c *limiter.Charge, now time.Duration) limiter.Decision {
	if s.isOne {
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
	_, allowed := stores.Take(c, state, s.latest(now))
	if allowed {
		cost = 0 // a look
	}
	// By the earliest time, so that a client that waits as long as this says is not early.
	return stores.Describe(c, state, s.earliest(now), cost, allowed)
}

// ofOne returns the decision on an event of cost 1 for the state that d describes.
func ofOne(d limiter.Decision) limiter.Decision {
	d.Allowed, d.RetryAfter = d.Remaining > 0, 0
	if !d.Allowed {
		d.RetryAfter = d.NextAfter
	}
	return d
}

// isNewer reports whether s is newer than other. Redis's clock decides, unless other was asked
// for when s was known: Redis's clock has then stepped back.
func (s *denyEntry) isNewer(other *denyEntry) bool {
	return s.now > other.now && other.asked <= s.heard
}

// latest and earliest are bounds of Redis's time now.
func (s *denyEntry) latest(now time.Duration) int64   { return s.now + (now - s.asked).Microseconds() }
func (s *denyEntry) earliest(now time.Duration) int64 { return s.now + (now - s.heard).Microseconds() }

// decide fills in the decisions and returns true if the cache refuses the charges.
func (m *denyCache) decide(charges []limiter.Charge) bool {
	if m == nil || m.size.Load() == 0 {
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
		c.Decision = s.decide(c, now)
		c.Decision.Receipt.By = limiter.ByMemory // package failover takes it for no sign of life
		refused = refused || !c.Decision.Allowed && !c.Optional
	}
	return refused
}

// learn remembers the states of a call that was refused, with its decisions. If it was
// taken, its states replace entries of the same keys.
func (m *denyCache) learn(c *call, taken bool) {
	if m == nil || taken && m.size.Load() == 0 {
		return
	}
	heard := m.clock()
	for i := range c.charges {
		charge := &c.charges[i]
		state := c.reply.state(i, charge.Quota)
		s := denyEntry{
			quota: charge.Quota, last: state.Last, level: state.Level, prev: state.Prev,
			now: c.reply.now, asked: c.asked.at, heard: heard,
		}
		if s.isOne = isLog(charge.Quota) || c.reply.isOther(i); s.isOne {
			s.one = ofOne(charge.Decision)
		}
		shard, key := m.find(charge)
		shard.mu.Lock()
		before := len(shard.known)
		known, ok := shard.known[key]
		switch {
		case ok && known.isNewer(&s):
		case c.asked.changes < shard.changed: // s may be of before the change, and known of before s
			delete(shard.known, key)
		case ok || !taken:
			shard.put(key, s)
		}
		m.size.Add(int64(len(shard.known) - before))
		shard.mu.Unlock()
	}
}

// put adds an entry, and removes another if the shard is full.
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

// invalidate removes the entries of keys that this process settles or resets. Answers of Redis
// that are still on their way are not remembered.
func (m *denyCache) invalidate(charges []limiter.Charge) {
	if m == nil {
		return
	}
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
