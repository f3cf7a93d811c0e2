package bans

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/keyfunc"
)

// Options are what [New] takes. The zero value consists of the defaults.
type Options struct {
	// MaxBans bounds the keys in the list, from 1 to 10 million. After its ban has ended, a key stays
	// for as long as that ban would make the next one longer. Zero: 100,000. A key takes some 260 bytes
	// plus its length and its notes. Keys longer than 256 bytes are kept as digests.
	MaxBans int

	// Secret is the HMAC key of the digests that stand for keys longer than 256 bytes. It has 16 bytes
	// or more. Use the Secret of redisstore.Options, so that a client has one digest everywhere. Empty:
	// the digests are SHA-256, and the key behind one can be guessed; see [keyfunc.Digester].
	Secret []byte
}

const (
	defaultMaxBans = 100_000
	maxMaxBans     = 10_000_000
)

// Memory is the list inside the process.
//
// At MaxBans, a new ban evicts a key whose ban has ended. If there is none, it evicts the ban by
// escalation that ends first. If there is none of those either, a new ban by hand evicts the ban by
// hand that ends first. Permanent bans are never evicted. Writing to the list drops bans that have
// ended: there is no goroutine, and nothing to close.
//
// Time is the process's monotonic clock: changes of the system's clock have no effect.
type Memory struct {
	start   time.Time
	max     int
	digests keyfunc.Digester

	// What Find reads without a lock. A ban that is over counts until it is dropped.
	inForce atomic.Int64 // how many bans
	next    atomic.Int64 // when the first of them ends, in nanoseconds since start

	mu        sync.RWMutex // guards what follows
	entries   map[string]*entry
	queues    [classes]queue
	evicted   uint64
	forgotten uint64
}

// New returns an empty list, or everything that is wrong with o.
func New(o Options) (*Memory, error) {
	err := keyfunc.CheckSecret("bans", o.Secret)
	if o.MaxBans < 0 || o.MaxBans > maxMaxBans {
		err = errors.Join(invalid.New("bans", "MaxBans is %d: it must be from 1 to %d, or 0 for %d", o.MaxBans, maxMaxBans, defaultMaxBans), err)
	}
	if err != nil {
		return nil, err
	}
	m := &Memory{
		start:   time.Now(),
		max:     cmp.Or(o.MaxBans, defaultMaxBans),
		digests: keyfunc.NewDigester(o.Secret),
		entries: map[string]*entry{},
	}
	m.next.Store(never)
	return m, nil
}

// Must returns m, and panics if [New] returned an error. Use it for options that are written in code.
func Must(m *Memory, err error) *Memory {
	if err != nil {
		panic(err)
	}
	return m
}

// never is when a permanent ban ends.
const never = math.MaxInt64

// unknown is a time before all others.
const unknown = math.MinInt64

func (m *Memory) now() int64 { return int64(time.Since(m.start)) }

// Find implements [List].
func (m *Memory) Find(key string) (Ban, bool) {
	key, _ = keyfunc.Classify(key)
	if m.Empty() {
		return Ban{}, false
	}
	now := m.now()
	if now >= m.next.Load() {
		m.mu.Lock()
		m.expire(now)
		m.mu.Unlock()
	}
	id := m.idOf(key)
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.entries[id]
	if e == nil || now >= e.until {
		return Ban{}, false
	}
	return m.ban(e), true
}

// Empty implements [List].
func (m *Memory) Empty() bool { return m.inForce.Load() == 0 }

// Count implements [List].
func (m *Memory) Count() int {
	for now := m.now(); now >= m.next.Load(); { // many may have ended; between the calls of expire, others get the lock
		m.mu.Lock()
		m.expire(now)
		m.mu.Unlock()
	}
	return int(m.inForce.Load())
}

// Ban implements [List]. Its errors are those of [CheckDuration] and [Noted], [ErrDigest] and
// [ErrFull].
func (m *Memory) Ban(_ context.Context, key string, d time.Duration, notes ...Note) error {
	noted, err := Noted(notes...)
	if err != nil {
		return err
	}
	if _, ok := keyfunc.DigestOf(key); ok {
		return ErrDigest
	}
	key, _ = keyfunc.Classify(key)
	if err := CheckDuration(d); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.expire(now)
	id := m.idOf(key)
	state := state{until: never, since: now, reason: strings.Clone(noted.Reason), by: strings.Clone(noted.By)}
	if d > 0 {
		state.until = now + int64(d)
	}
	if old := m.remembered(id, now); old != nil {
		state.times, state.remember = old.times, old.remember
	}
	return m.put(id, state, now)
}

