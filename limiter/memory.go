package limiter

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter/internal/table"
)

// seed keys the digests of this process. It is not known outside, so clients cannot
// choose keys that collide.
var seed = maphash.MakeSeed()

// MemoryOptions are what [NewMemory] takes. The zero value consists of the defaults.
type MemoryOptions struct {
	// MaxKeys bounds how many keys are remembered at once, over all limits: from 1
	// to 2^31, rounded up to a multiple of three in each of up to 4096 parts. Zero
	// means a million.
	//
	// Memory is taken as keys come, 22 to 34 bytes for each. A window that counts
	// above some 100,000 in a second or a million in a minute takes 80 more, and
	// SlidingLog 8 to 32 more per event, which MaxKeys does not bound.
	MaxKeys int
}

// Memory is the store inside the process, and the default.
//
// A key is held as a 64-bit digest under a secret seed. Among a million live keys
// the chance that any two share a counter is 3 in 10^8. Keys that are back in their
// initial state are forgotten as others need their place; there is no goroutine and
// nothing to close.
//
// At MaxKeys, a new key takes the place of the one nearest to its initial state
// among some dozen in its reach, and that one begins anew when it returns. A key that
// was refused is not forgotten until half of its limit is free again, and the empty key,
// which rules without a Key count under, never is. Where most in reach are being refused,
// the store is under siege, and no other is forgotten either: a new key then shares one
// overflow counter with all others of its rule and tier in that situation, which
// [Decision.Overflow] says; a look at a key that has no counter shows a fresh one even then.
// [Memory.Stats] counts what was forgotten and what was shared. It begins a little before the cap: up to 80% of MaxKeys
// every key has a place of its own, and of the first 90% some 4 in 1,000 take another's.
//
// Keys that are known are decided on without a lock, and a refusal writes nothing. New
// keys take the lock of their part of the store; there are 64 parts at a million keys, and
// one that grows holds its keys up for a millisecond or two. SlidingLog, and windows with
// counts that are too large for a word, always take that lock.
//
// Time is the process's monotonic clock, so setting the system's clock has no
// effect. Windows are aligned to the epoch as it was when the store was made.
//
// Memory always can decide: its errors are those of [CheckCharges], and one for more
// than 32,000 different limits. It does not look at the context.
type Memory struct {
	start  time.Time
	origin int64 // start in microseconds since 1970

	table    *table.Table
	overflow *table.Shard // the overflow counters; locked after any shard of table

	overflowed atomic.Uint64

	register sync.Mutex // guards changes of what follows
	tags     map[stateKind]table.Tag
	quotas   atomic.Pointer[[]*Quota] // by tag, one for each kind of state
	claimed  map[string]struct{}      // see Claim
}

// A stateKind is what reads a state: the limit, and whether a bucket has lows.
type stateKind struct {
	Limit
	lows bool
}

// binding remembers the tag a quota has in a store.
type binding struct {
	memory *Memory
	tag    table.Tag
	window int64 // the index of the one at the store's origin
}

const (
	defaultMaxKeys = 1_000_000
	maxMaxKeys     = 1 << 31
	maxTags        = 32_000
)

// NewMemory returns an empty store.
func NewMemory(o MemoryOptions) (*Memory, error) {
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.MaxKeys < 1 || int64(o.MaxKeys) > maxMaxKeys {
		return nil, fmt.Errorf("limiter: MaxKeys is %d: it must be from 1 to %d, or 0 for %d", o.MaxKeys, int64(maxMaxKeys), defaultMaxKeys)
	}
	start := time.Now()
	m := &Memory{
		start:    start,
		origin:   max(0, start.UnixMicro()),
		table:    table.New(o.MaxKeys),
		overflow: table.NewShard(),
		tags:     map[stateKind]table.Tag{},
		claimed:  map[string]struct{}{},
	}
	m.quotas.Store(&[]*Quota{nil})
	return m, nil
}

// now is at or after origin, whatever clock the store was made under.
func (m *Memory) now() int64 {
	return m.origin + max(0, time.Since(m.start).Microseconds())
}

// digest is what a charge's key is held as.
func digest(q *Quota, key string) uint64 { return hashOf(key) ^ q.salt }

func hashOf(key string) uint64 { return maphash.String(seed, key) }

// Decide implements [Store]. Its errors are those of [CheckCharges].
func (m *Memory) Decide(_ context.Context, charges []Charge, decisions []Decision) error {
	if err := CheckDecide(charges, decisions); err != nil {
		return err
	}
	switch len(charges) {
	case 0:
		return nil
	case 1:
		return m.decideOne(charges[0].Quota, charges[0].Key, charges[0].Cost, &decisions[0])
	default:
		if m.decideKnown(charges, decisions) {
			return nil
		}
		return m.decideLocked(charges, decisions)
	}
}

