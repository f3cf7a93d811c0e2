package middleware

import (
	"context"
	"sync"
	"time"

	"github.com/weirgo/weir/limiter"
)

// Turns in leaky buckets, for requests that look at the queue before they take one. A look does not
// see what others are about to take, so of many that look at once all would find room.
type turns struct {
	mu     sync.Mutex
	queues map[queueKey]*queue
}

type queueKey struct {
	quota *limiter.Quota
	key   string
}

// A queue is a leaky bucket's queue, which requests of this process are deciding about.
type queue struct {
	requests       int
	sent, answered time.Duration // its length that they have asked for, and what the store has decided on
}

// An inQueue is a request from before it looks at a queue until it has its turn there, or none.
type inQueue struct {
	queue    *queue
	of       queueKey
	charge   int           // its place in the request
	answered time.Duration // of the queue before the look: the look sees that, and maybe more
	sent     time.Duration // by the request
}

func isTurn(c limiter.Charge) bool { return c.Quota.Algorithm() == limiter.LeakyBucket }

// enter is to be called before the look, and leave when the turns are taken, or not.
func (t *turns) enter(charges []limiter.Charge) (all []inQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range charges {
		if !isTurn(c) {
			continue
		}
		of := queueKey{c.Quota, c.Key}
		q := t.queues[of]
		if q == nil {
			q = &queue{}
			if t.queues == nil {
				t.queues = map[queueKey]*queue{}
			}
			t.queues[of] = q
		}
		q.requests++
		all = append(all, inQueue{queue: q, of: of, charge: i, answered: q.answered})
	}
	return all
}

// send reports whether s, which is the look, leaves all turns before the end of ctx. Then others
// reckon with them.
func (t *turns) send(ctx context.Context, s *decided, all []inQueue) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range all {
		r := &all[i]
		if !s.policies[r.charge].shadow && tooLate(ctx, s.decisions[r.charge].Delay+r.queue.sent-r.answered) {
			return false
		}
	}
	for i := range all {
		r := &all[i]
		limit := r.of.quota.Limit()
		r.sent = time.Duration(float64(s.policies[r.charge].cost) * float64(limit.Per) / float64(limit.Events))
		r.queue.sent += r.sent
	}
	return true
}

func (t *turns) leave(all []inQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range all {
		r := &all[i]
		r.queue.answered += r.sent
		if r.queue.requests--; r.queue.requests == 0 {
			delete(t.queues, r.of)
		}
	}
}
