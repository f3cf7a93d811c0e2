package leasestore

import (
	"sync"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// An entry is what this process knows of one counter. Times are in microseconds. last and now
// are on Redis's clock. All other times are on the clock of this process, which setting the
// system's clock does not change.
type entry struct {
	hash     uint64
	tag      keyfunc.Digest
	plan     *plan
	sights   uint8 // how often it was asked for, up to 2
	listed   bool  // in the shard's list of those to settle
	settling bool  // Redis is being asked about it

	said                answer // what Redis said last, and what it counted for this process since
	stock, until, since int64  // units in hand until then, the last of them granted at Redis's time since
	back                int64  // units to return, granted by then too
	touched             int64  // when it was last asked for

	// The demand: units asked for since counted, and in a second.
	recent, counted int64
	rate            float64
}

// An answer is a counter's state at Redis's time now. heard is when it arrived, or 0 if nothing
// is known.
type answer struct {
	last, level, prev int64
	now, heard        int64
}

func (e *entry) state() limiter.State {
	return limiter.State{Last: e.said.last, Level: e.said.level, Prev: e.said.prev}
}

// earliest returns a lower bound of Redis's time.
func (e *entry) earliest(now int64) int64 { return e.said.now + max(0, now-e.said.heard) }

// count adds units that Redis charges for this process to its last answer.
func (e *entry) count(p *plan, units, now int64) {
	s := p.quota.Settle(e.state(), e.earliest(now), limiter.Settlement{Actual: units}) // which needs no room
	e.said.last, e.said.level, e.said.prev = s.Last, s.Level, s.Prev
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
	listed  []*entry          // to settle

	local, asked uint64 // decisions taken here, and those that asked Redis
	crowded      uint64 // refills without a unit, for other processes held all of Ahead
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

// evict removes, among some entries without units, the one that was asked for longest ago.
func (sh *shard) evict() bool {
	var oldest *entry
	seen := 0
	for _, e := range sh.entries { // from a random one
		if isFree := !e.settling && e.stock == 0 && e.back == 0; isFree && (oldest == nil || e.touched < oldest.touched) {
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
