package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A settlement is a correction of one charge, of which no caller waits.
type settlement struct {
	store  *store
	op     op
	charge limiter.Charge
	tag    keyfunc.Digest
	name   string // of the counter
	isSent bool
}

func (s *settlement) group(now time.Time) *group {
	g := newGroup(s.op)
	g.settlement, g.tag, g.since = s, s.tag, now
	g.add(s.name, &s.charge)
	return g
}

// end is for when g, the settlement's group, is answered or will not be.
func (s *settlement) end(g *group) {
	lost := g.err != nil || g.foreign() != ""
	if s.store.denied != nil {
		s.store.denied.invalidate([]limiter.Charge{s.charge}) // what was heard meanwhile may be of before
	}
	s.store.unsettled.remove(lost)
}

// mostUnsettled is how many settlements no caller waits for. Beyond that callers do.
const mostUnsettled = 1024

// unsettled counts settlements that no caller waits for.
type unsettled struct {
	mu    sync.Mutex
	count int
	lost  uint64        // which Redis did not say that it has
	none  chan struct{} // made by close, after which none is added; closed when there are none
}

// add reports whether there is room for another.
func (u *unsettled) add() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.none != nil || u.count == mostUnsettled {
		return false
	}
	u.count++
	return true
}

func (u *unsettled) remove(lost bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if lost {
		u.lost++
	}
	if u.count--; u.count == 0 && u.none != nil {
		close(u.none)
	}
}

func (u *unsettled) howManyLost() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lost
}

// close waits until there are none, up to a while.
func (u *unsettled) close(patience time.Duration) error {
	u.mu.Lock()
	if u.none == nil {
		u.none = make(chan struct{})
		if u.count == 0 {
			close(u.none)
		}
	}
	u.mu.Unlock()
	select {
	case <-u.none:
		return nil
	case <-time.After(patience):
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return fmt.Errorf("redisstore: Redis has not answered to %d settlements in %v", u.count, patience)
}

// Settle implements [limiter.Settler]. The callers of what is beyond mostUnsettled wait, whatever
// becomes of ctx.
func (s *store) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil {
		return err
	}
	refunds, debts := limiter.Corrections(settlements)
	ctx = context.WithoutCancel(ctx)
	return errors.Join(s.settle(ctx, refund, refunds), s.settle(ctx, owe, debts))
}

func (s *store) settle(ctx context.Context, op op, charges []limiter.Charge) error {
	if s.denied != nil {
		s.denied.invalidate(charges)
	}
	for i, c := range charges {
		if c.Quota.InFlight() {
			s.correctPlaces(op, charges[i:i+1])
			continue
		}
		if s.maxBatch == 1 || !s.unsettled.add() {
			return s.change(ctx, op, charges[i:])
		}
		tag := s.names.Tag(c.Key)
		s.batcher(tag).settle(&settlement{store: s, op: op, charge: c, tag: tag, name: s.names.Name(tag, c.Quota)})
	}
	return nil
}
