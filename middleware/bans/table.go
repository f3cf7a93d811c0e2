package bans

import (
	"container/heap"
	"math"
	"strings"
	"time"
)

// A state is the ban of a key, or its last ban.
type state struct {
	rule     string
	until    int64 // in nanoseconds since the list's start, as all times here
	since    int64 // or unknown
	times    int
	remember time.Duration // how long after until the times count

	reason, by string // of a ban by hand
}

// forgottenAt is when the ban has ended and its repetitions no longer count.
func (s *state) forgottenAt() int64 {
	if s.until > math.MaxInt64-int64(s.remember) {
		return never
	}
	return s.until + int64(s.remember)
}

// An entry is in the table under its id, and in the queue of its class.
type entry struct {
	id string // see idOf
	state
	class class
	index int // in the queue
}

// A class orders entries for eviction: a lower one is evicted first.
type class int

const (
	remembered class = iota // the ban is over
	escalated
	byHand

	classes = 3
)

// due is when an entry leaves its class: its ban ends, or its repetitions are forgotten.
func (e *entry) due() int64 {
	if e.class == remembered {
		return e.forgottenAt()
	}
	return e.until
}

// A queue is a heap of the entries of one class, by when they are due.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due() < q[j].due() }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(e any) {
	e.(*entry).index = len(*q)
	*q = append(*q, e.(*entry))
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}

// first is the entry that is due next, or nil.
func (q queue) first() *entry {
	if len(q) == 0 {
		return nil
	}
	return q[0]
}

// longestKey is the longest key that is kept as it is: clients choose the length of keys.
const longestKey = 256

// digestMark begins the id of a key that is kept as a digest. Keys that begin with it are kept as digests
// too, so no key equals the id of another.
const digestMark = "\x00"

// idOf is the id of a key: the key itself, or the digest of a long key.
func (m *Memory) idOf(key string) string {
	if len(key) <= longestKey && !strings.HasPrefix(key, digestMark) {
		return key
	}
	return digestMark + m.digests.Digest(key).String()
}

func (m *Memory) ban(e *entry) Ban {
	b := Ban{Key: e.id, Rule: e.rule, Times: e.times, Reason: e.reason, By: e.by}
	if digest, ok := strings.CutPrefix(e.id, digestMark); ok {
		b.Key, b.Digest = "", digest
	}
	if e.until != never {
		b.Until = m.start.Add(time.Duration(e.until))
	}
	if e.since != unknown {
		b.Since = m.start.Add(time.Duration(e.since))
	}
	return b
}

// remembered is the entry of a key, or nil if it no longer counts.
func (m *Memory) remembered(id string, now int64) *entry {
	e := m.entries[id]
	if e == nil || now >= e.forgottenAt() {
		return nil
	}
	return e
}

// put writes the state of a key. It makes room for a new one, or returns ErrFull.
func (m *Memory) put(id string, s state, now int64) error {
	defer m.settle()
	class := escalated
	switch {
	case now >= s.until:
		class = remembered
	case s.rule == "":
		class = byHand
	}
	e := m.entries[id]
	if e == nil {
		if len(m.entries) >= m.max && !m.makeRoom(class) {
			if class == remembered {
				m.forgotten++
				return nil
			}
			return ErrFull
		}
		e = &entry{id: strings.Clone(id)}
		m.entries[e.id] = e
	} else {
		heap.Remove(&m.queues[e.class], e.index)
	}
	e.state, e.class = s, class
	heap.Push(&m.queues[class], e)
	return nil
}

// makeRoom evicts an entry for a new one of this class, if there is one to evict.
func (m *Memory) makeRoom(of class) bool {
	for class := range of + 1 {
		e := m.queues[class].first()
		if e == nil || e.until == never {
			continue
		}
		if class == remembered {
			m.forgotten++
		} else {
			m.evicted++
		}
		m.drop(e)
		return true
	}
	return false
}

func (m *Memory) drop(e *entry) {
	heap.Remove(&m.queues[e.class], e.index)
	delete(m.entries, e.id)
}

// maxExpired bounds how many entries of a class one call drops. A call adds at most one entry, so few
// expired entries ever remain.
const maxExpired = 16

// expire drops entries that no longer count.
func (m *Memory) expire(now int64) {
	for class := range class(classes) {
		for range maxExpired {
			e := m.queues[class].first()
			if e == nil || now < e.due() {
				break
			}
			if class == remembered || now >= e.forgottenAt() {
				m.drop(e)
				continue
			}
			heap.Remove(&m.queues[class], e.index)
			e.class = remembered
			heap.Push(&m.queues[remembered], e)
		}
	}
	m.settle()
}

// settle updates the atomics that Find reads.
func (m *Memory) settle() {
	next := int64(never)
	for class := escalated; class < classes; class++ {
		if e := m.queues[class].first(); e != nil {
			next = min(next, e.until)
		}
	}
	m.next.Store(next)
	m.inForce.Store(int64(len(m.queues[escalated]) + len(m.queues[byHand])))
}
