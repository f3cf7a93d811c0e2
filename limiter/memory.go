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
	// Memory is taken as keys come, 22 to 34 bytes for each. A limit of at most 10 events
	// that is exact takes 8 more for each of them, a bucket of a quota that [Quota.Settles]
	// 136 more, and a sliding window that counts above some 100,000 in a second or a million in a
	// minute 24. A longer SlidingLog takes 64 more for a key, and 16 to 20
	// for each event in it, of four at least.
	MaxKeys int

	// MaxBytes bounds the memory that the store takes for all of that, from a mebibyte on.
	// Zero means 256 MiB. It leaves out the counters that keys without room share.
	MaxBytes int64
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
// [Decision.Overflow] says, and a look shows that one.
// [Memory.Stats] counts what was forgotten and what was shared. It begins a little before the cap: up to 80% of MaxKeys
// every key has a place of its own, and of the first 90% some 4 in 1,000 take another's.
//
// Keys that are known are decided on without a lock, and a refusal writes nothing. New
// keys take the lock of their part of the store; there are 64 parts at a million keys, and
// one that grows holds its keys up for a millisecond or two. A SlidingLog of more than 10
// events always takes that lock.
//
// At MaxBytes it is the same, but that a new key whose state needs more than a word finds no
// room at all unless others are back in their initial state. A SlidingLog of more than 10 events counts a new event of a key
// that it knows together with the one before, as if both were new: it admits no more for it,
// and it may be later that it admits again. Stats counts those, too.
//
// Time is the process's monotonic clock, so setting the system's clock has no
// effect. Windows are aligned to the epoch as it was when the store was made.
//
// Memory always can decide: its errors are those of [CheckCharges], and one for more than
// 32,000 different limits at a time: those of quotas in use, and those that keys were counted under
// which are not back in their initial state. It does not look at the context.
type Memory struct {
	start  time.Time
	origin int64 // start in microseconds since 1970

	table    *table.Table
	overflow *table.Shard // the overflow counters; locked after any shard of table

	overflowed, merged atomic.Uint64

	places places

	register sync.Mutex // guards changes of what follows
	binds    uint64     // how many there were
	tags     tags
	claimed  map[string]struct{} // see Claim
}

// A binding remembers how a quota's states are held in a store.
type binding struct {
	memory *Memory
	*kind
	section
	of     int    // which one that is
	window int64  // the index of the one at the store's origin
	salt   uint64 // of what its keys are held as, which is one for a family
	since  uint64 // later than what was bound before
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
		start:    start,
		origin:   max(0, start.UnixMicro()),
		table:    table.New(o.MaxKeys, o.MaxBytes),
		overflow: table.NewShard(),
		claimed:  map[string]struct{}{},
	}
	m.tags.init()
	return m, nil
}

// now is at or after origin, whatever clock the store was made under.
func (m *Memory) now() int64 {
	return m.origin + max(0, time.Since(m.start).Microseconds())
}

// digest is what a key is held as.
func (b *binding) digest(key string) uint64 { return hashOf(key) ^ b.salt }

func hashOf(key string) uint64 { return maphash.String(seed, key) }

// Decide implements [Store]. Its errors are those of [CheckCharges].
func (m *Memory) Decide(_ context.Context, charges []Charge, decisions []Decision) error {
	if len(charges) > 1 && charges[0].Quota != nil && charges[0].Quota.family != nil && m.decideFamily(charges, decisions) {
		inUse(charges)
		return nil
	}
	if err := CheckDecide(charges, decisions); err != nil {
		return err
	}
	var err error
	switch {
	case len(charges) == 0:
		return nil
	case len(charges) == 1:
		err = m.decideOne(charges[0].Quota, charges[0].Key, charges[0].Cost, &decisions[0])
	case m.decideKnown(charges, decisions):
	case hasPlaces(charges):
		err = m.beginAll(charges, decisions)
	default:
		err = m.decideLocked(charges, decisions)
	}
	inUse(charges)
	return err
}

