package limiter

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter/internal/table"
)

// seed keys the digests of this process. Nobody outside can know it, so nobody can
// choose keys that collide.
var seed = maphash.MakeSeed()

// MemoryConfig is what [NewMemory] takes.
type MemoryConfig struct {
	// MaxKeys bounds how many keys are remembered at once, over all limits: from 1
	// to 2^31, rounded up to a multiple of three in each of up to 64 parts. Zero
	// means a million.
	//
	// Memory is taken as keys come, 22 to 31 bytes for each. A window that counts
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
// among up to 24 in its reach, and that one begins anew when it returns. A key that
// is being refused is never forgotten, nor is the empty key, which rules without a
// Key count under. Where a new key finds only such, it shares one overflow counter
// with all others of its rule and tier in that situation; a look at a key that has
// no counter shows a fresh one even then. [Memory.Stats] counts what was forgotten
// and what was shared. It begins a little before the cap: up to 80% of MaxKeys every
// key has a place of its own, and of the first 90% some 4 in 1,000 take another's.
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

	register sync.Mutex               // guards changes of what follows
	tags     map[Limit]table.Tag      // by limit, since that is what reads a state
	quotas   atomic.Pointer[[]*Quota] // by tag, one for each limit
	claimed  map[string]struct{}      // see Claim
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
func NewMemory(c MemoryConfig) (*Memory, error) {
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	if c.MaxKeys < 1 || int64(c.MaxKeys) > maxMaxKeys {
		return nil, fmt.Errorf("limiter: MaxKeys is %d: it must be from 1 to %d, or 0 for %d", c.MaxKeys, int64(maxMaxKeys), defaultMaxKeys)
	}
	start := time.Now()
	m := &Memory{
		start:    start,
		origin:   max(0, start.UnixMicro()),
		table:    table.New(c.MaxKeys),
		overflow: table.NewShard(),
		tags:     map[Limit]table.Tag{},
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
func digest(q *Quota, key string) uint64 { return maphash.String(seed, key) ^ q.salt }

// Decide implements [Store]. Its errors are those of [CheckCharges].
func (m *Memory) Decide(_ context.Context, charges []Charge, decisions []Decision) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	if err := checkDecisions(charges, decisions); err != nil {
		return err
	}
	switch n := len(charges); {
	case n == 1:
		return m.decideOne(charges[0].Quota, charges[0].Key, charges[0].Cost, &decisions[0])
	case n <= 8:
		var slots [8]slot
		return m.decideAll(charges, decisions, slots[:n])
	default:
		return m.decideAll(charges, decisions, make([]slot, n))
	}
}

// decideOne is the hot path.
func (m *Memory) decideOne(q *Quota, key string, cost int64, d *Decision) error {
	b, err := m.binding(q)
	if err != nil {
		return err
	}
	now, hash := m.now(), digest(q, key)
	shard := m.table.Shard(m.table.Index(hash))
	shard.Lock()
	if !m.decideIn(shard, hash, now, q, key, cost, b, d) {
		// No room for a new key. The shard stays locked, so that nothing changes
		// between that finding and the decision on the overflow counter.
		m.overflow.Lock()
		m.decideIn(m.overflow, q.salt, max(now, shard.Now), q, key, cost, b, d)
		m.overflow.Unlock()
		m.overflowed.Add(1)
	}
	shard.Unlock()
	return nil
}

// decideIn decides on one charge in a locked shard; false means there is no room.
func (m *Memory) decideIn(shard *table.Shard, hash uint64, now int64, q *Quota, key string, cost int64, b *binding, d *Decision) bool {
	now = max(now, shard.Now)
	shard.Now = now
	cell, found := shard.Find(hash)
	var word uint64
	if found {
		var tag table.Tag
		if tag, word = shard.At(cell); tag != b.tag {
			return m.decideState(shard, hash, cell, found, now, q, key, cost, b, d)
		}
	}
	if q.layout.boxed {
		if word == 0 || q.algorithm.mostEvents != 0 { // no box yet, or one with a log
			return m.decideState(shard, hash, cell, found, now, q, key, cost, b, d)
		}
		if m.decideBox(shard.Span(word), now, q, cost, d); !d.Allowed {
			noteRefusal(shard, cell, q, cost)
		} else if cost > 0 {
			shard.Unmark(cell, table.Refusing)
		}
		return true
	}
	after := q.decideWord(now-m.origin, b, word, cost, d)
	switch {
	case after != word:
		if !found {
			if cell, found = m.room(shard, hash, b.tag, key); !found {
				return false
			}
		}
		shard.Set(cell, b.tag, after)
	case !d.Allowed && found:
		noteRefusal(shard, cell, q, cost)
	}
	return true
}

// decideBox is decideIn for a window's counts in a box.
func (m *Memory) decideBox(span []int64, now int64, q *Quota, cost int64, d *Decision) {
	c := counts{q.byWindow.down(span[boxLast]), span[boxLevel], span[boxPrev]}
	if q.decideCounts(now, &c, cost, d) {
		span[boxLast], span[boxLevel], span[boxPrev] = now, c.level, c.prev
	}
}

// decideState is decideIn for states that are not packed, and for a cell that was written
// under another limit.
func (m *Memory) decideState(shard *table.Shard, hash uint64, cell table.Cell, found bool, now int64, q *Quota, key string, cost int64, b *binding, d *Decision) bool {
	var s State
	if found {
		s = m.load(shard, cell, q, b.tag)
	}
	s, allowed := q.takeNow(q.at(s, now), cost)
	switch {
	case allowed && cost > 0:
		if !found {
			if cell, found = m.room(shard, hash, b.tag, key); !found {
				return false
			}
		}
		m.save(shard, cell, q, b.tag, s)
	case !allowed && found:
		noteRefusal(shard, cell, q, cost)
	}
	*d = q.describe(s, 0, cost, allowed)
	return true
}

// noteRefusal keeps a key from being forgotten that is refused although units are left.
// A cost that is never met says nothing about the key.
func noteRefusal(shard *table.Shard, cell table.Cell, q *Quota, cost int64) {
	if cost <= q.capacity {
		shard.Mark(cell, table.Refusing)
	}
}

// A slot is what decideAll knows of one charge.
type slot struct {
	shard   *table.Shard
	key     uint64
	cell    table.Cell
	tag     table.Tag
	found   bool
	allowed bool

	// A state is a word, unless it is boxed, is of another limit, or moves to an overflow
	// counter.
	packed    bool
	binding   *binding
	word      uint64
	wordAfter uint64
	before    State
	after     State
}

// look describes a slot's key before its charge.
func (s *slot) look(m *Memory, q *Quota, now int64, d *Decision) {
	if s.packed {
		q.decideWord(now-m.origin, s.binding, s.word, 0, d)
		return
	}
	*d = q.describe(s.before, 0, 0, true)
}

// decideAll decides on charges together: it locks every shard they touch, always in
// the same order, looks at all, and writes only when all are allowed.
func (m *Memory) decideAll(charges []Charge, decisions []Decision, slots []slot) error {
	shards, err := m.place(charges, slots)
	if err != nil {
		return err
	}
	now := m.lock(shards)
	defer m.unlock(shards)

	all := true
	for i := range slots {
		s, c := &slots[i], &charges[i]
		s.packed = !c.Quota.layout.boxed
		if s.cell, s.found = s.shard.Find(s.key); s.found {
			var tag table.Tag
			tag, s.word = s.shard.At(s.cell)
			s.packed = s.packed && tag == s.tag
		}
		if s.packed {
			s.wordAfter = c.Quota.decideWord(now-m.origin, s.binding, s.word, c.Cost, &decisions[i])
			s.allowed = decisions[i].Allowed
		} else {
			if s.found {
				s.before = m.load(s.shard, s.cell, c.Quota, s.tag)
			}
			s.before = c.Quota.at(s.before, now)
			s.after, s.allowed = c.Quota.takeNow(s.before, c.Cost)
		}
		all = all && s.allowed
	}
	if all {
		var overflow bool
		all, overflow = m.commit(charges, slots, now)
		if overflow {
			defer m.overflow.Unlock() // describe may still read a log there
			m.overflowed.Add(1)
		}
	}
	for i := range slots {
		s, c := &slots[i], &charges[i]
		switch {
		case all:
			if !s.packed { // or it was described as it was decided
				decisions[i] = c.Quota.describe(s.after, 0, c.Cost, true)
			}
		case s.allowed:
			s.look(m, c.Quota, now, &decisions[i])
		default:
			if s.found {
				noteRefusal(s.shard, s.cell, c.Quota, c.Cost)
			}
			if !s.packed {
				decisions[i] = c.Quota.describe(s.before, 0, c.Cost, false)
			}
		}
	}
	return nil
}

// place fills in where each charge's key belongs, and returns the set of shards.
func (m *Memory) place(charges []Charge, slots []slot) (shards uint64, err error) {
	for i := range charges {
		s := &slots[i]
		b, err := m.binding(charges[i].Quota)
		if err != nil {
			return 0, err
		}
		s.binding, s.tag = b, b.tag
		s.key = digest(charges[i].Quota, charges[i].Key)
		index := m.table.Index(s.key)
		s.shard = m.table.Shard(index)
		shards |= 1 << index
	}
	return shards, nil
}

// commit writes what was decided. A new key that finds no room moves to its rule's
// overflow counter, which may refuse: then nothing is written. It reports whether
// it left the overflow shard locked.
func (m *Memory) commit(charges []Charge, slots []slot, now int64) (taken, overflow bool) {
	needsRoom := false
	for i := range slots {
		needsRoom = needsRoom || !slots[i].found && charges[i].Cost > 0
	}
	if !needsRoom {
		for i := range slots {
			m.write(&slots[i], &charges[i])
		}
		return true, false
	}
	for i := range slots {
		if s := &slots[i]; s.found {
			s.shard.Mark(s.cell, table.Pinned)
		}
	}
	taken = true
	for i := range slots {
		s, c := &slots[i], &charges[i]
		if s.found || c.Cost == 0 {
			continue
		}
		if s.cell, s.found = m.room(s.shard, s.key, s.tag, c.Key); !s.found {
			if !overflow {
				m.overflow.Lock()
				m.overflow.Now = max(now, m.overflow.Now)
				overflow = true
			}
			s.shard, s.key, s.packed = m.overflow, c.Quota.salt, false
			s.before = c.Quota.at(State{}, s.shard.Now)
			if s.cell, s.found = s.shard.Find(s.key); s.found {
				s.before = c.Quota.at(m.load(s.shard, s.cell, c.Quota, s.tag), s.shard.Now)
			} else {
				s.cell, s.found = m.room(s.shard, s.key, s.tag, c.Key)
			}
			for j := range i {
				// Another new key of the rule may have come to the same counter before.
				if slots[j].shard == s.shard && slots[j].key == s.key {
					s.before = slots[j].after
				}
			}
			s.after, s.allowed = c.Quota.takeNow(s.before, c.Cost)
			taken = taken && s.allowed
		}
		s.shard.Mark(s.cell, table.Pinned)
	}
	for i := range slots {
		s, c := &slots[i], &charges[i]
		if !s.found {
			continue
		}
		s.cell, _ = s.shard.Find(s.key) // it may have moved as its shard grew
		s.shard.Unmark(s.cell, table.Pinned)
		if taken {
			m.write(s, c)
		}
	}
	return taken, overflow
}

// write stores what is after a charge.
func (m *Memory) write(s *slot, c *Charge) {
	switch {
	case c.Cost == 0:
	case s.packed:
		s.shard.Set(s.cell, s.tag, s.wordAfter)
	default:
		m.save(s.shard, s.cell, c.Quota, s.tag, s.after)
	}
}

// lock locks a set of shards in ascending order and returns the time to decide at,
// which is not before any decision that was taken in one of them.
func (m *Memory) lock(shards uint64) (now int64) {
	now = m.now()
	for rest := shards; rest != 0; rest &= rest - 1 {
		shard := m.table.Shard(bits.TrailingZeros64(rest))
		shard.Lock()
		now = max(now, shard.Now)
	}
	for rest := shards; rest != 0; rest &= rest - 1 {
		m.table.Shard(bits.TrailingZeros64(rest)).Now = now
	}
	return now
}

func (m *Memory) unlock(shards uint64) {
	for rest := shards; rest != 0; rest &= rest - 1 {
		m.table.Shard(bits.TrailingZeros64(rest)).Unlock()
	}
}

// GiveBack implements [Store]. Its errors are those of [CheckCharges].
func (m *Memory) GiveBack(_ context.Context, charges []Charge) error {
	return m.change(charges, func(s *slot, c *Charge, now int64) {
		if c.Cost == 0 {
			return
		}
		state := m.load(s.shard, s.cell, c.Quota, s.tag)
		m.save(s.shard, s.cell, c.Quota, s.tag, c.Quota.GiveBack(state, now, c.Cost))
	})
}

// Reset implements [Store]. Its errors are those of [CheckCharges].
func (m *Memory) Reset(_ context.Context, charges []Charge) error {
	return m.change(charges, func(s *slot, _ *Charge, _ int64) {
		s.shard.Clear(s.cell)
	})
}

// change applies f to the cells there are, all under their shards' locks.
func (m *Memory) change(charges []Charge, f func(s *slot, c *Charge, now int64)) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	slots := make([]slot, len(charges))
	shards, err := m.place(charges, slots)
	if err != nil {
		return err
	}
	now := m.lock(shards)
	defer m.unlock(shards)
	for i := range slots {
		s := &slots[i]
		if s.cell, s.found = s.shard.Find(s.key); s.found {
			f(s, &charges[i], now)
		}
	}
	return nil
}

// room makes a cell for a key, if there is any. The key of a rule that does not tell
// keys apart is kept for good: there is one for each rule, and it has to outlast any
// flood of others.
func (m *Memory) room(shard *table.Shard, hash uint64, tag table.Tag, key string) (table.Cell, bool) {
	cell, ok := shard.Room(hash, tag, judge{m})
	if ok && key == "" {
		shard.Mark(cell, table.Kept)
	}
	return cell, ok
}

// load reads a cell as a state of q, even if it was written under another limit. The
// cell stays as it is: a conversion to a lower limit forgets what was used above it, so
// it is saved only with what is taken or given back, or else two limits that are asked in
// turn would make room for each other.
func (m *Memory) load(shard *table.Shard, cell table.Cell, q *Quota, tag table.Tag) State {
	written, word := shard.At(cell)
	if written == tag {
		return m.unpack(shard, q, word)
	}
	before := m.quota(written)
	return q.convert(before, m.unpack(shard, before, word), shard.Now)
}

func (m *Memory) unpack(shard *table.Shard, q *Quota, word uint64) State {
	if q.layout.boxed {
		return unbox(shard.Span(word))
	}
	return q.layout.unpack(q, m.origin, shard.Now, word)
}

func (m *Memory) save(shard *table.Shard, cell table.Cell, q *Quota, tag table.Tag, s State) {
	written, word := shard.At(cell)
	if written&table.Boxed == 0 {
		word = 0 // it refers to no span
	}
	if q.layout.boxed {
		shard.Set(cell, tag, box(shard, word, s))
		return
	}
	shard.FreeSpan(word)
	shard.Set(cell, tag, q.layout.pack(q, m.origin, s))
}

// judge tells the table what a cell is worth.
type judge struct{ *Memory }

func (m judge) Judge(shard *table.Shard, tag table.Tag, word uint64) (worth int64, refusing bool) {
	q := m.quota(tag)
	var remaining, reset int64
	switch {
	case q.layout.boxed:
		s := q.at(m.unpack(shard, q, word), shard.Now)
		remaining, reset = q.algorithm.look(q, s)
	case q.algorithm.bursts:
		level := int64(word) - (shard.Now-m.origin)*q.refill
		if level <= 0 {
			return 0, false
		}
		remaining, reset = q.capacity-q.byUnit.up(level), q.byRefill.up(level)
	default:
		var d Decision
		q.decideWindow(shard.Now, q.byWindow.down(m.origin), word, 0, &d)
		remaining, reset = d.Remaining, d.ResetAfter.Microseconds()
	}
	if remaining == q.capacity {
		return 0, false
	}
	// Keys of one window are idle at the same time; the more used, the more is lost.
	const steps = 1 << 10
	return reset*steps + (q.capacity-remaining)*(steps-1)/q.capacity, remaining < 1
}

// binding is how q's cells are written here.
func (m *Memory) binding(q *Quota) (*binding, error) {
	if b := q.bound.Load(); b != nil && b.memory == m {
		return b, nil
	}
	return m.bind(q)
}

func (m *Memory) bind(q *Quota) (*binding, error) {
	m.register.Lock()
	defer m.register.Unlock()
	tag, ok := m.tags[q.limit]
	if !ok {
		quotas := *m.quotas.Load()
		if len(quotas) > maxTags {
			return nil, fmt.Errorf("limiter: rule %q: the store already counts for %d different limits and can take no more", q.rule, maxTags)
		}
		tag = table.Tag(len(quotas))
		if q.layout.boxed {
			tag |= table.Boxed
		}
		extended := append(quotas[:len(quotas):len(quotas)], q)
		m.quotas.Store(&extended)
		m.tags[q.limit] = tag
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

// ErrClaimed is what a store's Claim returns for a name that is taken.
var ErrClaimed = errors.New("limiter: another limiter counts under this name in this store")

// Claim notes that a limiter counts under rule in this store. A second one under the
// same name gets ErrClaimed, for [New] and the middleware's New to warn about; any
// other error says that the store cannot be used. Other stores may have the method too.
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
