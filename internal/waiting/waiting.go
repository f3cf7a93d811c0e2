// Package waiting queues events that wait for a slot of a key, in FIFO order.
package waiting

import (
	"container/list"
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Most is the greatest number of waiters in a Room, of all keys.
const Most = 10_000

// A Room holds the queues of this process, one for each key. It has no store: the first waiter
// of a queue asks for a slot when this process releases one. If other processes release slots
// too, the first waiter also asks every 15 to 30 ms. The zero Room is empty.
type Room[K comparable] struct {
	Shared bool // other processes release slots too

	waiting atomic.Int64 // of all keys
	mu      sync.Mutex
	queues  map[K]*queue // no queue is empty
}

// A queue has the waiters of one key, the first at the front.
type queue struct{ list.List }

type waiter struct {
	turn chan struct{} // of capacity 1; holds a value when the waiter must ask
}

// askEvery is the longest time between two calls of ask if other processes release slots. Each
// wait is a random time from half of it, so that processes do not ask together. With the time
// until a store reports a released slot, a waiter asks within 50 ms.
const askEvery = 30 * time.Millisecond

// IsEmpty reports whether key has no waiter. It takes no lock if the Room is empty.
func (r *Room[K]) IsEmpty(key K) bool { return r.Length(key) == 0 }

// Behind returns how long key's waiters and one more take, if each takes d.
func (r *Room[K]) Behind(key K, d time.Duration) time.Duration {
	n := time.Duration(1 + r.Length(key))
	if d > math.MaxInt64/n {
		return math.MaxInt64
	}
	return n * d
}

// Length returns the number of waiters for key.
func (r *Room[K]) Length(key K) int {
	if r.waiting.Load() == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.queues[key]; q != nil {
		return q.Len()
	}
	return 0
}

// Wait calls ask in turn until ask is done or fails, patience ends (false) or ctx ends (its error).
// If key already has most waiters or the Room has Most, Wait returns false at once.
func (r *Room[K]) Wait(ctx context.Context, key K, most int, patience time.Duration, ask func() (done bool, err error)) (done bool, err error) {
	me := r.join(key, most)
	if me == nil {
		return false, nil
	}
	defer r.leave(key, me)
	w := me.Value.(*waiter)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var again <-chan time.Time // set for the first waiter only
	for {
		select {
		case <-w.turn:
		case <-again:
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if done, err = ask(); done || err != nil {
			return done, err
		}
		if r.Shared {
			again = time.After(askEvery/2 + rand.N(askEvery/2))
		}
	}
}

// join appends a waiter to a queue. It returns nil if there is no room. The first waiter asks at
// once: a slot may have been released before it joined.
func (r *Room[K]) join(key K, most int) *list.Element {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queues[key]
	if q != nil && q.Len() >= most || most <= 0 || r.waiting.Load() >= Most {
		return nil
	}
	if q == nil {
		q = &queue{}
		if r.queues == nil {
			r.queues = map[K]*queue{}
		}
		r.queues[key] = q
	}
	r.waiting.Add(1)
	me := q.PushBack(&waiter{make(chan struct{}, 1)})
	if q.Len() == 1 {
		q.call()
	}
	return me
}

// leave removes a waiter. If it was the first, leave makes the next one ask.
func (r *Room[K]) leave(key K, me *list.Element) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting.Add(-1)
	q := r.queues[key]
	wasFirst := q.Front() == me
	if q.Remove(me); q.Len() == 0 {
		delete(r.queues, key)
	} else if wasFirst {
		q.call()
	}
}

// Released reports that this process released a slot of key.
func (r *Room[K]) Released(key K) {
	if r.waiting.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.queues[key]; q != nil {
		q.call()
	}
}

// Changed reports that any key may have free slots.
func (r *Room[K]) Changed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.queues {
		q.call()
	}
}

// call makes the first waiter ask.
func (q *queue) call() {
	select {
	case q.Front().Value.(*waiter).turn <- struct{}{}:
	default: // it must ask already
	}
}
