// Package waiting has events wait for places of a key, in the order in which they came.
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

// Most is how many events wait in a Room, of all keys.
const Most = 10_000

// A Room is where events of this process wait for places. It knows no store: the first of a
// key's line asks again when a place was returned here and, where other processes return places
// too, now and then. The zero Room is an empty one.
type Room[K comparable] struct {
	Shared bool // other processes return places

	waiting atomic.Int64 // of all keys
	mu      sync.Mutex
	lines   map[K]*line // that are not empty
}

// A line is the waiters for one key's places, the first at the front.
type line struct{ list.List }

type waiter struct {
	turn chan struct{} // holds a value when the waiter is to ask; of one
}

// How often the first of a line asks where other processes return places: at random between
// half of that and the whole, so that they do not all ask together. With what a store takes to
// tell others of a returned place, that is at most 50 ms.
const askEvery = 30 * time.Millisecond

// IsEmpty reports whether nothing waits for key, without a lock where nothing waits at all.
func (r *Room[K]) IsEmpty(key K) bool { return r.Length(key) == 0 }

// Behind is how long those that wait for key take and one more, if each takes d.
func (r *Room[K]) Behind(key K, d time.Duration) time.Duration {
	n := time.Duration(1 + r.Length(key))
	if d > math.MaxInt64/n {
		return math.MaxInt64
	}
	return n * d
}

// Length is how many wait for key.
func (r *Room[K]) Length(key K) int {
	if r.waiting.Load() == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lines[key]; l != nil {
		return l.Len()
	}
	return 0
}

// Wait asks for a place, in turn, until that is done, patience ends, or ctx does, whose error
// it then returns; or it returns false at once, if most wait for key or Most for all.
func (r *Room[K]) Wait(ctx context.Context, key K, most int, patience time.Duration, ask func() (done bool, err error)) (done bool, err error) {
	me := r.join(key, most)
	if me == nil {
		return false, nil
	}
	defer r.leave(key, me)
	w := me.Value.(*waiter)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var again <-chan time.Time // for the first of a line
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

// join puts a waiter at the end of a line; nil: there is no room. The first of a line is to ask
// at once, as a place may have been returned before it came.
func (r *Room[K]) join(key K, most int) *list.Element {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lines[key]
	if l != nil && l.Len() >= most || most <= 0 || r.waiting.Load() >= Most {
		return nil
	}
	if l == nil {
		l = &line{}
		if r.lines == nil {
			r.lines = map[K]*line{}
		}
		r.lines[key] = l
	}
	r.waiting.Add(1)
	me := l.PushBack(&waiter{make(chan struct{}, 1)})
	if l.Len() == 1 {
		l.call()
	}
	return me
}

// leave takes a waiter out of its line, and has the one asked next that is now the first.
func (r *Room[K]) leave(key K, me *list.Element) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting.Add(-1)
	l := r.lines[key]
	wasFirst := l.Front() == me
	if l.Remove(me); l.Len() == 0 {
		delete(r.lines, key)
	} else if wasFirst {
		l.call()
	}
}

// Returned says that a place of key was returned here.
func (r *Room[K]) Returned(key K) {
	if r.waiting.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lines[key]; l != nil {
		l.call()
	}
}

// Changed says that there may be places of any key.
func (r *Room[K]) Changed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		l.call()
	}
}

// call has the first of the line ask.
func (l *line) call() {
	select {
	case l.Front().Value.(*waiter).turn <- struct{}{}:
	default: // it is to ask already
	}
}
