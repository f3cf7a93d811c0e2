package limiter

import "time"

// What tests see of the inside, because it does not show in decisions: which limits have words, whether words
// last, who holds the shards' locks, what slots leave behind, and debts above the limit.

// Uptime is how long a packed time lasts.
const Uptime = uptime

// FitsWord reports whether q's states are packed.
func (q *Quota) FitsWord() bool { return q.fitsWord() }

// Packed returns s after it has been packed and unpacked at time now, in a store of that origin.
func (q *Quota) Packed(s State, origin, now int64) State {
	base := q.base(origin)
	u, _, _ := q.unpack(q.pack(q.usage(s.Last, s.Level, s.Prev), base), base, now)
	return q.state(u, nil)
}

// Used returns how many units of s are used or owed under q, up to twice the capacity.
func (q *Quota) Used(s State, now int64) int64 {
	s = s.current(now)
	_, _, _, used := q.view(&s, now)
	return used
}

// HasShapeOf reports whether states of p and q have the same numbers.
func (q *Quota) HasShapeOf(p *Quota) bool { return q.hasShapeOf(p) }

// Span returns for how many microseconds q's events count.
func (q *Quota) Span() int64 { return q.span() }

// LockAll locks all shards.
func (m *Memory) LockAll() (unlock func()) {
	for i := range m.shards {
		m.shards[i].Lock()
	}
	return func() {
		for i := range m.shards {
			m.shards[i].Unlock()
		}
	}
}

// HeldKeys returns how many keys have slots or are overflow counters.
func (m *Memory) HeldKeys() (n int) {
	for i := range m.shards {
		n += len(m.shards[i].beside)
	}
	return n
}

// Advance moves m's clock. Benchmarks have no fake clock.
func (m *Memory) Advance(d time.Duration) { m.start = m.start.Add(-d) }
