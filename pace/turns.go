package pace

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// turns are the queue of one key: a leaky bucket in the store, and what this process knows of its
// end.
//
// A turn that is given back shortens the queue only if it is the last one. So many requests that
// cannot wait would lengthen the queue if each took a turn. Therefore a request reserves its turn in
// this process first.
type turns struct {
	rule *rule
	key  string

	end     atomic.Int64  // when the next turn is due, as far as this process knows
	looks   atomic.Int64  // how often the store was asked for it
	looking chan struct{} // full while the store is asked
}

// A turn was taken from the queue.
type turn struct {
	cost     int64 // 0: nothing was taken
	decision limiter.Decision
}

// reserve reserves a turn that is due within wait. It returns false if the next one is later.
func (q *turns) reserve(cost int64, wait time.Duration) bool {
	for {
		end, now := q.end.Load(), q.rule.transport.now()
		due := max(end, now)
		if due-now > int64(wait) {
			return false
		}
		if q.end.CompareAndSwap(end, due+int64(q.rule.timeOf(cost))) {
			return true
		}
	}
}

// wait is how long after now the next turn is due.
func (q *turns) wait() time.Duration { return time.Duration(q.end.Load() - q.rule.transport.now()) }

// look asks the store for the end of the queue, as requests of any process may have left the queue.
// One request asks at a time, for all that came meanwhile.
func (q *turns) look(ctx context.Context) error {
	looks := q.looks.Load()
	select {
	case q.looking <- struct{}{}:
		defer func() { <-q.looking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if looks != q.looks.Load() {
		return nil
	}
	before := q.end.Load()
	t, err := q.decide(ctx, 0)
	if err != nil {
		return err
	}
	// The store has counted what was reserved before. What was reserved since stays reserved.
	q.end.Add(q.rule.transport.now() + int64(t.decision.Delay) - before)
	q.looks.Add(1)
	return nil
}

// take takes a turn that was reserved. The store may refuse it.
func (q *turns) take(ctx context.Context, cost int64) (turn, error) {
	t, err := q.decide(ctx, cost)
	if err == nil && t.decision.Allowed {
		raise(&q.end, q.rule.transport.now()+int64(t.decision.Delay+q.rule.timeOf(cost)))
	}
	return t, err
}

func (q *turns) decide(ctx context.Context, cost int64) (turn, error) {
	charges := []limiter.Charge{{Quota: q.rule.quota, Key: q.key, Cost: cost}}
	err := q.rule.transport.options.Store.Decide(ctx, charges)
	return turn{cost, charges[0].Decision}, wrap(q.rule, err)
}

// giveBack returns the turn of a request that was not sent.
func (q *turns) giveBack(ctx context.Context, t turn) {
	if t.cost == 0 || !t.decision.Counted() {
		return
	}
	ctx, cancel := outlive(ctx)
	defer cancel()
	_ = q.rule.transport.options.Store.Settle(ctx, []limiter.Settlement{{Charge: limiter.Charge{
		Quota: q.rule.quota, Key: q.key, Cost: t.cost, Decision: limiter.Decision{Receipt: q.rule.quota.Undo(&t.decision)},
	}}}) // else it drains
}