// decideOne decides on one charge: without a lock if the key is known and others leave its
// word alone. A refusal then writes nothing. The clock is read after the word, here and
// elsewhere: no decision is before one that it builds on.
func (m *Memory) decideOne(q *Quota, key string, cost int64, d *Decision) error {
	b := m.bound(q)
	if b == nil {
		if q.InFlight() {
			m.begin(q, key, cost, d)
			return nil
		}
		var err error
		if b, err = m.bind(q); err != nil {
			return err
		}
	}
	hash := b.digest(key)
	shard := m.table.Shard(m.table.Index(hash))
	for attempt := 0; attempt < attempts && b.form != inRun; attempt++ {
		place, sight := shard.Seek(hash)
		if sight == table.Busy {
			pause(attempt)
			continue
		}
		if sight == table.Unseen || place.Tag() != b.tag {
			break
		}
		if b.words > 0 {
			if known, ok := m.decideSpan(shard, place, q, cost, b, d); ok {
				return nil
			} else if !known {
				break
			}
			pause(attempt)
			continue
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

// decideSpan is what decideOne does where the state is in a span. It is not ok where others
// were faster, and neither known where the lock is needed.
func (m *Memory) decideSpan(shard *table.Shard, place table.Place, q *Quota, cost int64, b *binding, d *Decision) (known, ok bool) {
	words := b.in(shard.Span(place.State(), b.words))
	now := m.now() - m.origin
	after, verdict := q.peek(now, b, words, cost, d)
	switch {
	case !place.Still():
		return true, false
	case verdict == locked || marksAfter(place.Marks(), q, cost, d) != place.Marks():
		return false, false
	case verdict == stays:
		return true, true
	case !place.Take():
		return true, false
	}
	q.commit(now, b, words, cost, after)
	place.Put(table.Changed(place.State()))
	return true, true
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

// room makes a cell for a key, with a first state, if there is room for both. The key of a rule
// that does not tell keys apart is kept for good: there is one for each rule, and it has to
// outlast any flood of others.
func (m *Memory) room(shard *table.Shard, hash uint64, b *binding, key string) (cell table.Cell, word uint64, ok bool) {
	if word, ok = m.roomForState(shard, b); !ok {
		return cell, 0, false
	}
	if cell, ok = shard.Room(hash, b.tag, judge{m}); !ok {
		if b.tag&table.Boxed != 0 {
			shard.Free(word)
		}
		return cell, 0, false
	}
	if key == "" {
		cell.SetMarks(table.Kept)
	}
	return cell, word, true
}

// hasRoom reports whether room would make a cell. It evicts nothing.
func (m *Memory) hasRoom(shard *table.Shard, hash uint64, b *binding) bool {
	word, ok := m.roomForState(shard, b)
	if !ok {
		return false
	}
	if b.tag&table.Boxed != 0 {
		shard.Free(word)
	}
	return shard.HasRoom(hash, judge{m})
}

// roomForState is newState, for which idle keys make room.
func (m *Memory) roomForState(shard *table.Shard, b *binding) (word uint64, ok bool) {
	if word, ok = b.newState(shard, false); !ok && shard.Sweep(judge{m}) {
		word, ok = b.newState(shard, false)
	}
	return word, ok
}

// newState is the word of a key that was never seen, with the span or run that it refers to.
func (b *binding) newState(shard *table.Shard, must bool) (word uint64, ok bool) {
	switch {
	case b.words > 0:
		return shard.NewSpan(b.words, must)
	case b.form == inRun:
		return newRun(shard, must)
	}
	return 0, true
}

// load reads a cell's word as a state of b's quota q, even if it was written as another kind. A
// log has its place in space if it is large enough and the kind is b's.
func (m *Memory) load(shard *table.Shard, q *Quota, b *binding, written table.Tag, word uint64) State {
	if written == b.tag {
		return m.unpack(shard, b.kind, &b.section, word)
	}
	from, ok := m.writtenAs(written, b)
	if !ok {
		return State{}
	}
	return q.Convert(from.quota, m.unpack(shard, from.kind, &from.section, word), shard.Now)
}

func (m *Memory) unpack(shard *table.Shard, k *kind, s *section, word uint64) State {
	if s.form == inRun {
		return unpackRun(shard.Run(word))
	}
	if k.words == 0 {
		return s.quota.unpackWord(word, m.origin, shard.Now)
	}
	return s.unpack(s.in(shard.Span(word, k.words)), m.origin, shard.Now, nil)
}

// save is a cell's word, with the tag of what it was, after the state of one of b's quotas has
// become s.
func (m *Memory) save(shard *table.Shard, b *binding, written table.Tag, word uint64, s State) uint64 {
	if written != b.tag {
		word = m.convert(shard, b, written, word)
	}
	switch {
	case b.form == inRun:
		word, merged := packRun(shard, word, s, written != b.tag)
		m.merged.Add(uint64(merged))
		return word
	case b.words == 0:
		return b.quota.packWord(m.origin, s)
	}
	b.pack(b.in(shard.Span(word, b.words)), m.origin, s)
	return table.Changed(word)
}

// convert is a cell's word as one of b's kind, in which the other quotas of a family have what
// they had.
func (m *Memory) convert(shard *table.Shard, b *binding, written table.Tag, word uint64) uint64 {
	converted, _ := b.newState(shard, true) // the key is known: it has to be counted on
	for i := range b.sections {
		section := &b.sections[i]
		if other := (binding{memory: m, kind: b.kind, section: *section, of: i}); i != b.of {
			if s := m.load(shard, section.quota, &other, written, word); s.Level > 0 || s.Prev > 0 {
				section.pack(section.in(shard.Span(converted, b.words)), m.origin, s)
			}
		}
	}
	if written&table.Boxed != 0 {
		shard.Free(word)
	}
	return converted
}

// Refund implements [Store]. Its errors are those of [CheckCharges]. Keys get theirs
// back one after the other.
func (m *Memory) Refund(_ context.Context, charges []Charge) error {
	if err := m.check(charges); err != nil {
		return err
	}
	for i := range charges {
		c := &charges[i]
		switch {
		case c.Quota.InFlight():
			m.end(c)
		case c.Cost > 0:
			b, _ := m.binding(c.Quota)
			hash := b.digest(c.Key)
			shard := m.table.Shard(m.table.Index(hash))
			shard.Lock()
			if cell, ok := shard.Find(hash); ok {
				m.change(shard, cell, b, c.Cost, c.At, true)
			}
			shard.Unlock()
		}
	}
	inUse(charges)
	return nil
}

// Owe implements [Store]. Its errors are those of [CheckCharges]. A key for which there is no
// room owes on the overflow counter.
func (m *Memory) Owe(_ context.Context, charges []Charge) error {
	if err := m.check(charges); err != nil {
		return err
	}
	for i := range charges {
		c := &charges[i]
		if c.Quota.InFlight() {
			m.beginAnyway(c)
			continue
		}
		if c.Cost == 0 {
			continue
		}
		b, _ := m.binding(c.Quota)
		hash := b.digest(c.Key)
		shard := m.table.Shard(m.table.Index(hash))
		shard.Lock()
		if !m.oweIn(shard, hash, c, b) {
			m.overflow.Lock()
			m.oweIn(m.overflow, b.salt, c, b)
			m.overflow.Unlock()
			m.overflowed.Add(1)
		}
		shard.Unlock()
	}
	inUse(charges)
	return nil
}

// oweIn owes in a locked shard; false means that there is no room for a new key.
func (m *Memory) oweIn(shard *table.Shard, hash uint64, c *Charge, b *binding) bool {
	cell, found := shard.Find(hash)
	if !found {
		var word uint64
		shard.Now = m.now()
		if cell, word, found = m.room(shard, hash, b, c.Key); !found {
			return false
		}
		cell.Put(b.tag, word)
	}
	m.change(shard, cell, b, c.Cost, 0, false)
	return true
}

// change refunds or owes n units in a locked shard: a refund under the quota that the state was
// written under, a debt as [Quota.OweFrom] says. But a debt of a family that was replaced, or
// that a family replaced, changes no limits of the cell: what it has of others would be lost.
// States of few entries are changed where they are: they would else be made anew.
func (m *Memory) change(shard *table.Shard, cell table.Cell, b *binding, n, at int64, refund bool) {
	written, word := cell.Tag(), cell.Take()
	shard.Now = m.now()
	if written != b.tag {
		from, ok := m.writtenAs(written, b)
		k := m.kind(written)
		replaced := len(k.sections)+len(b.sections) > 2 && b.since < k.latest.Load()
		switch {
		case !ok && (refund || replaced): // nothing was counted, or is any more
			cell.Put(written, word)
			return
		case !refund && !replaced:
			s := State{}
			if ok {
				s = m.unpack(shard, from.kind, &from.section, word)
			}
			q, s := b.quota.OweFrom(from.quota, s, shard.Now, n)
			if q == from.quota {
				b = &from
			}
			cell.Put(b.tag, m.save(shard, b, written, word, s))
			return
		}
		b = &from
	}
	q := b.quota
	var space [mostSlotEntries]Entry
	var s State
	few := b.form == inSlots || b.form == inLows
	switch {
	case !few && refund:
		s = q.Refund(m.load(shard, q, b, written, word), shard.Now, n, at)
	case !few:
		s = q.Owe(m.load(shard, q, b, written, word), shard.Now, n)
	default:
		s = b.unpack(b.in(shard.Span(word, b.words)), m.origin, shard.Now, space[:0])
		switch {
		case b.form == inSlots && refund:
			s = refundLog(q, advanceLog(q, s, shard.Now), min(n, q.capacity), at)
		case b.form == inSlots:
			s = oweLog(q, advanceLog(q, s, shard.Now), min(n, 2*q.capacity))
		case refund:
			s.Log = sink(s.Log, s.Level)
			s = emptyBucket(q, s, min(n, q.capacity), at)
		default:
			s.Log = sink(s.Log, s.Level)
			s = oweBucket(q, s, min(n, 2*q.capacity))
		}
	}
	if refund {
		d := Decision{Allowed: true, Remaining: q.capacity}
		d.Remaining -= q.used(s)
		cell.SetMarks(marksAfter(cell.Marks(), q, n, &d))
	}
	if few {
		b.pack(b.in(shard.Span(word, b.words)), m.origin, s)
		word = table.Changed(word)
	} else {
		word = m.save(shard, b, written, word, s)
	}
	cell.Put(written, word)
}

// writtenAs is how a cell of that tag holds what b's quota counts, if it does.
func (m *Memory) writtenAs(written table.Tag, b *binding) (from binding, ok bool) {
	k := m.kind(written)
	i, ok := k.sectionFor(b.kind, b.of)
	if !ok {
		return binding{}, false
	}
	return binding{memory: m, kind: k, section: k.sections[i], of: i}, true
}

// Reset implements [Store]. Its errors are those of [CheckCharges].
func (m *Memory) Reset(_ context.Context, charges []Charge) error {
	if err := m.check(charges); err != nil {
		return err
	}
	for i := range charges {
		c := &charges[i]
		if c.Quota.InFlight() {
			m.forgetMean(c)
			continue
		}
		b, _ := m.binding(c.Quota)
		hash := b.digest(c.Key)
		shard := m.table.Shard(m.table.Index(hash))
		shard.Lock()
		if cell, ok := shard.Find(hash); ok {
			m.reset(shard, cell, b)
		}
		shard.Unlock()
	}
	inUse(charges)
	return nil
}

// reset makes a key as if it had never been seen. Those of the other quotas of a family stay.
func (m *Memory) reset(shard *table.Shard, cell table.Cell, b *binding) {
	written := cell.Tag()
	from, ok := m.writtenAs(written, b)
	switch {
	case !ok:
	case len(from.sections) == 1:
		shard.Clear(cell)
	default:
		word := cell.Take()
		shard.Now = m.now()
		cell.Put(written, m.save(shard, &from, written, word, from.quota.at(State{}, shard.Now)))
	}
}

// check is CheckCharges, and fails where a quota cannot be bound, before anything has changed.
func (m *Memory) check(charges []Charge) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	for i := range charges {
		if charges[i].Quota.InFlight() {
			continue
		}
		if _, err := m.binding(charges[i].Quota); err != nil {
			return err
		}
	}
	return nil
}

// judge tells the table what a cell is worth.
type judge struct{ *Memory }

func (m judge) Judge(shard *table.Shard, tag table.Tag, word uint64) (worth int64, refusing bool) {
	k := m.kind(tag)
	for i := range k.sections {
		w, r := m.judge(shard, k, &k.sections[i], word)
		worth, refusing = max(worth, w), refusing || r
	}
	return worth, refusing
}

func (m judge) judge(shard *table.Shard, k *kind, s *section, word uint64) (worth int64, refusing bool) {
	q, now := s.quota, shard.Now-m.origin
	var used, reset int64
	switch {
	case s.form == inRun:
		used, reset = q.algorithm.look(q, q.at(unpackRun(shard.Run(word)), shard.Now))
	case q.algorithm.bursts:
		if k.words > 0 {
			word = atomic.LoadUint64(&shard.Span(word, k.words)[s.at])
		}
		level := q.levelOf(word, now)
		used, reset = q.byUnit.up(level), q.byRefill.up(level)
	default:
		var d Decision
		b := binding{memory: m.Memory, section: *s}
		if q.window > 0 {
			b.window = q.windowIndex(m.origin)
		}
		if k.words > 0 {
			q.peek(now, &b, s.in(shard.Span(word, k.words)), 0, &d)
		} else {
			q.takeWord(now, &b, word, 0, &d)
		}
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
	k, of := kindOf(q)
	name := k.name()
	if known, ok := m.tags.names[name]; ok {
		k = known
	} else if err := m.addKind(k, name); err != nil {
		return nil, fmt.Errorf("limiter: rule %q: %w", q.rule, err)
	}
	k.use(q)
	m.binds++
	k.latest.Store(m.binds)
	b := &binding{memory: m, kind: k, section: k.sections[of], of: of, salt: q.salt, since: m.binds}
	if together := q.together(); together != nil {
		b.salt = together[0].salt
	}
	if q.window > 0 {
		b.window = q.windowIndex(m.origin)
	}
	q.bound.Store(b)
	return b, nil
}

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
	Bytes      int    // that memory, and what longer states and overflow counters take
	Evicted    uint64 // keys that were forgotten at the cap before their time
	Overflowed uint64 // decisions taken on an overflow counter, and debts
	Merged     uint64 // events of logs that were counted with the one before, at MaxBytes
}

// Stats sums up the store. It locks one shard after the other, each for a moment.
func (m *Memory) Stats() MemoryStats {
	stats := MemoryStats{Overflowed: m.overflowed.Load(), Merged: m.merged.Load()}
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
