package limiter

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// mostWaiting is how many events wait for places of one rule in all.
const mostWaiting = 10_000

// A waitingRoom is where events of this process wait for places, of each key in the order in
// which they came. It knows no store: the first of a line asks again when a place was returned
// here, and now and then where other processes return places too.
type waitingRoom struct {
	most    int // of a key
	patient time.Duration
	shared  bool // other processes return places

	waiting atomic.Int64 // of all keys
	mu      sync.Mutex
	lines   map[string]*line // that are not empty
}

// A line is the events that wait for one key's places, the first first.
type line struct{ waiters []*waiter }

type waiter struct {
	turn chan struct{} // holds a value when the waiter is to ask; of one
}

// How often the first of a line asks where other processes return places: at random between
// half of that and the whole, so that they do not all ask together.
const askEvery = 50 * time.Millisecond

// isEmpty reports whether nothing waits for key, without a lock where nothing waits at all.
func (w *waitingRoom) isEmpty(key string) bool {
	if w.waiting.Load() == 0 {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines[key] == nil
}

// length is how many wait for key.
func (w *waitingRoom) length(key string) int64 {
	if w.waiting.Load() == 0 {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.lines[key]; l != nil {
		return int64(len(l.waiters))
	}
	return 0
}

// wait asks for a place until it gets one, its patience ends, or ctx does, whose error it then
// returns; or it returns false at once, if there is no room to wait. It asks in turn.
func (w *waitingRoom) wait(ctx context.Context, key string, ask func() (got bool, err error)) (got bool, err error) {
	me := w.join(key)
	if me == nil {
		return false, nil
	}
	defer w.leave(key, me)
	timer := time.NewTimer(w.patient)
	defer timer.Stop()
	var again <-chan time.Time // for the first of a line
	for {
		select {
		case <-me.turn:
		case <-again:
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if got, err = ask(); got || err != nil {
			return got, err
		}
		if w.shared {
			again = time.After(askEvery/2 + rand.N(askEvery/2))
		}
	}
}

// join puts a waiter at the end of a line; nil: there is no room. The first of a line is to ask
// at once, as a place may have been returned before it came.
func (w *waitingRoom) join(key string) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lines[key]
	if l != nil && len(l.waiters) >= w.most || w.waiting.Load() >= mostWaiting {
		return nil
	}
	if l == nil {
		l = &line{}
		if w.lines == nil {
			w.lines = map[string]*line{}
		}
		w.lines[key] = l
	}
	w.waiting.Add(1)
	me := &waiter{make(chan struct{}, 1)}
	if l.waiters = append(l.waiters, me); len(l.waiters) == 1 {
		me.turn <- struct{}{}
	}
	return me
}

// leave takes a waiter out of its line, and has the one asked next that is now the first.
func (w *waitingRoom) leave(key string, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting.Add(-1)
	l := w.lines[key]
	for i, other := range l.waiters {
		if other != me {
			continue
		}
		l.waiters = append(l.waiters[:i:i], l.waiters[i+1:]...)
		if i == 0 {
			l.call()
		}
		break
	}
	if len(l.waiters) == 0 {
		delete(w.lines, key)
	}
}

// returned says that a place of key was returned here.
func (w *waitingRoom) returned(key string) {
	if w.waiting.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.lines[key]; l != nil {
		l.call()
	}
}

// call has the first of the line ask.
func (l *line) call() {
	if len(l.waiters) == 0 {
		return
	}
	select {
	case l.waiters[0].turn <- struct{}{}:
	default: // it is to ask already
	}
}
