package bans

import (
	"container/heap"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"time"
)

// A state is what is known of a key.
type state struct {
	rule     string
	until    int64 // in nanoseconds since the list's start, as all times here
	times    int
	remember time.Duration // how long after until the times count
}

// forgottenAt is when nothing of it matters any more.
func (s *state) forgottenAt() int64 {
	if s.until > math.MaxInt64-int64(s.remember) {
		return never
	}
	return s.until + int64(s.remember)
}

// An entry is in the table under its id, and in the queue of its class.
type entry struct {
	id string
	state
	class class
	index int // in the queue
}

// A class is of entries that give way before those of the next.
type class int

const (
	remembered class = iota // the ban is over
	escalated
	byHand

	classes = 3
)

// due is when an entry leaves its class: its ban is over, or it is forgotten.
func (e *entry) due() int64 {
	if e.class == remembered {
		return e.forgottenAt()
	}
	return e.until
}

// A queue is a heap of entries of one class, the next that is due first.
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

// first is the next that is due, or nil.
func (q queue) first() *entry {
	if len(q) == 0 {
		return nil
	}
	return q[0]
}

// A shard is a part of the table. Entries change under its lock and that of the list, so
// that either is enough to read them.
type shard struct {
	mu      sync.RWMutex
	entries map[string]*entry
	_       [32]byte // a cache line for each
}

const shardCount = 32

func (m *Memory) shard(id string) *shard {
	return &m.shards[maphash.String(m.seed, id)%shardCount]
}

func (m *Memory) ban(e *entry) Ban {
	b := Ban{Key: e.id, Rule: e.rule, Times: e.times}
	if e.until != never {
		b.Until = m.start.Add(time.Duration(e.until))
	}
	return b
}

// remembered is what counts of a key, or nil.
func (m *Memory) remembered(id string, now int64) *entry {
	e := m.shard(id).entries[id]
	if e == nil || now >= e.forgottenAt() {
		return nil
	}
	return e
}

// put writes what is known of a key. It makes room for a new one, or says that it cannot.
func (m *Memory) put(id string, s state, now int64) error {
	defer m.settle()
	class := escalated
	switch {
	case now >= s.until:
		class = remembered
	case s.rule == "":
		class = byHand
	}
	shard := m.shard(id)
	e := shard.entries[id]
	if e == nil {
		if m.size >= m.max && !m.makeRoom(class) {
			if class == remembered {
				m.forgotten++
				return nil
			}
			return ErrFull
		}
		e = &entry{id: strings.Clone(id), state: s, class: class}
		heap.Push(&m.queues[class], e)
		m.size++
		shard.mu.Lock()
		shard.entries[e.id] = e
		shard.mu.Unlock()
		return nil
	}
	heap.Remove(&m.queues[e.class], e.index)
	shard.mu.Lock()
	e.state, e.class = s, class
	shard.mu.Unlock()
	heap.Push(&m.queues[class], e)
	return nil
}

// makeRoom drops what gives way to a new entry of a class, if something does.
func (m *Memory) makeRoom(newcomer class) bool {
	for class := range newcomer + 1 {
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
	m.size--
	shard := m.shard(e.id)
	shard.mu.Lock()
	delete(shard.entries, e.id)
	shard.mu.Unlock()
}

// maxExpired bounds how many entries a call drops beside what it is for. At most one comes
// with a call, so there are never many left.
const maxExpired = 16

// expire drops some of the entries that are of no use any more.
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
			e.class = remembered // which is not read without the list's lock
			heap.Push(&m.queues[remembered], e)
		}
	}
	m.settle()
}

// settle writes down for Find what the queues have become.
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