// decideOne decides on one charge: without a lock if the key is known and others leave its
// word alone. A refusal then writes nothing. The clock is read after the word, here and
// elsewhere: no decision is before one that it builds on.
func (m *Memory) decideOne(q *Quota, key string, cost int64, d *Decision) error {
	b := m.bound(q)
	if b == nil {
		var err error
		if b, err = m.bind(q); err != nil {
			return err
		}
	}
	hash := digest(q, key)
	shard := m.table.Shard(m.table.Index(hash))
	for attempt := 0; attempt < attempts && !q.boxed(); attempt++ {
		place, sight := shard.Seek(hash)
		if sight == table.Busy {
			pause(attempt)
			continue
		}
		if sight == table.Unseen || place.Tag() != b.tag {
			break
		}
		after := q.takeWord(m.now()-m.origin, b, place.State(), cost, d)
		if marksAfter(place.Marks(), q, cost, d) != place.Marks() {
			break
		}
		if after == place.State() || place.Swap(after) {
			return nil
		}
		pause(attempt)
	}
	m.decideOneLocked(shard, hash, q, key, cost, b, d)
	return nil
}

// attempts is how often the paths without a lock try where others are faster, before they
// queue up for the lock.
const attempts = 6

// pause leaves a word to those that were faster: for half a microsecond, and twice as long
// each time. They then decide several times from their own cache, where all would do little
// else than pass the word around. (The compiler keeps the loop, though it is empty.)
func pause(attempt int) {
	for range 1024 << attempt {
	}
}

// marksAfter keeps a key from being forgotten that is refused, though some units may be
// left, until half of them are free again. A cost that is never met says nothing about the
// key.
func marksAfter(marks table.Mark, q *Quota, cost int64, d *Decision) table.Mark {
	switch {
	case !d.Allowed && cost <= q.capacity:
		return marks | table.Refusing
	case d.Allowed && 2*d.Remaining >= q.capacity && cost > 0:
		return marks &^ table.Refusing
	}
	return marks
}

// room makes a cell for a key, if there is any. The key of a rule that does not tell
// keys apart is kept for good: there is one for each rule, and it has to outlast any
// flood of others.
func (m *Memory) room(shard *table.Shard, hash uint64, tag table.Tag, key string) (table.Cell, bool) {
	cell, ok := shard.Room(hash, tag, judge{m})
	if ok && key == "" {
		cell.SetMarks(table.Kept)
	}
	return cell, ok
}

// load reads a cell's word as a state of q, even if it was written under another limit.
func (m *Memory) load(shard *table.Shard, q *Quota, b *binding, written table.Tag, word uint64) State {
	if written == b.tag {
		return m.unpack(shard, q, word)
	}
	before := m.quota(written)
	return q.Convert(before, m.unpack(shard, before, word), shard.Now)
}

func (m *Memory) unpack(shard *table.Shard, q *Quota, word uint64) State {
	if q.boxed() {
		return unbox(shard.Span(word))
	}
	return q.layout.unpack(q, m.origin, shard.Now, word)
}

// save is a state of q as a cell's word, which was another.
func (m *Memory) save(shard *table.Shard, q *Quota, written table.Tag, word uint64, s State) uint64 {
	if written&table.Boxed == 0 {
		word = 0 // it refers to no span
	}
	if q.boxed() {
		return box(shard, word, s)
	}
	shard.FreeSpan(word)
	return q.layout.pack(q, m.origin, s)
}

// Refund implements [Store]. Its errors are those of [CheckCharges]. Keys get theirs
// back one after the other.
func (m *Memory) Refund(_ context.Context, charges []Charge) error {
	return m.change(charges, func(shard *table.Shard, cell table.Cell, c *Charge, b *binding) {
		if c.Cost == 0 {
			return
		}
		written, word := cell.Tag(), cell.Take()
		shard.Now = m.now()
		s := c.Quota.Refund(m.load(shard, c.Quota, b, written, word), shard.Now, c.Cost, c.At)
		d := c.Quota.Describe(s, shard.Now, 0, true)
		cell.SetMarks(marksAfter(cell.Marks(), c.Quota, c.Cost, &d))
		cell.Put(b.tag, m.save(shard, c.Quota, written, word, s))
	})
}

// Owe implements [Store]. Its errors are those of [CheckCharges]. A key for which there is no
// room owes on the overflow counter.
func (m *Memory) Owe(_ context.Context, charges []Charge) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	for i := range charges {
		if _, err := m.binding(charges[i].Quota); err != nil {
			return err // before anything has changed
		}
	}
	for i := range charges {
		c := &charges[i]
		if c.Cost == 0 {
			continue
		}
		b, _ := m.binding(c.Quota)
		hash := digest(c.Quota, c.Key)
		shard := m.table.Shard(m.table.Index(hash))
		shard.Lock()
		if !m.oweIn(shard, hash, c, b) {
			m.overflow.Lock()
			m.oweIn(m.overflow, c.Quota.salt, c, b)
			m.overflow.Unlock()
			m.overflowed.Add(1)
		}
		shard.Unlock()
	}
	return nil
}

// oweIn owes in a locked shard; false means that there is no room for a new key.
func (m *Memory) oweIn(shard *table.Shard, hash uint64, c *Charge, b *binding) bool {
	q := c.Quota
	cell, found := shard.Find(hash)
	written, word := b.tag, uint64(0)
	if !found {
		if cell, found = m.room(shard, hash, b.tag, c.Key); !found {
			return false
		}
	} else {
		written, word = cell.Tag(), cell.Take()
	}
	shard.Now = m.now()
	s := q.Owe(m.load(shard, q, b, written, word), shard.Now, c.Cost)
	cell.Put(b.tag, m.save(shard, q, written, word, s))
	return true
}

