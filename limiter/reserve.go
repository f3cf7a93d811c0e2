package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Reserve takes n units for key, if they are there, for an event whose cost is known only afterwards.
// [Hold.Settle] then corrects the cost, and [Hold.Cancel] returns all units if the event did not
// happen.
//
//	hold, d, err := tokens.Reserve(ctx, key, maxTokens)
//	if err != nil || !d.Allowed {
//		return // as after AllowN
//	}
//	defer hold.Cancel() // does nothing once the Hold is settled
//	answer := complete(ctx, prompt)
//	_ = hold.Settle(answer.Tokens)
//
// Until the Hold is settled or cancelled, nobody else can use the units. If the event used more than n,
// the difference is a debt, and later events are refused until it is paid. If n is above the limit,
// Reserve takes the limit; if n is below 1, it takes 1. If the process ends before it settles, the
// units count as used.
//
// Without [Config.Settles] Reserve returns an error that wraps [ErrCharges]. Do not copy a Hold.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (hold Hold, d Decision, err error) {
	if !l.quota.Settles {
		return Hold{}, Decision{}, fmt.Errorf("%w: Reserve on the limiter %q, whose Config has Settles false", ErrCharges, l.quota.rule)
	}
	n = max(n, 1)
	var b batch
	d, err = b.decide(ctx, l, key, n, 0, true)
	for i := range l.quotas {
		hold.receipts[i] = b[i].Decision.Receipt
	}
	if err == nil && d.Allowed {
		hold.limiter, hold.ctx, hold.key, hold.reserved = l, ctx, key, n
	}
	return
}

// A Hold is what [Limiter.Reserve] took. The zero Hold, which comes with a refusal or an error,
// holds nothing. Several goroutines may call Settle and Cancel; the first call counts.
type Hold struct {
	limiter  *Limiter // nil: it holds nothing
	ctx      context.Context
	key      string
	reserved int64
	receipts [maxLimits]Receipt // of each limit
	settled  atomic.Bool
}

// ErrSettled is what [Hold.Settle] and [Hold.Cancel] return if the Hold is already settled or
// cancelled.
var ErrSettled = errors.New("limiter: the hold is already settled")

// settleTime bounds how long settling can take, as the context of Reserve does not.
const settleTime = 5 * time.Second

// Settle says what the event really cost. If it cost less than was reserved, the difference is
// refunded, unless its window has ended. If it cost more, the difference is a debt of at most one
// limit's worth; the rest is forgiven. Later events are refused until the debt is paid.
//
// Settle works after the context of Reserve has ended. It returns [ErrSettled] if the Hold was settled
// before, and an error that wraps [ErrCharges] for a negative cost or a Hold that holds nothing. Any
// other error comes from the store, and the cost may then be uncorrected.
func (h *Hold) Settle(actual int64) error {
	switch {
	case h.limiter == nil:
		return fmt.Errorf("%w: Settle(%d) of a Hold that holds nothing", ErrCharges, actual)
	case actual < 0:
		return fmt.Errorf("%w: Settle(%d) for the limiter %q: a cost must not be negative", ErrCharges, actual, h.limiter.quota.rule)
	case h.settled.Swap(true):
		return ErrSettled
	}
	l := h.limiter
	var space [maxLimits]Settlement
	settlements := space[:len(l.quotas)]
	for i := range settlements {
		settlements[i] = h.settlement(i, actual)
	}
	if memory, ok := l.store.(*Memory); ok { // settlements stay on the stack
		return memory.Settle(h.ctx, settlements)
	}
	ctx, end := outlive(h.ctx)
	defer end()
	return l.store.Settle(ctx, slices.Clone(settlements))
}

// settlement is that of one limit.
func (h *Hold) settlement(i int, actual int64) Settlement {
	q := h.limiter.quotas[i]
	taken := Decision{Receipt: h.receipts[i]}
	return Settlement{Charge{Quota: q, Key: h.key, Cost: min(h.reserved, q.capacity), Decision: taken}, actual}
}

// Cancel is Settle(0): the event did not happen. After Settle it does nothing but return
// [ErrSettled], so it can be deferred.
func (h *Hold) Cancel() error { return h.Settle(0) }

// outlive is a context for what is to be done though ctx has ended.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleTime)
}
