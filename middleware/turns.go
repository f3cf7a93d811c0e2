package middleware

import (
	"context"
	"sync"
	"time"

	"github.com/weirgo/weir/limiter"
)

// Requests that look at the queue of a leaky bucket before they take a turn. A look does not see the
// turns that others are about to take, so many requests that look at once would all find room.
type turns struct {
	mu     sync.Mutex
	queues map[counterKey]*queue
}

// A queue is a leaky bucket's queue, which requests of this process are deciding about.
type queue struct {
	requests       int
	sent, answered time.Duration // the length that they asked for, and the part that the store has decided
}

// An inQueue is a request at a queue, from before its look until it has a turn there, or none.
type inQueue struct {
	queue    *queue
	of       counterKey
	charge   int           // index in the request's charges
	answered time.Duration // of the queue before the look, which sees that and maybe more
	sent     time.Duration // by this request
}

// enter must be called before the look, and leave when the turns are taken or refused.
func (t *turns) enter(limits []applied, charges []limiter.Charge) (all []inQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if !limits[i].turn {
			continue
		}
		of := keyOf(c)
		q := t.queues[of]
		if q == nil {
			q = &queue{}
			if t.queues == nil {
				t.queues = map[counterKey]*queue{}
			}
			t.queues[of] = q
		}
		q.requests++
		all = append(all, inQueue{queue: q, of: of, charge: i, answered: q.answered})
	}
	return all
}

// send reports whether all turns come before the end of ctx, by a look at the charges. If so, other requests take
// them into account.
func (t *turns) send(ctx context.Context, charges []limiter.Charge, all []inQueue) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range all {
		r := &all[i]
		if c := &charges[r.charge]; !c.Optional && tooLate(ctx, c.Decision.Delay+r.queue.sent-r.answered) {
			return false
		}
	}
	for i := range all {
		r := &all[i]
		c := &charges[r.charge]
		limit := c.Quota.Limit()
		r.sent = time.Duration(float64(c.Cost) * float64(limit.Per) / float64(limit.Events))
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
