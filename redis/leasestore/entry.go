package leasestore

import (
	"math"
	"sync"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// The two clocks, in microseconds. They differ, and each can be compared with itself only.
type (
	redisTime int64 // since 1970, by Redis
	localTime int64 // since the Store was made, by the monotonic clock of this process; never 0
)

func (t localTime) add(d time.Duration) localTime { return t + localTime(d.Microseconds()) }
func (t localTime) sub(u localTime) time.Duration { return time.Duration(t-u) * time.Microsecond }

// An entry is what this process knows of one counter.
type entry struct {
	hash      uint64
	tag       keyfunc.Digest
	plan      *plan
	listed    bool // in the shard's list of those to refill
	refilling bool // Redis is being asked about it

	answer answer
	hand   hand
	back   int64 // units to return, from leases that ended no later than the hand's
	demand demand
}

// expire takes units out of hand: those whose lease has ended, or all of them. They are returned, unless
// their lease ended so long ago that Redis no longer counts them as held.
func (e *entry) expire(now localTime, all bool) {
	if e.hand.units > 0 && (all || now >= e.hand.until) {
		e.back += e.hand.units
		e.hand.units = 0
	}
	if e.back > 0 && now >= e.hand.until.add(grace) {
		e.back = 0
	}
}

// A hand is units that this process may spend.
type hand struct {
	units int64
	until localTime // when their lease ends
	since redisTime // when the last of them were granted
}

// A demand is how much requests ask of a key.
type demand struct {
	touched localTime // by the last event
	events  uint8     // since the key became known, up to 2
	units   int64     // since counted
	counted localTime
	rate    float64 // units in a second
}

// touch counts an event.
func (d *demand) touch(p *plan, cost int64, now localTime) {
	d.touched = now
	d.events = min(d.events, 1) + 1
	d.units = min(d.units+min(cost, p.capacity), p.capacity)
}

// measure updates the rate: halfway to a higher one at once, and slowly to a lower one.
func (d *demand) measure(now localTime) {
	passed := max(now.sub(d.counted), tick/2).Seconds()
	rate := float64(d.units) / passed
	weight := 0.5
	if rate < d.rate {
		weight = min(1, passed/0.2)
	}
	d.rate += (rate - d.rate) * weight
	d.units, d.counted = 0, now
}

// ahead returns how many units are to be held, so that requests need not wait for a refill.
func (d *demand) ahead(p *plan) int64 {
	return max(1, min(int64(math.Ceil(d.rate*horizon.Seconds())), p.room))
}

// isIdle reports whether nobody has asked for the key for so long that all units are returned.
func (d *demand) isIdle(now localTime) bool { return now.sub(d.touched) > life/2 }

// An answer is a counter's state at Redis's time now, and what Redis has charged for this process since.
// heard is when it arrived, or 0 if nothing is known.
type answer struct {
	last, level, prev int64
	now               redisTime
	heard             localTime
}

func (a *answer) state() limiter.State {
	return limiter.State{Last: a.last, Level: a.level, Prev: a.prev}
}

// earliest returns a lower bound of Redis's time.
func (a *answer) earliest(now localTime) redisTime { return a.now + redisTime(max(0, now-a.heard)) }

// count adds units that Redis charges for this process.
func (a *answer) count(p *plan, units int64, now localTime) {
	s := p.quota.Settle(a.state(), int64(a.earliest(now)), limiter.Settlement{Actual: units}) // which needs no room
	a.last, a.level, a.prev = s.Last, s.Level, s.Prev
}

// free returns how many units of the limit are free.
func (a *answer) free(p *plan, now localTime) int64 {
	return p.quota.Describe(a.state(), int64(a.earliest(now)), 0, true).Remaining
}

// A table holds entries, in shards.
type table struct {
	shards [shardCount]shard
	most   int // entries in a shard
}

const shardCount = 64

type shard struct {
	mu      sync.Mutex
	entries map[uint64]*entry // by hash
	listed  []*entry          // to refill

	local, asked uint64 // decisions taken here, and those that asked Redis
	crowded      uint64 // refills that got no unit because other processes held all of Ahead
	_            [64]byte
}

func newTable(maxKeys int) *table {
	t := &table{most: (maxKeys + shardCount - 1) / shardCount}
	for i := range t.shards {
		t.shards[i].entries = map[uint64]*entry{}
	}
	return t
}

// lock locks the shard of a hash, for the caller to unlock, and returns it with the hash's entry, or nil.
func (t *table) lock(hash uint64) (*shard, *entry) {
	sh := &t.shards[hash>>58]
	sh.mu.Lock()
	return sh, sh.entries[hash]
}

// keys returns how many entries there are.
func (t *table) keys() (n int) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		n += len(sh.entries)
		sh.mu.Unlock()
	}
	return n
}

// add makes an entry. If the shard is full it replaces another entry, or returns nil if none
// can be replaced.
func (sh *shard) add(hash uint64, most int) *entry {
	if len(sh.entries) >= most && !sh.evict() {
		return nil
	}
	e := &entry{hash: hash}
	sh.entries[hash] = e
	return e
}

// inReach is how many entries eviction chooses from.
const inReach = 16

// evict looks at some entries without units, and removes the least recently used.
func (sh *shard) evict() bool {
	var oldest *entry
	seen := 0
	for _, e := range sh.entries { // from a random one
		isFree := !e.refilling && e.hand.units == 0 && e.back == 0
		if isFree && (oldest == nil || e.demand.touched < oldest.demand.touched) {
			oldest = e
		}
		if seen++; seen == inReach {
			break
		}
	}
	if oldest == nil {
		return false
	}
	sh.remove(oldest)
	return true
}

func (sh *shard) remove(e *entry) {
	delete(sh.entries, e.hash)
	e.listed = false // though the list may have it
}
