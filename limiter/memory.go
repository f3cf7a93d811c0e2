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

// MemoryOptions are the options of [NewMemory]. The zero value has the defaults.
type MemoryOptions struct {
	// MaxKeys is the most keys to remember at once, over all limits: from 1 to 2^31. Each of up to 4096
	// shards rounds its part up to a multiple of three. Zero means a million.
	//
	// Memory grows with the keys: 22 to 34 bytes for each. A key takes some 50 bytes more if its state
	// needs more than a word: an exact limit of at most 10 events, a bucket with [Quota.Settles], a
	// calendar limit, or a limit above some 100,000 per second or a million per minute. Each event in a
	// log takes 16 bytes.
	MaxKeys int

	// MaxBytes is the most memory for keys and their states, at least 1 MiB. Zero means 256 MiB.
	// Overflow counters and events in flight may exceed it.
	MaxBytes int64
}

// Memory is the store inside the process, and the default.
//
// Memory holds a key as a 64-bit digest under a secret seed. Among a million live keys the chance that
// any two share a counter is 3 in 10^8. A key that is back in its initial state is dropped when another
// key needs its place. There is no goroutine, and nothing to close.
//
// At MaxKeys a new key replaces the key that is nearest to its initial state, among some dozen
// candidates. A replaced key begins anew when it returns. Two kinds of keys are never replaced: a key
// that was refused, until half of its limit is free again, and the empty key, under which rules without
// a Key count. If most candidates of the last new keys are being refused, the store is under siege and
// replaces none. New keys then share an overflow counter for each rule and tier, one in each shard, and
// [Decision.Overflow] says so. [Memory.Stats] counts replaced keys and the decisions on overflow
// counters. A few keys are replaced before there are MaxKeys: none up to 80% of MaxKeys, and some 4 in
// 1,000 up to 90%.
//
// Memory stores a state in one of two forms. The state of a bucket, a fixed window or a sliding counter
// is one word: decisions on known keys take no lock, and a refusal writes nothing. The lock of the
// key's shard guards all other states. New keys and batches take that lock too. A Memory for a million
// keys has 64 shards. A shard that grows delays its keys by a millisecond or two. Beyond 4,000
// different limits at a time, the lock guards the states of the further limits too.
//
// At MaxBytes, a new key whose state needs more than a word replaces only keys that are back in their
// initial state. At MaxBytes a log also merges a new event with the previous one and gives both the new
// time. So it never admits more than its limit, but may admit an event later. Stats counts merged
// events too.
//
// Time is the process's monotonic clock, so setting the system's clock has no effect. Windows are
// aligned to the epoch as the clock was when the store was made.
//
// Memory can always decide: it returns only errors that wrap [ErrCharges]. It ignores the context.
type Memory struct {
	start  time.Time
	origin int64 // start in microseconds since 1970

	shards []shard // locked in this order

	overflowed, merged atomic.Uint64

	register sync.Mutex // guards changes of what follows
	tags     atomic.Pointer[tags]
	claimed  map[string]struct{} // see Claim
}

const (
	defaultMaxKeys  = 1_000_000
	maxMaxKeys      = 1 << 31
	defaultMaxBytes = 256 << 20
	minMaxBytes     = 1 << 20
)

// NewMemory returns an empty store.
func NewMemory(o MemoryOptions) (*Memory, error) {
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.MaxKeys < 1 || int64(o.MaxKeys) > maxMaxKeys {
		return nil, fmt.Errorf("limiter: MaxKeys is %d: it must be from 1 to %d, or 0 for %d", o.MaxKeys, int64(maxMaxKeys), defaultMaxKeys)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.MaxBytes < minMaxBytes {
		return nil, fmt.Errorf("limiter: MaxBytes is %d: it must be at least %d, or 0 for %d", o.MaxBytes, minMaxBytes, defaultMaxBytes)
	}
	start := time.Now()
	m := &Memory{
		start:   start,
		origin:  max(0, start.UnixMicro()),
		claimed: map[string]struct{}{},
	}
	m.tags.Store(newTags())
	n, lines := table.Sizes(o.MaxKeys)
	m.shards = make([]shard, n)
	budget := table.NewBudget(o.MaxBytes)
	for i := range m.shards {
		s := &m.shards[i]
		s.memory, s.budget = m, budget
		s.Init(lines, budget, s)
	}
	return m, nil
}

// now is at or after origin, whatever clock the store was made under.
func (m *Memory) now() int64 {
	return m.origin + max(0, time.Since(m.start).Microseconds())
}

// hashOf returns a key's hash. Its lowest bits choose the shard, and no quota's salt has these
// bits, so all rules hold a key in one shard. The key is held under the hash XOR the quota's
// salt.
func hashOf(key string) uint64 { return maphash.String(seed, key) }

// saltOf returns what distinguishes a quota's keys from those of other quotas.
func saltOf(rule, tier string) uint64 {
	return maphash.String(seed, rule+"\x00"+tier) &^ (table.MostShards - 1)
}

func (m *Memory) shardIndex(hash uint64) int { return int(hash) & (len(m.shards) - 1) }

func (m *Memory) shardOf(hash uint64) *shard { return &m.shards[m.shardIndex(hash)] }

// Decide implements [Store]. Its errors wrap [ErrCharges].
func (m *Memory) Decide(_ context.Context, charges []Charge) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	switch n := len(charges); {
	case n == 0:
	case n == 1:
		m.decideOne(charges[0].Quota, charges[0].Key, charges[0].Cost, charges[0].Within, &charges[0].Decision)
	case n > fewCharges:
		m.decideLocked(charges, make([]lockedKey, n))
	default:
		var keys [fewCharges]lockedKey
		m.decideLocked(charges, keys[:n])
	}
	return nil
}

