// Package waiting queues events that wait for a slot of a key, in FIFO order.
package waiting

import (
	"container/list"
	"context"
	"math"
	"math/rand/v2"
	"slices"
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
	queues  map[K]*queue[K] // no queue is empty
	claimed map[K]int64     // by all waiters
}

// A queue has the waiters of one key, the first at the front.
type queue[K comparable] struct{ list.List }

// Terms say what a waiter waits for.
type Terms[K comparable] struct {
	Key    K
	Most   int        // waiters of the key
	Slots  int64      // of the key that the waiter's limit allows at once
	Plan   any        // that Slots belongs to. Waiters of different plans keep their order
	Claims []Claim[K] // what else the waiter will take
}

// A Claim is what a waiter will take of another counter, and what that counter has left. All waiters together claim
// no more than it has left.
type Claim[K comparable] struct {
	Key        K
	Cost, Left int64
}

// A Waiter has a place in a queue.
type Waiter[K comparable] struct {
	Terms[K]
	room *Room[K]
	at   *list.Element // nil: it has left
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

// Comes reports whether waiters for the key of t come before an event with these terms, which is behind all of them,
// or has the place of w. If a waiter's limit allows fewer slots, the event need not wait for it.
func (r *Room[K]) Comes(t Terms[K], w *Waiter[K]) bool {
	if r.waiting.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queues[t.Key]
	return q != nil && q.comes(t, w)
}

func (q *queue[K]) comes(t Terms[K], w *Waiter[K]) bool {
	for at := q.Front(); at != nil; at = at.Next() {
		switch other := at.Value.(*Waiter[K]); {
		case other == w:
			return false
		case other.Plan != t.Plan || other.Slots >= t.Slots:
			return true
		}
	}
	return false
}

// Wait calls ask in turn until ask is done or fails, patience ends (false) or ctx ends (its error).
// If key already has most waiters or the Room has Most, Wait returns false at once.
func (r *Room[K]) Wait(ctx context.Context, key K, most int, patience time.Duration, ask func() (done bool, err error)) (done bool, err error) {
	w, _ := r.Join(Terms[K]{Key: key, Most: most}, nil)
	if w == nil {
		return false, nil
	}
	defer w.Leave()
	for until := time.Now().Add(patience); !done && err == nil; {
		var called bool
		if called, err = w.Wait(ctx, time.Until(until)); !called {
			return false, err
		}
		done, err = ask()
	}
	return done, err
}

// Join returns a waiter at the end of a queue, and w, which may be nil, leaves. If w is in that queue, w keeps its
// place and gets the new terms. Join returns nil if there is no room or if a claim is more than its counter has left;
// lacks is then the claim's index, and otherwise -1. The first waiter is called at once: a slot may have been
// released before it joined.
func (r *Room[K]) Join(t Terms[K], w *Waiter[K]) (_ *Waiter[K], lacks int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keeps := w != nil && w.at != nil && w.Key == t.Key
	if w != nil {
		r.claim(w.Claims, -1)
	}
	lacks = slices.IndexFunc(t.Claims, func(c Claim[K]) bool { return r.claimed[c.Key]+c.Cost > c.Left })
	q := r.queues[t.Key]
	isFull := !keeps && (q != nil && q.Len() >= t.Most || t.Most <= 0 || r.waiting.Load() >= Most)
	if lacks >= 0 || isFull {
		if w != nil {
			r.claim(w.Claims, 1)
		}
		return nil, lacks
	}
	r.claim(t.Claims, 1)
	if keeps {
		w.Terms = t
		return w, lacks
	}
	if w != nil {
		w.Claims = nil
		w.leave()
	}
	if q = r.queues[t.Key]; q == nil {
		q = &queue[K]{}
		if r.queues == nil {
			r.queues = map[K]*queue[K]{}
		}
		r.queues[t.Key] = q
	}
	r.waiting.Add(1)
	w = &Waiter[K]{Terms: t, room: r, turn: make(chan struct{}, 1)}
	if w.at = q.PushBack(w); !q.comes(t, w) {
		w.call()
	}
	return w, lacks
}

// claim adds claims, or removes them if sign is -1.
func (r *Room[K]) claim(claims []Claim[K], sign int64) {
	for _, c := range claims {
		if r.claimed == nil {
			r.claimed = map[K]int64{}
		}
		if r.claimed[c.Key] += sign * c.Cost; r.claimed[c.Key] == 0 {
			delete(r.claimed, c.Key)
		}
	}
}

// Wait returns true when w must ask for a slot, and false when patience ends, or ctx (with its error). If w asked
// before and got none, the next waiter whose limit allows more slots asks.
func (w *Waiter[K]) Wait(ctx context.Context, patience time.Duration) (called bool, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var again <-chan time.Time
	if w.next() && w.room.Shared {
		again = time.After(askEvery/2 + rand.N(askEvery/2))
	}
	select {
	case <-w.turn:
	case <-again:
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return true, nil
}

// next calls the waiter behind w that need not wait for w. It reports whether w is the first.
func (w *Waiter[K]) next() (isFirst bool) {
	w.room.mu.Lock()
	defer w.room.mu.Unlock()
	q := w.room.queues[w.Key]
	if q.comes(w.Terms, w) {
		return false
	}
	for at := w.at.Next(); at != nil; at = at.Next() {
		other := at.Value.(*Waiter[K])
		if other.Plan != w.Plan {
			break
		}
		if other.Slots > w.Slots {
			other.call()
			break
		}
	}
	return q.Front() == w.at
}

// Leave removes w from its queue. Those who need not wait any more ask. A second call does nothing, nor does one for
// nil.
func (w *Waiter[K]) Leave() {
	if w == nil {
		return
	}
	w.room.mu.Lock()
	defer w.room.mu.Unlock()
	w.leave()
}

func (w *Waiter[K]) leave() {
	r := w.room
	if w.at == nil {
		return
	}
	r.waiting.Add(-1)
	q := r.queues[w.Key]
	othersCome := q.comes(w.Terms, w)
	q.Remove(w.at)
	w.at = nil
	if q.Len() == 0 {
		delete(r.queues, w.Key)
	} else if !othersCome {
		q.call()
	}
	r.claim(w.Claims, -1)
	for _, c := range w.Claims {
		if q := r.queues[c.Key]; q != nil {
			q.call()
		}
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

// Changed makes all waiters ask: they have other terms.
func (r *Room[K]) Changed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.queues {
		for at := q.Front(); at != nil; at = at.Next() {
			at.Value.(*Waiter[K]).call()
		}
	}
}

// call makes the first waiter ask.
func (q *queue[K]) call() { q.Front().Value.(*Waiter[K]).call() }

func (w *Waiter[K]) call() {
	select {
	case w.turn <- struct{}{}:
	default: // it must ask already
	}
}