// Escalate implements [List]. Its errors are those of [CheckEscalation] and [ErrFull].
func (m *Memory) Escalate(_ context.Context, key, rule string, e Escalation) (Ban, error) {
	key, _ = keyfunc.Classify(key)
	if err := CheckEscalation(rule, e); err != nil {
		return Ban{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.expire(now)
	id := m.idOf(key)
	times := 1
	if old := m.remembered(id, now); old != nil {
		if now < old.until {
			return m.ban(old), nil
		}
		times = min(old.times, maxTimes-1) + 1
	}
	err := m.put(id, state{
		rule:     strings.Clone(rule),
		until:    now + int64(e.Duration(times)),
		since:    now,
		times:    times,
		remember: e.WithDefaults().Max,
	}, now)
	if err != nil {
		return Ban{}, err
	}
	return m.ban(m.entries[id]), nil
}

// maxTimes fits an int everywhere.
const maxTimes = math.MaxInt32

// Unban implements [List]. Its error is nil.
func (m *Memory) Unban(_ context.Context, key string) (lifted bool, err error) {
	key, _ = keyfunc.Classify(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.expire(now)
	id := m.idOf(key)
	if _, ok := keyfunc.ParseDigest(key); ok && m.entries[id] == nil {
		id = digestMark + key
	}
	if e := m.entries[id]; e != nil {
		lifted = now < e.until
		m.drop(e)
		m.settle()
	}
	return lifted, nil
}

// All implements [List]. Its error is nil. It copies a few bans at a time, so that requests never wait long
// for the lock. A ban that is replaced meanwhile is listed where the old one was.
func (m *Memory) All(context.Context) (list []Ban, err error) {
	type banned struct {
		until int64
		*entry
	}
	var all []banned
	m.mu.RLock()
	for class, now := escalated, m.now(); class < classes; class++ {
		for _, e := range m.queues[class] {
			if now < e.until {
				all = append(all, banned{e.until, e})
			}
		}
	}
	m.mu.RUnlock()
	slices.SortFunc(all, func(a, b banned) int { return cmp.Or(cmp.Compare(a.until, b.until), cmp.Compare(a.id, b.id)) })
	list = slices.Grow(list, len(all))
	for some := range slices.Chunk(all, 256) {
		m.mu.RLock()
		for _, b := range some {
			if m.entries[b.id] == b.entry { // it was not lifted meanwhile
				list = append(list, m.ban(b.entry))
			}
		}
		m.mu.RUnlock()
	}
	return list, nil
}

// Each calls f for each ban, in no order. It includes ended bans that still make the key's next ban
// longer, which they do until b.Until plus remember. Each is for copying the list elsewhere. f must not
// call m.
func (m *Memory) Each(f func(b Ban, remember time.Duration)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, e := range m.entries {
		f(m.ban(e), e.remember)
	}
}

// Restore adds a ban from [Memory.Each], of this list or of another process with the same Secret. It
// replaces the key's entry. A ban that has ended and is no longer remembered leaves no entry. The error
// is [ErrFull], or says which argument is wrong.
func (m *Memory) Restore(b Ban, remember time.Duration) error {
	if b.Times < 0 || remember < 0 || remember > MaxDuration {
		return invalid.New("bans", "Times is %d, remembered for %v: Times must not be negative, and the time must be from 0 to %v", b.Times, remember, MaxDuration)
	}
	if _, err := Noted(Reason(b.Reason), By(b.By)); err != nil {
		return err
	}
	id := m.idOf(b.Key)
	if b.Key == "" && b.Digest != "" {
		if _, ok := keyfunc.ParseDigest(b.Digest); !ok {
			return invalid.New("bans", "Digest is %.40q: it is not a digest", b.Digest)
		}
		id = digestMark + b.Digest
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.expire(now)
	state := state{
		rule: strings.Clone(b.Rule), until: never, since: unknown,
		times: min(b.Times, maxTimes), remember: remember, reason: strings.Clone(b.Reason), by: strings.Clone(b.By),
	}
	if !b.Since.IsZero() {
		state.since = int64(b.Since.Sub(m.start))
	}
	if !b.Until.IsZero() {
		if left := time.Until(b.Until); left > MaxDuration {
			return invalid.New("bans", "a ban until %v: it must end within %v", b.Until, MaxDuration)
		}
		state.until = int64(b.Until.Sub(m.start))
	}
	if now >= state.forgottenAt() {
		if e := m.entries[id]; e != nil {
			m.drop(e)
			m.settle()
		}
		return nil
	}
	return m.put(id, state, now)
}

// Stats are the figures of [Memory.Stats].
type Stats struct {
	Bans       int    // in force, or ended and not yet dropped
	Remembered int    // keys that are not banned now, and whose last ban would make the next one longer
	Evicted    uint64 // bans that were evicted at MaxBans
	Forgotten  uint64 // keys evicted at MaxBans whose last ban would still have made the next one longer
}

// Stats returns the list's figures.
func (m *Memory) Stats() Stats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return Stats{
		Bans:       int(m.inForce.Load()),
		Remembered: len(m.queues[remembered]),
		Evicted:    m.evicted,
		Forgotten:  m.forgotten,
	}
}