// decideOne decides on one charge.
func (m *Memory) decideOne(q *Quota, key string, cost int64, within time.Duration, d *Decision) {
	b, hash := m.binding(q), hashOf(key)^q.salt
	decided := false
	if b.tag == heldTag {
		decided = m.shardOf(hash).decideHeld(q, hash, cost, within, d)
	} else {
		decided = m.decideWord(q, b, hash, cost, within, d)
	}
	if decided {
		return
	}
	charges, keys := [1]Charge{{Quota: q, Key: key, Cost: cost, Within: within}}, [1]lockedKey{}
	m.decideLocked(charges[:], keys[:])
	*d = charges[0].Decision
}

// A binding says how a store holds a quota's states.
type binding struct {
	tags *tags
	tag  table.Tag
	base int64 // of words
}

// binding returns q's binding in m. The caller has no shard's lock.
func (m *Memory) binding(q *Quota) *binding {
	if b := q.bound.Load(); b != nil && b.tags == m.tags.Load() {
		return b
	}
	m.register.Lock()
	defer m.register.Unlock()
	b := &binding{tag: m.tagOf(q), base: q.base(m.origin)}
	b.tags = m.tags.Load() // retag may have replaced them
	q.bound.Store(b)
	return b
}

// marksAfter protects a refused key from eviction, even if some units are left, until half of
// its units are free again. A cost above the capacity says nothing about the key.
func marksAfter(marks table.Mark, q *Quota, cost int64, d *Decision) table.Mark {
	switch {
	case !d.Allowed && cost <= q.capacity:
		return marks | table.Refusing
	case d.Allowed && 2*d.Remaining >= q.capacity && cost > 0:
		return marks &^ table.Refusing
	}
	return marks
}

// Settle implements [Store]. It settles one key after the other before it returns. Its errors
// wrap [ErrCharges]. If there is no room for a key, the debt goes to the overflow
// counter.
func (m *Memory) Settle(_ context.Context, settlements []Settlement) error {
	if err := CheckSettlements(settlements); err != nil {
		return err
	}
	for i := range settlements {
		if s := &settlements[i]; s.Actual != s.Cost {
			m.settle(s)
		}
	}
	return nil
}

// Reset implements [Store]. Its errors wrap [ErrCharges]. Events in flight keep their
// slots until they end.
func (m *Memory) Reset(_ context.Context, charges []Charge) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	for i := range charges {
		m.reset(charges[i : i+1])
	}
	return nil
}

// Claim implements [Claimer]. It returns an error for a Memory that [NewMemory] did not make.
func (m *Memory) Claim(rule string) error {
	if m == nil || m.shards == nil {
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

// MemoryStats is what [Memory.Stats] returns.
type MemoryStats struct {
	Cells      int    // allocated cells, each for one key
	Bytes      int    // memory of the cells, of states too large for a cell, and of overflow counters
	Evicted    uint64 // keys that were replaced at MaxKeys before their counters expired
	Overflowed uint64 // decisions and debts that used an overflow counter
	Merged     uint64 // events that a sliding log merged with the event before them, at MaxBytes
}

// Stats returns figures about the store. It locks each shard for a moment, one after the other.
func (m *Memory) Stats() MemoryStats {
	stats := MemoryStats{Overflowed: m.overflowed.Load(), Merged: m.merged.Load()}
	for i := range m.shards {
		s := &m.shards[i]
		s.Lock()
		stats.Cells += s.Cells()
		stats.Bytes += s.Bytes() + s.bytes()
		stats.Evicted += s.Evicted
		s.Unlock()
	}
	return stats
}

// Check implements [Checker]. A process that ends loses its slots and its Memory together, so
// Memory can count slots.
func (m *Memory) Check(*Quota) error { return nil }