// Reset implements [Store]. Its errors are those of [CheckCharges].
func (m *Memory) Reset(_ context.Context, charges []Charge) error {
	return m.change(charges, func(shard *table.Shard, cell table.Cell, _ *Charge, _ *binding) {
		shard.Clear(cell)
	})
}

// change applies f to the cells there are, one after the other.
func (m *Memory) change(charges []Charge, f func(shard *table.Shard, cell table.Cell, c *Charge, b *binding)) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	for i := range charges {
		if _, err := m.binding(charges[i].Quota); err != nil {
			return err // before anything has changed
		}
	}
	for i := range charges {
		c := &charges[i]
		b, _ := m.binding(c.Quota)
		hash := digest(c.Quota, c.Key)
		shard := m.table.Shard(m.table.Index(hash))
		shard.Lock()
		if cell, ok := shard.Find(hash); ok {
			f(shard, cell, c, b)
		}
		shard.Unlock()
	}
	return nil
}

// judge tells the table what a cell is worth.
type judge struct{ *Memory }

func (m judge) Judge(shard *table.Shard, tag table.Tag, word uint64) (worth int64, refusing bool) {
	q := m.quota(tag)
	var used, reset int64
	switch {
	case q.boxed():
		used, reset = q.algorithm.look(q, q.at(m.unpack(shard, q, word), shard.Now))
	case q.algorithm.bursts:
		level := int64(word) - (shard.Now-m.origin)*q.refill
		if level <= 0 {
			return 0, false
		}
		used, reset = q.byUnit.up(level), q.byRefill.up(level)
	default:
		var d Decision
		q.takeWindow(shard.Now, q.byWindow.down(m.origin), word, 0, &d)
		used, reset = q.capacity-d.Remaining, d.ResetAfter.Microseconds()
	}
	if used == 0 {
		return 0, false
	}
	// Keys of one window are idle at the same time; the more used, the more is lost.
	const steps = 1 << 10
	return reset*steps + min(used, q.capacity)*(steps-1)/q.capacity, used >= q.capacity
}

// binding is how q's cells are written here.
func (m *Memory) binding(q *Quota) (*binding, error) {
	if b := m.bound(q); b != nil {
		return b, nil
	}
	return m.bind(q)
}

// bound is that, or nil if q was not here last.
func (m *Memory) bound(q *Quota) *binding {
	if b := q.bound.Load(); b != nil && b.memory == m {
		return b
	}
	return nil
}

func (m *Memory) bind(q *Quota) (*binding, error) {
	m.register.Lock()
	defer m.register.Unlock()
	kind := stateKind{q.limit, q.hasLows()}
	tag, ok := m.tags[kind]
	if !ok {
		quotas := *m.quotas.Load()
		if len(quotas) > maxTags {
			return nil, fmt.Errorf("limiter: rule %q: the store already counts for %d different limits and can take no more", q.rule, maxTags)
		}
		tag = table.Tag(len(quotas))
		if q.boxed() {
			tag |= table.Boxed
		}
		extended := append(quotas[:len(quotas):len(quotas)], q)
		m.quotas.Store(&extended)
		m.tags[kind] = tag
	}
	b := &binding{memory: m, tag: tag}
	if q.window > 0 {
		b.window = m.origin / q.window
	}
	q.bound.Store(b)
	return b, nil
}

// quota is one with the limit of that tag.
func (m *Memory) quota(tag table.Tag) *Quota { return (*m.quotas.Load())[tag&^table.Boxed] }

// Claim implements [Claimer]. Its other error is about a Memory that NewMemory did not make.
func (m *Memory) Claim(rule string) error {
	if m == nil || m.table == nil {
		return errors.New("limiter: Store is a Memory that NewMemory did not make")
	}
	m.register.Lock()
	defer m.register.Unlock()
	if _, taken := m.claimed[rule]; taken {
		return ErrClaimed
	}
	m.claimed[rule] = struct{}{}
	return nil
}

// MemoryStats is what [Memory.Stats] tells.
type MemoryStats struct {
	Cells      int    // places for keys that memory is taken for
	Bytes      int    // that memory, and what logs and overflow counters take
	Evicted    uint64 // keys that were forgotten at the cap before their time
	Overflowed uint64 // decisions taken on an overflow counter
}

// Stats sums up the store. It locks one shard after the other, each for a moment.
func (m *Memory) Stats() MemoryStats {
	stats := MemoryStats{Overflowed: m.overflowed.Load()}
	for i := range m.table.Shards() {
		shard := m.table.Shard(i)
		shard.Lock()
		stats.Cells += shard.Cells()
		stats.Bytes += shard.Bytes()
		stats.Evicted += shard.Evicted
		shard.Unlock()
	}
	m.overflow.Lock()
	stats.Bytes += m.overflow.Bytes()
	m.overflow.Unlock()
	return stats
}
