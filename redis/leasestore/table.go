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
	settling settling
	fresh    bool // said has all that this process counted in Redis

	said                answer // what Redis said last, and what it counted for this process since
	stock, until, since int64  // units in hand until then, the last of them granted at Redis's time since
	back                int64  // units to return, granted by then too
	touched             int64  // when it was last asked for; 0: the cell is free

	// The demand: units asked for since counted, and in a second.
	recent, counted int64
	rate            float64
}

// settling says whether Redis is being asked about an entry.
type settling uint8

const (
	idle    settling = iota
	busy             // Redis is asked
	crossed          // an exact decision was taken meanwhile, which the answer may have or not
)

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

// count adds units that Redis charged for this process to its last answer. Refunded units are
// still on their way to Redis, so they make the answer out of date instead. If Redis is being
// asked at the moment, its answer may include the units or not.
func (e *entry) count(p *plan, units, now int64) {
	if e.settling == busy {
		e.settling = crossed
	}
	if units < 0 {
		e.fresh = false
		return
	}
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
	mu     sync.Mutex
	index  map[uint64]uint32 // of cells, by hash
	cells  []entry
	free   []uint32
	listed []uint32 // cells to settle
	hand   int      // where eviction looks next

	local, asked uint64 // decisions taken here, and those that asked Redis
	_            [64]byte
}

func newTable(maxKeys int) *table {
	t := &table{most: (maxKeys + shardCount - 1) / shardCount}
	for i := range t.shards {
		t.shards[i].index = map[uint64]uint32{}
	}
	return t
}

// lock locks the shard of a hash, for the caller to unlock, and returns it with what find returns.
func (t *table) lock(hash uint64) (sh *shard, e *entry, cell uint32) {
	sh = &t.shards[hash>>58]
	sh.mu.Lock()
	e, cell = sh.find(hash)
	return sh, e, cell
}

// keys returns how many entries there are.
func (t *table) keys() (n int) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		n += len(sh.index)
		sh.mu.Unlock()
	}
	return n
}

// find returns the entry with that hash, or nil, and its cell.
func (sh *shard) find(hash uint64) (*entry, uint32) {
	if i, ok := sh.index[hash]; ok {
		return &sh.cells[i], i
	}
	return nil, 0
}

// add makes an entry. If the shard is full it replaces another entry, or returns nil if none
// can be replaced.
func (sh *shard) add(hash uint64, most int) *entry {
	if len(sh.index) >= most && !sh.evict() {
		return nil
	}
	var i uint32
	if n := len(sh.free); n > 0 {
		i, sh.free = sh.free[n-1], sh.free[:n-1]
	} else {
		i = uint32(len(sh.cells))
		sh.cells = append(sh.cells, entry{})
	}
	sh.index[hash] = i
	sh.cells[i] = entry{hash: hash}
	return &sh.cells[i]
}

// inReach is how many entries eviction chooses from.
const inReach = 16

// evict removes, among the entries in reach without units, the one that was asked for longest
// ago.
func (sh *shard) evict() bool {
	oldest, found := int64(0), -1
	for range min(inReach, len(sh.cells)) {
		sh.hand = (sh.hand + 1) % len(sh.cells)
		e := &sh.cells[sh.hand]
		if e.touched == 0 || e.settling != idle || e.stock != 0 || e.back != 0 {
			continue
		}
		if found < 0 || e.touched < oldest {
			oldest, found = e.touched, sh.hand
		}
	}
	if found < 0 {
		return false
	}
	sh.remove(uint32(found))
	return true
}

// remove frees a cell. The list may still have it, so a reader of the list checks.
func (sh *shard) remove(i uint32) {
	delete(sh.index, sh.cells[i].hash)
	sh.cells[i] = entry{}
	sh.free = append(sh.free, i)
}
